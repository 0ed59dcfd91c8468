"""Several runs side by side, and which differences are more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from model.common.errors import InputError
from tuner.report.answer.collect import Contender, collect_answer
from tuner.report.run import ReportedRun
from tuner.runs.folder import trial_folder
from tuner.scoring.crossfit import Differences, paired_differences
from tuner.scoring.dev_predictions import DevPredictions


@dataclass(frozen=True)
class ComparedRun:
    run: ReportedRun
    best: Contender | None

    @property
    def name(self) -> str:
        return self.run.name


@dataclass(frozen=True)
class Pair:
    """The best of one run against the best of another."""

    first: str
    second: str
    differences: Differences | None  # first - second
    why_not: str = ""


@dataclass(frozen=True)
class RunComparison:
    sides: list[ComparedRun]
    pairs: list[Pair]
    same_tasks: bool


def told_apart(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """The runs, by their folders where two have the same name."""
    names = [run.name for run in runs]
    return [replace(run, name=run.shown) if names.count(run.name) > 1 else run for run in runs]


def collect_comparison(runs: Sequence[ReportedRun]) -> RunComparison:
    runs = told_apart(runs)
    sides = [ComparedRun(run, collect_answer(run).best) for run in runs]
    pairs = [
        _pair(first, second) for place, first in enumerate(runs) for second in runs[place + 1 :]
    ]
    alike = len({run.fingerprints.get("tasks") for run in runs}) == 1
    return RunComparison(sides, pairs, alike)


def _pair(first: ReportedRun, second: ReportedRun) -> Pair:
    names = (first.name, second.name)
    if first.tasks.tasks != second.tasks.tasks:
        return Pair(*names, None, "they have other tasks")
    try:
        candidates = [_best(first), _best(second)]
        # Rows of both are brought into one order; other rows or labels are refused.
        both = DevPredictions.load(first.folder, candidates, first.tasks)
        return Pair(*names, paired_differences(both[0], both[1], first.tasks))
    except InputError as error:
        return Pair(*names, None, error.faults[0])


def _best(run: ReportedRun) -> tuple[str, dict[str, Any]]:
    best = run.state.best_trial()
    entry = best.chosen(run.state.objectives) if best else None
    if best is None or entry is None or "predictions" not in entry:
        raise InputError(str(run.folder), [f"{run.name} has no finished trial with predictions"])
    file = trial_folder(run.folder.absolute(), best.id) / entry["predictions"]
    return f"{run.name} {best.id}", {**entry, "predictions": str(file)}
