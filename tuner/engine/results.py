"""What a run has shown so far, in the form that the model of the results takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.evaluation.scores import METRICS
from model.tasks.task_set import TaskSet
from tuner.engine.points import Points
from tuner.engine.study import INFEASIBLE
from tuner.engine.surrogate import Observed
from tuner.runs.state import (
    DISTILLED,
    OVERALL_NAMES,
    Event,
    RunState,
    TrialState,
    objective_value,
)

Array = NDArray[np.float64]
Settings = dict[str, Any]

MOST = 200  # results that a model is fitted to: the time grows with their cube
FAILED = MOST // 4  # besides, points to keep away from
# Of a score's variance, what other trials do not share. They are scored on the same dev rows, so a
# difference of two has about a quarter of the variance of one (`tuner.engine.ladder.MARGIN`), each
# of them an eighth. Half is careful: with less, luck was taken for a lead too often.
UNSHARED = 0.5


def settings_of(state: RunState, points: Points, configuration: str) -> Settings:
    trial = state.trials[configuration]
    return dict(points.default() if state.is_default(trial) else trial.settings)


def full_length(state: RunState) -> int:
    """Examples of a training in full."""
    if state.rungs:
        return state.rungs[-1][0]
    return max((trial.length or trial.examples for trial in state.trials.values()), default=1)


def observations(state: RunState, points: Points, full: int) -> Iterator[tuple[str, Observed]]:
    """What the runs scored, and which failed; of too many, the best and the latest.

    Of each run the last score, as those before it are of a rate that was still high; of runs that
    go on, all. One that diverged or did not fit into memory counts as the worst that was seen.
    """
    names = [task.name for task in points.space.task_set]
    found = [
        (trial, entry)
        for trial in state.trials.values()
        for entry in _entries(state, trial)
        if all("value" in entry.get("tasks", {}).get(name, {}) for name in names)
    ]
    found = _kept(state, found)
    worst: dict[str, float] = {}
    for trial, entry in found:
        own = {name: float(entry["tasks"][name]["value"]) for name in names}
        worst = {name: min(value, worst.get(name, value)) for name, value in own.items()}
        variances = {name: variance_of(entry["tasks"][name]) for name in names}
        share = min(1.0, entry["examples"] / full)
        point = points.encode(settings_of(state, points, trial.configuration))
        yield trial.configuration, Observed(point, share, own, variances)
    failed = [t for t in state.trials.values() if t.status == "failed" and t.kind in INFEASIBLE]
    for trial in failed[-FAILED:] if worst else ():
        point = points.encode(settings_of(state, points, trial.configuration))
        share = _length(state, trial, full) / full
        yield trial.configuration, Observed(point, share, worst, dict.fromkeys(names, 0.0))


def _kept(state: RunState, found: list[tuple[TrialState, Event]]) -> list[tuple[TrialState, Event]]:
    """Of too many the best of those trained longest, what came last, and the default, with which
    all others are compared."""

    def rank(place: int) -> tuple[int, float]:
        _, entry = found[place]
        return entry["examples"], objective_value(entry, state.goal)

    places = range(len(found))
    best = sorted(places, key=rank)[-(MOST // 4) :] if len(found) > MOST else []
    kept = {*best, *places[-(MOST - len(best)) :]}
    return [pair for n, pair in enumerate(found) if n in kept or state.is_default(pair[0])]


def _entries(state: RunState, trial: TrialState) -> Sequence[Event]:
    if trial.origin == DISTILLED:  # a teacher had a part in it
        return ()
    if state.promotion == "continue" and not trial.is_repeat:
        top, found = len(state.rungs) - 1, trial.evaluations
        if trial.status != "open" or not trial.level == top > 0:
            return found
        # A final counts when it is done, so that on resume it is decided as it was before.
        below, _ = state.rungs[top - 1]
        return [e for n, e in enumerate(found) if not n or found[n - 1]["examples"] < below]
    return trial.evaluations[-1:] if trial.status == "finished" else ()


def pending(state: RunState, points: Points, full: int) -> Iterator[tuple[Array, float]]:
    for trial in state.open_trials:
        if not trial.frozen:
            settings = settings_of(state, points, trial.configuration)
            yield points.encode(settings), _length(state, trial, full) / full


def _length(state: RunState, trial: TrialState, full: int) -> int:
    return (
        min(full, state.rungs[min(trial.level, len(state.rungs) - 1)][0]) if state.rungs else full
    )


def variance_of(of_task: Mapping[str, Any]) -> float:
    """By which scores of two trials differ, beside the luck of their seeds."""
    low, high = of_task.get("interval") or (0.0, 0.0)
    return float(UNSHARED * ((high - low) / 3.92) ** 2)


def weights_of(
    state: RunState, points: Points, rng: np.random.Generator | None = None
) -> dict[str, float]:
    return task_weights(state.objectives, points.space.task_set, rng)


def task_weights(
    goals: Sequence[str], tasks: TaskSet, rng: np.random.Generator | None = None
) -> dict[str, float]:
    """Of each task's metric in what is maximised.

    Several objectives count alike; with `rng` in a mixture that is drawn anew each time, so that
    every part of their Pareto front that a weighted sum can reach has its turn.
    """
    shares = np.full(len(goals), 1 / len(goals))
    if rng is not None and len(goals) > 1:
        shares = rng.dirichlet(np.ones(len(goals)))
    found = dict.fromkeys(tasks.names, 0.0)
    total = sum(task.weight for task in tasks)
    for goal, share in zip(goals, shares, strict=True):
        for task in tasks:
            if goal == task.name:
                found[task.name] += share
            elif goal in OVERALL_NAMES:
                unit = METRICS[task.metric].unit
                slope = float(unit(np.array(1.0)) - unit(np.array(0.0)))
                found[task.name] += share * slope * task.weight / total
    return found


def unit_offset(state: RunState, points: Points) -> float:
    """What the weighted sum of the metrics lacks to the overall score: that of Pearson's 0."""
    tasks, goals = points.space.task_set, state.objectives
    total = sum(task.weight for task in tasks)
    lacking = sum(t.weight * float(METRICS[t.metric].unit(np.array(0.0))) for t in tasks) / total
    return lacking * sum(goal in OVERALL_NAMES for goal in goals) / len(goals)
