"""What mattered: how much of the scores' variation each parameter explains, overall and per task.

Scores are compared after the same training: those of the first rung, which every configuration
reaches. By fANOVA, which fits a forest to the scores and splits its variance over the whole space.
Optuna's default (PED-ANOVA) asks what sets the best trials apart from the others instead, and from
a few dozen trials it has given a decisive choice no importance at all. fANOVA takes only
parameters that every trial has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import optuna
from optuna.importance import FanovaImportanceEvaluator, get_param_importances

from tuner.engine.conclusions import Effect, effects_of
from tuner.engine.study import quiet
from tuner.report.run import ReportedRun
from tuner.runs.state import DEFAULT, RunState, TrialState, objective_score, objective_value
from tuner.space.default import default_values
from tuner.space.space import Space

EVALUATOR = "fANOVA"
LEAST = 6  # trials below which there are no shares
PER_PARAMETER = 3  # trials for each parameter below which it is said with a warning
RESAMPLES = 12
TREES, FEWER_TREES = 64, 24
MANY = 150  # trials beyond which they speak for themselves; a tree's time grows with their square

FULL, PRUNED = "full", "pruned"


@dataclass(frozen=True)
class ScoredPoint:
    """A configuration: what was tried, and what it scored there."""

    trial: str
    kind: str  # full: it was trained to the end; pruned: it was not; or the default
    params: dict[str, Any]
    score: float
    tasks: dict[str, float]
    examples: int
    compared: bool  # it was scored after as much training as the others
    # Of the default, values that are not the space's: from outside of it, or the encoder's own.
    own: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Importance:
    target: str  # what is scored
    points: list[ScoredPoint]
    space: Space  # whose distributions Optuna's pictures need
    shares: dict[str, float] = field(default_factory=dict)  # most important first
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)
    tasks: dict[str, dict[str, float]] = field(default_factory=dict)  # shares by task
    left_out: tuple[str, ...] = ()  # parameters that not every trial has, or all alike
    why_not: str = ""  # why there are no shares
    few: bool = False  # too few trials to trust the order
    effects: tuple[Effect, ...] = ()  # on each task's score in full, the largest first

    @property
    def compared(self) -> list[ScoredPoint]:
        """What fANOVA sees. The default only where it lies inside the space, like the others."""
        keys = set(self.ordered)
        return [p for p in self.points if p.compared and (p.kind != DEFAULT or keys <= {*p.params})]

    @property
    def examples(self) -> int:
        """That most of those compared were trained on."""
        return int(np.median([point.examples for point in self.compared] or [0]))

    @property
    def ordered(self) -> list[str]:
        """All parameters, those that matter most first."""
        return [*self.shares, *self.left_out]


def collect_importance(run: ReportedRun) -> Importance:
    objectives = run.state.objectives
    points = points_of(run)
    drawn = [point for point in points if point.kind != DEFAULT]
    every = tuple(dict.fromkeys(key for point in drawn for key in point.params))
    name = objectives[0] if len(objectives) == 1 else "mean of the objectives"
    # By a model that takes fewer trials than fANOVA does.
    effects = tuple(effects_of(run.state, run.space))
    bare = Importance(name, points, run.space, left_out=every, effects=effects)
    compared = bare.compared
    usable = [
        key
        for key in every
        if all(key in point.params for point in compared)
        and len({point.params[key] for point in compared}) > 1
    ]
    if why := _why_not(len(compared), usable):
        return replace(bare, why_not=why)
    trees = TREES if len(compared) <= MANY else FEWER_TREES
    try:
        shares = _shares(bare, compared, [p.score for p in compared], usable, trees, seed=0)
    except (ValueError, RuntimeError) as error:
        return replace(bare, why_not=f"The importances could not be computed: {error}.")
    return replace(
        bare,
        shares=dict(sorted(shares.items(), key=lambda pair: -pair[1])),
        spread=_spread(bare, compared, usable),
        tasks=_by_task(bare, compared, usable, run.tasks.names),
        left_out=tuple(key for key in every if key not in usable),
        few=len(compared) < PER_PARAMETER * len(usable),
    )


def points_of(run: ReportedRun) -> list[ScoredPoint]:
    found = []
    for trial in run.state.search_trials:
        entry, compared = _scored(run.state, trial)
        if entry is None:
            continue
        params, own, kind = trial.params, {}, _kind(run.state, trial)
        if kind == DEFAULT:
            params, _ = run.space.default_params()
            values = default_values(run.space).items()
            own = {key: v for key, v in values if key not in params and v is not None}
        tasks = entry.get("tasks", {})
        found.append(
            ScoredPoint(
                trial=trial.id,
                kind=kind,
                params=dict(params),
                score=objective_score(entry, run.state.objectives),
                tasks={name: objective_value(entry, name) for name in tasks},
                examples=int(entry["examples"]),
                compared=compared,
                own=own,
            )
        )
    return found


def _scored(state: RunState, trial: TrialState) -> tuple[dict[str, Any] | None, bool]:
    """The evaluation that a configuration is compared by, and whether it can be compared."""
    if state.rungs:
        at = state.at_rung(trial.id, 0)
        return (at[1], True) if at else (None, False)
    if trial.status == "finished":
        return trial.chosen(state.objectives), True
    stopped = trial.status == "stopped" and trial.evaluations
    return (trial.evaluations[-1], False) if stopped else (None, False)


def _kind(state: RunState, trial: TrialState) -> str:
    if trial.origin == DEFAULT:
        return DEFAULT
    top = max(0, len(state.rungs) - 1)
    full = any(t.status == "finished" and t.level >= top for t in state.runs_of(trial.id))
    return FULL if full else PRUNED


def _why_not(compared: int, usable: Sequence[str]) -> str:
    if compared < LEAST:
        return (
            f"Importance takes at least {LEAST} configurations with all values inside the space; "
            f"this search has {compared}."
        )
    if not usable:
        return "No parameter took more than one value in the trials."
    return ""


def study_of(
    importance: Importance, points: Sequence[ScoredPoint], values: Sequence[float]
) -> optuna.Study:
    with quiet():
        study = optuna.create_study(direction="maximize")
        for point, value in zip(points, values, strict=True):
            study.add_trial(
                optuna.trial.create_trial(
                    value=value,
                    params=point.params,
                    distributions=importance.space.distributions(point.params),
                )
            )
    return study


def _shares(
    importance: Importance,
    points: Sequence[ScoredPoint],
    values: Sequence[float],
    parameters: list[str],
    trees: int,
    seed: int,
) -> dict[str, float]:
    with quiet():
        return get_param_importances(
            study_of(importance, points, values),
            evaluator=FanovaImportanceEvaluator(n_trees=trees, seed=seed),
            params=parameters,
        )


def _by_task(
    importance: Importance,
    points: Sequence[ScoredPoint],
    parameters: list[str],
    tasks: Sequence[str],
) -> dict[str, dict[str, float]]:
    """Each task's own shares. A task whose score never moved has none."""
    found = {}
    for task in tasks if len(tasks) > 1 else ():
        values = [point.tasks.get(task) for point in points]
        known = [value for value in values if value is not None]
        if len(known) == len(points) and len(set(known)) > 1:
            try:
                found[task] = _shares(importance, points, known, parameters, FEWER_TREES, seed=0)
            except (ValueError, RuntimeError):
                continue
    return found


def _spread(
    importance: Importance, points: Sequence[ScoredPoint], parameters: list[str]
) -> dict[str, tuple[float, float]]:
    """The middle 80 % over resampled sets of trials: how far the shares hang on single ones."""
    if len(points) > MANY:
        return {}
    rng = np.random.default_rng(0)
    found: list[dict[str, float]] = []
    for seed in range(RESAMPLES):
        drawn = [points[place] for place in rng.integers(len(points), size=len(points))]
        varied = [key for key in parameters if len({point.params[key] for point in drawn}) > 1]
        scores = [point.score for point in drawn]
        try:
            shares = _shares(importance, drawn, scores, varied, FEWER_TREES, seed) if varied else {}
        except (ValueError, RuntimeError):  # a draw without any variation
            continue
        found.append(shares)
    if len(found) < RESAMPLES // 2:
        return {}
    ends = {key: [each.get(key, 0.0) for each in found] for key in parameters}
    return {
        key: (float(np.quantile(of, 0.1)), float(np.quantile(of, 0.9))) for key, of in ends.items()
    }
