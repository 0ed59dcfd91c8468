"""A run as trackers know runs: parameters, curves, scores, a status, files.

Everything follows from the run's folder, so that the same ledger always gives the same records,
under the same keys. Nothing secret is in them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from model.cli.flags import flags_of
from model.common.secrets import redact
from model.common.untrusted import read_regular
from tuner.export.tensorboard.board import name_of
from tuner.runs.folder import REPORT, RUN, SPACE
from tuner.runs.ledger import run_key
from tuner.runs.open import FinishedRun
from tuner.runs.request import SearchRequest
from tuner.runs.state import OVERALL, RunState, TrialState, objective_value
from tuner.soup.record import CARD, SOUP, SOUP_JSON, SoupRecord, read_soup
from tuner.space.default import default_values
from tuner.space.domains import is_number

Value: TypeAlias = "bool | int | float | str"
Outcome = Literal["running", "finished", "failed", "interrupted"]

FILES = (RUN, SPACE, REPORT, f"{SOUP}/{SOUP_JSON}", f"{SOUP}/{CARD}")
LOSSES = {"loss": "dev_loss", "train_loss": "train_loss"}
OF_STEP = ("gradient_norm", "smart", "simcse_loss", "examples_per_second", "seconds")
# Why a driver ended, in the words of trackers.
ENDS: dict[str, Outcome] = {
    "complete": "finished",
    "time": "finished",
    "interrupted": "interrupted",
}
CLOSED: dict[str, Outcome] = {
    "open": "running",
    "finished": "finished",
    "stopped": "finished",  # by a rung, as it should be; the tag `status` says so
    "failed": "failed",
}


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation of a trial, or one trial of a search that finished."""

    step: int  # examples seen; of a search, trials finished
    time: float  # unix seconds
    values: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Record:
    """A search or a trial."""

    key: str  # the same for ever, and no other's
    name: str
    params: dict[str, Value]
    tags: dict[str, str]
    points: tuple[CurvePoint, ...]
    scores: dict[str, float]  # its results, beside its last point
    scored: float = 0.0  # unix seconds
    outcome: Outcome
    began: float
    ended: float | None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    search: Record
    trials: dict[str, Record]  # by their ids
    files: dict[str, bytes] = field(repr=False)  # by their paths in the run's folder
    model: dict[str, Path] = field(default_factory=dict)  # where it lies, by the same
    state: RunState

    @property
    def group(self) -> str:
        """Of all its trials, where a tool groups by a name."""
        return f"{self.search.name} {self.search.key[:8]}"


def snapshot(run: FinishedRun) -> Snapshot:
    key = run_key(run.events[0] if run.events else run.name)
    default = clean_params(default_values(run.space))
    trials = {
        trial.id: trial_record(trial, run, key, default) for trial in run.state.trials.values()
    }
    return Snapshot(
        search=search_record(run, key),
        trials=trials,
        files={name: content for name, content in contents(run.folder)},
        state=run.state,
    )


def trial_key(run: str, trial: str) -> str:
    return hashlib.sha256(f"{run} {trial}".encode()).hexdigest()[:32]


def search_record(run: FinishedRun, key: str) -> Record:
    state = run.state
    request = {k: v for k, v in run.request.to_dict().items() if v not in (None, [], {}, ())}
    fixed = request.pop("set", {})
    # What --resume may change is no parameter: some trackers let nobody change those.
    free = {name for name, each in flags_of(SearchRequest).items() if each.flag.free}
    tags = {
        "kind": "search",
        **{name: str(request.pop(name)) for name in sorted(free & request.keys())},
        "stockpot": run.version,
        "tasks": run.tasks.name,
        "status": state.ended or "running",
        "trials": state.outcomes_text(),
    }
    soup = read_soup(run.folder)
    if soup is not None:
        tags |= {"recommended": soup.recommended, "recommendation": soup.recommendation}
    best = state.best_trial()
    if best is not None:
        tags["best_trial"] = best.id
    times = [event["time"] for event in run.events]
    return Record(
        key=key,
        name=clean(run.name),
        params=clean_params(request | {f"set.{name}": value for name, value in fixed.items()}),
        tags={name: clean(text) for name, text in tags.items()},
        points=tuple(search_points(run)),
        scores=dict(soup_scores(soup)),
        scored=soup.time if soup else 0.0,
        outcome="running" if state.ended is None else ENDS.get(state.ended, "failed"),
        began=times[0] if times else 0.0,
        ended=times[-1] if state.ended is not None else None,
    )


