"""`task_gp` as a sampler of Optuna's, for studies that are none of our searches.

    space = load_space("default")
    study = optuna.create_study(direction="maximize", sampler=TaskGPSampler(space, seed=1))

It learns from what the trials of the study say of themselves. `report_evaluation` says all that it
can use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as S

from model.common.errors import InputError
from tuner.engine.points import Points
from tuner.engine.results import MOST, Settings, task_weights, variance_of
from tuner.engine.study import seed_for
from tuner.engine.surrogate import Observed, Surrogate
from tuner.engine.task_gp import BEST, ENOUGH, key_of, most_promising
from tuner.runs.state import OVERALL
from tuner.space.domains import is_number
from tuner.space.space import Space

__all__ = ["TaskGPSampler", "report_evaluation"]

TASKS, EXAMPLES = "tasks", "examples"  # attributes of a trial
Weights = dict[str, float]


def report_evaluation(trial: optuna.Trial, record: Mapping[str, Any]) -> None:
    """Tell Optuna of an evaluation, as `train` yields it: the overall score to its pruners, and
    every task's score with its interval to `TaskGPSampler`."""
    examples = int(record["examples"])
    tasks = {
        name: {key: of[key] for key in ("value", "interval") if key in of}
        for name, of in record["tasks"].items()
    }
    trial.set_user_attr(TASKS, tasks)
    trial.set_user_attr(EXAMPLES, examples)
    if len(trial.study.directions) == 1:  # Optuna has no curves for several objectives
        trial.report(float(record["score"]), step=examples)


class TaskGPSampler(BaseSampler):
    """A Gaussian process for each task, over the settings of a space and the length of training.

    The study maximises scores of which 1 is the best: the overall score, or what its metric names
    say (`study.set_metric_names(["sst", "sts"])`). Trials without `report_evaluation` are known by
    their value alone, which is then one process for all tasks. With a seed, what is proposed
    follows from the study alone, so that one which goes on from a storage proposes what it would
    have.
    """

    def __init__(self, space: Space, seed: int | None = None) -> None:
        self.space = space
        self.seed = int(np.random.default_rng().integers(2**32)) if seed is None else seed
        self.points = Points(space)
        self.overall = Points(space)  # no task has a say of its own
        self.overall.columns = [replace(each, task=None) for each in self.overall.columns]
        self._keys = {column.parameter.key for column in self.points.columns}
        self._others = RandomSampler(self.seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self.space.distributions(dict.fromkeys(self._keys, 0))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        goals = _goals(study)
        rng = np.random.default_rng(seed_for(self.seed, trial.number))
        given = self._settings(trial.system_attrs.get("fixed_params", {})) or {}
        others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        params = self.space.params(self._propose(others, goals, rng, given))
        return {key: value for key, value in params.items() if key in search_space}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """What an objective asks for beside the space is drawn at random."""
        return self._others.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Only of the draws: proposals have a seed for each trial."""
        self._others.reseed_rng()

    def _propose(
        self,
        trials: Sequence[FrozenTrial],
        goals: Sequence[str],
        rng: np.random.Generator,
        given: Settings,
    ) -> Settings:
        settings = {trial.number: self._settings(trial.params) for trial in trials}
        tried = {number: each for number, each in settings.items() if each is not None}
        scored = [trial for trial in trials if trial.number in tried and _value(trial) is not None]
        scored = scored[-MOST:]
        if len(scored) < ENOUGH:
            return self.space.draw(rng, given)
        names = self.space.task_set.names
        each_task = all(_has_tasks(trial, names) for trial in scored)
        if not each_task and len(goals) > 1:
            raise ValueError(
                "task_gp needs every task's score for several objectives; "
                "call stockpot.report_evaluation(trial, record) in the objective"
            )
        points = self.points if each_task else self.overall
        weights = task_weights(goals, self.space.task_set, rng) if each_task else {goals[0]: 1.0}
        seen = list(_observed(scored, [points.encode(tried[t.number]) for t in scored], weights))
        running = [tried[t.number] for t in trials if t.state == S.RUNNING and t.number in tried]
        try:
            surrogate = Surrogate(points, seen, weights)
            if running:  # so that the next proposal goes elsewhere
                at = np.stack([points.encode(each) for each in running])
                surrogate.believe(at, [1.0] * len(running))
        except RuntimeError:  # of torch.linalg: scores that no process can have
            return self.space.draw(rng, given)
        mean, _ = surrogate.predict(np.stack([each.point for each in seen]))
        order = np.argsort(-mean, kind="stable")
        best = [tried[scored[n].number] for n in order[:BEST]]
        known = {key_of(points, each) for each in tried.values()}
        incumbent = seen[order[0]].point
        return most_promising(surrogate, points, rng, best, incumbent, known, given)

    def _settings(self, params: Mapping[str, Any]) -> Settings | None:
        """None for a point that this space cannot have."""
        try:
            return self.space.settings({k: v for k, v in params.items() if k in self._keys})
        except InputError:
            return None


def _goals(study: Study) -> Sequence[str]:
    directions = study.directions
    if any(direction != StudyDirection.MAXIMIZE for direction in directions):
        raise ValueError("task_gp maximises scores; create the study with direction='maximize'")
    names = study.metric_names
    if names is None and len(directions) > 1:
        raise ValueError("task_gp needs to know the objectives; call study.set_metric_names")
    return names or (OVERALL,)


def _value(trial: FrozenTrial) -> float | None:
    """Of a trial that was trained, in full or in part. One that diverged has none."""
    value = None
    if trial.state == S.COMPLETE:
        value = float(trial.values[0])
    elif trial.state == S.PRUNED and trial.last_step is not None:
        value = float(trial.intermediate_values[trial.last_step])
    return value if value is not None and math.isfinite(value) else None


def _has_tasks(trial: FrozenTrial, names: Sequence[str]) -> bool:
    told = trial.user_attrs.get(TASKS)
    return isinstance(told, Mapping) and all(
        isinstance(told.get(name), Mapping)
        and is_number(value := told[name].get("value"))
        and math.isfinite(value)
        for name in names
    )


def _observed(
    trials: Sequence[FrozenTrial], points: Sequence[NDArray[np.float64]], weights: Weights
) -> list[Observed]:
    """A training in full is the longest that there was."""
    lengths = [float(t.user_attrs.get(EXAMPLES, t.last_step or 0)) for t in trials]
    full = max(lengths)
    found = []
    for trial, point, length in zip(trials, points, lengths, strict=True):
        told: Mapping[str, Any] = trial.user_attrs.get(TASKS, {})
        if not weights.keys() <= told.keys():
            told = {name: {"value": _value(trial)} for name in weights}
        values = {name: float(told[name]["value"]) for name in weights}
        variances = {name: variance_of(told[name]) for name in weights}
        share = length / full if length else 1.0
        found.append(Observed(point, share, values, variances))
    return found
