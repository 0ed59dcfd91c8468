"""Whatever answers tasks, under one face: a model folder, a set of models, an ensemble, a run.

Models are loaded one after the other, so an ensemble needs the memory of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from model.data.batches import Assembler
from model.data.tokens import Tokens
from model.errors import InputError, suggest
from model.evaluate import outputs_of, rows_from_texts
from model.files import read_yaml
from model.folder import SPEC, read_model, read_spec
from model.multitask import MultitaskModel, TaskSpec, decide
from model.prepare import find_device
from tuner.blend import Served, blend
from tuner.recipe import RECIPE, Part, read_recipe
from tuner.run_folder import LEDGER, RUN, SPACE
from tuner.soup_folder import SOUP, SOUP_JSON

Key = tuple[str, str]  # a task, and whatever tells its rows apart
Texts = Sequence[str] | Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Cooked:
    place: Path
    parts: Mapping[str, Part]  # by task
    tasks: Mapping[str, TaskSpec]

    def known(self, task: str) -> str:
        if task not in self.tasks:
            raise InputError("--task", [f"no task '{task}' here; {suggest(task, self.tasks)}"])
        return task

    def answer(
        self, rows: Mapping[Key, Any], tokens: Callable[[TaskSpec, Any, Any], Tokens]
    ) -> dict[Key, Served]:
        """Of rows in any form that `tokens` (task, rows, tokenizer) understands."""
        found: dict[Key, dict[Path, Served]] = {key: {} for key in rows}
        folders = dict.fromkeys(m for task, _ in rows for m in self.parts[task].models)
        for folder in folders:
            model, tokenizer = read_model(folder)
            model = model.to(find_device(None))
            assembler = Assembler.of(tokenizer, model.spec.max_length)
            for key, some in rows.items():
                if folder in self.parts[key[0]].models:
                    ids = tokens(model.tasks[key[0]], some, tokenizer)
                    found[key][folder] = served_by(model, key[0], ids, assembler)
        return {key: self._blended(key[0], of) for key, of in found.items()}

    def answer_texts(self, texts: Mapping[str, Texts]) -> dict[str, Served]:
        asked = {(task, ""): some for task, some in texts.items()}
        return {task: served for (task, _), served in self.answer(asked, rows_from_texts).items()}

    def _blended(self, task: str, of: Mapping[Path, Served]) -> Served:
        part = self.parts[task]
        return blend(part.rule, [of[model] for model in part.models], part.weights)

    @property
    def task_set(self) -> str:
        """The name or file of the task set that it was trained on."""
        for notes in self._notes():
            found = notes.get("task_set") or notes.get("tasks")
            if isinstance(found, str):
                return found
        fault = "does not say which task set it was trained on; name it with --tasks"
        raise InputError(str(self.place), [fault])

    @property
    def data(self) -> Path | None:
        """Where its data were; None where the task set needs none, or nobody knows."""
        for notes in self._notes():
            asked = notes.get("asked")
            found = notes.get("data") if asked is None else asked.get("data")
            if isinstance(found, str) and Path(found).is_dir():
                return Path(found)
        return None

    def _notes(self) -> list[dict[str, Any]]:
        """What lies beside the model, or in the folders above it: of the soup, trial or run.

        A checkpoint's model is the deepest: <run>/trials/<id>/checkpoints/<name>/model.
        """
        found = []
        for folder in (self.place, *self.place.parents[:5]):
            for name in (SOUP_JSON, RECIPE, "config.yaml", SPACE, RUN):
                if (folder / name).is_file():
                    found.append(_read(folder / name))
            if (folder / RUN).is_file():
                break
        return found


def served_by(model: MultitaskModel, task: str, tokens: Tokens, assembler: Assembler) -> Served:
    values, shares = decide(model.tasks[task], outputs_of(model, task, tokens, assembler))
    return Served(
        np.asarray(values.numpy(), dtype=np.float64),
        None if shares is None else np.asarray(shares.numpy()),
    )


def open_cooked(path: Path) -> Cooked:
    """A model folder, a recipe's, a checkpoint's or trial's; of a run its soup, else its best."""
    place = find(Path(path).absolute())
    if (place / RECIPE).is_file():
        recipe = read_recipe(place)
        specs: dict[str, TaskSpec] = {}
        for task, part in recipe.parts.items():
            known = {spec.name: spec for spec in read_spec(part.models[0]).tasks}
            if task not in known:
                raise InputError(str(place / RECIPE), [f"{part.models[0]} has no task '{task}'"])
            specs[task] = known[task]
        return Cooked(place, recipe.parts, specs)
    spec = read_spec(place)
    alone = Part("mean", (place,), (1.0,))
    return Cooked(place, {t.name: alone for t in spec.tasks}, {t.name: t for t in spec.tasks})


def find(path: Path) -> Path:
    """Where the model or the recipe is that a path stands for."""
    for place in (path, path / SOUP, path / "model"):
        if (place / RECIPE).is_file() or (place / SPEC).is_file():
            return place
    if (path / LEDGER).is_file() and (best := best_model(path)) is not None:
        return best
    if not path.is_dir():
        raise InputError(str(path), ["no such folder"])
    fault = "has no model in it; give a run, a trial, a checkpoint, its soup, or one of soups/"
    raise InputError(str(path), [fault])


def best_model(run: Path) -> Path | None:
    from tuner.ledger import read_events
    from tuner.run_state import RunState

    def quiet(line: str) -> None:
        """Whoever searches or cooks hears of it."""

    state = RunState.from_events(read_events(run / LEDGER, quiet), quiet)
    for trial in state.ranked():
        entry = trial.chosen(state.objectives)
        if entry is not None and "checkpoint" in entry:
            place: Path = run / "trials" / trial.id / "checkpoints" / entry["checkpoint"] / "model"
            if (place / SPEC).is_file():
                return place
    return None


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".yaml":
        return read_yaml(path).data
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