def trial_record(
    trial: TrialState, run: FinishedRun, key: str, default: Mapping[str, Value]
) -> Record:
    # The default, and a repeat of it, has no settings: it is what the space's base alone gives.
    params = clean_params(trial.params) if trial.params else dict(default)
    length = {} if trial.length is None else {"length": trial.length}
    over = run.state.ended is not None
    tags = {"kind": "trial", "trial": trial.id, "origin": trial.origin}
    tags["status"] = run.state.outcome(trial)
    told = {"of": trial.of, "failure": trial.kind, "reason": trial.reason}
    return Record(
        key=trial_key(key, trial.id),
        name=name_of(trial, run.state),
        params={**params, "seed": trial.seed, **length},
        tags={n: clean(text) for n, text in (tags | told).items() if text},
        points=tuple(trial_points(trial, run.state.objectives)),
        scores={},
        # What is open when a search ends waits for --resume.
        outcome="interrupted" if trial.status == "open" and over else CLOSED[trial.status],
        began=trial.created,
        ended=trial.closed,
    )


def search_points(run: FinishedRun) -> Iterator[CurvePoint]:
    """The best trial's scores each time that one finished: what was known by then, so that it is
    the same however often the run was looked at."""
    state = RunState(warn=lambda line: None)
    for event in run.events:
        state.apply(event)
        if event["event"] == "finished" and (best := state.best_trial()) is not None:
            entry = best.chosen(state.objectives)
            done = sum(trial.status == "finished" for trial in state.closed_trials)
            if entry is not None:
                values = {**scores_of("best", entry), "examples": float(state.examples)}
                yield CurvePoint(done, float(event["time"]), values)


def trial_points(trial: TrialState, objectives: Sequence[str]) -> Iterator[CurvePoint]:
    best: Mapping[str, Any] | None = None
    goal = objectives[0] if len(objectives) == 1 else OVERALL
    for entry in trial.evaluations:
        if best is None or objective_value(entry, goal) > objective_value(best, goal):
            best = entry
        values = {**scores_of("dev", entry), **dict(details_of(entry)), **scores_of("best", best)}
        yield CurvePoint(int(entry["examples"]), float(entry["time"]), values)


def scores_of(group: str, entry: Mapping[str, Any]) -> dict[str, float]:
    """Of one evaluation, with their intervals."""
    found = dict(with_interval(group, OVERALL, entry["score"], entry.get("interval")))
    for task, of in entry.get("tasks", {}).items():
        found.update(with_interval(group, task, of["value"], of.get("interval")))
    return found


def details_of(entry: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for task, of in entry.get("tasks", {}).items():
        for key, name in LOSSES.items():
            if is_number(of.get(key)):
                yield f"{name}/{clean_name(task)}", float(of[key])
    rates = entry.get("learning_rates") or (None, None)
    values: dict[str, Any] = {key: entry.get(key) for key in OF_STEP}
    values |= {"learning_rate_low": rates[0], "learning_rate_high": rates[1]}
    yield from ((name, float(value)) for name, value in values.items() if is_number(value))


def soup_scores(soup: SoupRecord | None) -> Iterator[tuple[str, float]]:
    """Of the model that the search recommends."""
    taken = soup.method(soup.recommended) if soup else None
    if taken is None:
        return
    for name, score in {OVERALL: taken.overall, **taken.tasks}.items():
        yield from with_interval("recommended", name, score.value, (score.low, score.high))
    if (fitted := taken.cross_fitted) is not None:
        ends = (fitted.low, fitted.high)
        yield from with_interval("recommended", "cross_fitted", fitted.value, ends)


def with_interval(
    group: str, name: str, value: float, ends: Any = None
) -> Iterator[tuple[str, float]]:
    name = f"{group}/{clean_name(name)}"
    yield name, float(value)
    if ends:
        yield f"{name}_low", float(ends[0])
        yield f"{name}_high", float(ends[1])


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files that go along, each without secrets; those that are not there yet are left out."""
    for name in FILES:
        try:
            text = read_regular(folder / name).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        yield name, redact(text).encode("utf-8")


def clean(text: str) -> str:
    return redact(str(text))


def clean_name(name: str) -> str:
    """Of a metric, in letters that every tool takes."""
    return re.sub(r"[^\w.-]", "_", clean(name))


def clean_params(params: Mapping[str, Any]) -> dict[str, Value]:
    """Plain values; a list as people write it. What has no value is left out."""
    found: dict[str, Value] = {}
    for name, value in params.items():
        if value is None:
            continue
        if not isinstance(value, bool | int | float):
            value = clean(value if isinstance(value, str) else json.dumps(value))
        found[clean(name)] = value
    return found
