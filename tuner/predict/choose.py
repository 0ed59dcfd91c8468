"""Which model of a run answers: the recommended one, or another by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model.cli.invocation import command
from model.cli.text import shown_path
from model.common.errors import InputError, suggest
from model.evaluation.model_folder import SPEC
from tuner.runs.folder import MODEL, model_folder
from tuner.runs.open import best_model, has_begun, open_run
from tuner.runs.state import DEFAULT, RunState, TrialState
from tuner.scoring.summarise import default_of
from tuner.soup.ensemble_file import ENSEMBLE
from tuner.soup.methods import METHODS
from tuner.soup.record import MethodRecord, SoupRecord, read_soup, slug

BEST_TRIAL = "best"  # as a name; "best single" is what the soup was compared with


@dataclass(frozen=True)
class Chosen:
    place: Path  # of a model or an ensemble
    who: str  # who that is, and why it answers


def choose(path: Path, name: str | None = None) -> Chosen:
    """Of a run what it recommends, or what is named; any other folder stands for itself."""
    if has_begun(path):
        run = RunModels(path, open_run(path).state)
        return run.recommended() if name is None else run.named(name)
    remedy = "give a run, a trial, a checkpoint, its soup, or one of soups/"
    faults = []
    if not path.is_dir():
        faults.append(f"no such folder; {remedy}")
    elif name is not None:
        faults.append(f"is not the folder of a search, so it has no model '{name}'; leave it out")
    for place in (path, path / MODEL):
        if has_model(place) and not faults:
            kind = "ensemble" if (place / ENSEMBLE).is_file() else "model"
            return Chosen(place, f"the {kind} in {shown_path(place)}")
    raise InputError(str(path), faults or [f"has no model in it; {remedy}"])


def has_model(place: Path) -> bool:
    return (place / ENSEMBLE).is_file() or (place / SPEC).is_file()


class RunModels:
    """The models that a run has, by their names."""

    def __init__(self, run: Path, state: RunState) -> None:
        self.run = run
        self.state = state
        self.soup: SoupRecord | None = read_soup(run)

    def recommended(self) -> Chosen:
        if self.soup is None:
            return self._best("; the run has no soup")
        method = self.soup.method(self.soup.recommended)
        if method is None or (place := self._place(method)) is None:
            fault = f"the {self.soup.recommended}, which the search recommends, is not there"
            raise InputError(str(self.run), [f"{fault}; {self._make_soup()}"])
        return Chosen(place, f"{method.told}, which the search recommends")

    def named(self, name: str) -> Chosen:
        if name == BEST_TRIAL:
            return self._best()
        for method in self.soup.methods if self.soup else ():
            if name in (method.name, slug(method.name)):
                if (place := self._place(method)) is None:
                    fault = f"the {method.name} was not written; {self._make_soup('--folders')}"
                    raise InputError("--model", [fault])
                return Chosen(place, method.told + self._instead(method.name))
        default = default_of(self.state)
        for trial in self.state.trials.values():
            if name == trial.id or (name == DEFAULT and trial is default):
                if (place := self._model(trial)) is None:
                    fault = f"the model of {trial.id} was not kept; there are {self._listed()}"
                    raise InputError("--model", [fault])
                of = ", the default configuration" if self.state.is_default(trial) else ""
                return Chosen(place, trial.id + of + self._instead(""))
        if self.soup is None and name in (*METHODS, *map(slug, METHODS)):
            raise InputError("--model", [f"the run has no soup; {self._make_soup()}"])
        near = suggest(name, self.names())  # which lists all where none is near
        listed = "" if near.startswith("known") else f" There are {self._listed()}"
        raise InputError("--model", [f"no model is called '{name}'; {near}{listed}"])

    def names(self) -> Iterator[str]:
        """Those that can answer."""
        if best_model(self.run, self.state) is not None:
            yield BEST_TRIAL
        for method in self.soup.methods if self.soup else ():
            if self._place(method) is not None:
                yield method.name
        for trial in self.state.trials.values():
            if self._model(trial) is not None:
                yield from [DEFAULT, trial.id] if trial is default_of(self.state) else [trial.id]

    def _listed(self) -> str:
        return ", ".join(self.names()) or "none"

    def _best(self, why: str = "") -> Chosen:
        if (best := best_model(self.run, self.state)) is None:
            fault = "has no model in it: no trial has finished, or its checkpoint is gone"
            raise InputError(str(self.run), [fault])
        return Chosen(best[1], f"{best[0]}, the best trial{why or self._instead('')}")

    def _place(self, method: MethodRecord) -> Path | None:
        place = self.run / method.folder if method.folder else None
        return place if place is not None and has_model(place) else None

    def _model(self, trial: TrialState) -> Path | None:
        entry = trial.chosen(self.state.objectives)
        if entry is None or "checkpoint" not in entry:
            return None
        place = model_folder(self.run, trial.id, entry["checkpoint"])
        return place if has_model(place) else None

    def _instead(self, name: str) -> str:
        if self.soup is None:
            return ""
        if self.soup.recommended == name:
            return ", which the search recommends"
        return f"; the search recommends the {self.soup.recommended}"

    def _make_soup(self, *flags: str) -> str:
        return f"make it with {command('soup', shown_path(self.run), *flags)}"
