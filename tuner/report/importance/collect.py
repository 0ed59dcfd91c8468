"""What mattered: how much of the scores' variation each parameter explains.

By fANOVA, which fits a forest to the scores and splits its variance over the whole space. Optuna's
default (PED-ANOVA) asks what sets the best trials apart from the others instead, and from a few
dozen trials it has given a decisive choice no importance at all. fANOVA takes only parameters that
every finished trial has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import optuna
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as S

from tuner.engine.study import quiet, rebuild_study
from tuner.report.run import ReportedRun

EVALUATOR = "fANOVA"
LEAST = 6  # finished trials below which nothing is said
PER_PARAMETER = 3  # finished trials for each parameter below which it is said with a warning
RESAMPLES = 12
TREES, FEWER_TREES = 64, 24
MANY = 150  # trials beyond which they speak for themselves; a tree's time grows with their square

Target = Callable[[FrozenTrial], float]


@dataclass(frozen=True)
class Importance:
    study: optuna.Study
    target: Target | None  # None with one objective
    target_name: str
    finished: int
    stopped: int
    shares: dict[str, float] = field(default_factory=dict)  # most important first
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # parameters that not every finished trial has, or all alike
    why_not: str = ""  # why there are no shares
    few: bool = False  # too few trials to trust the order
    default: bool = False  # the default configuration finished, which is no part of the study

    @property
    def ordered(self) -> list[str]:
        """All parameters, those that matter most first."""
        return [*self.shares, *self.left_out]


def collect_importance(run: ReportedRun) -> Importance:
    objectives = run.state.objectives
    study = rebuild_study(run.state, run.space)
    target = None if len(objectives) == 1 else _mean_value
    name = objectives[0] if len(objectives) == 1 else "mean of the objectives"
    finished = [trial for trial in study.trials if trial.state == S.COMPLETE]
    stopped = sum(trial.state == S.PRUNED for trial in study.trials)
    every = list(dict.fromkeys(key for trial in finished for key in trial.params))
    usable = [
        key
        for key in every
        if all(key in trial.params for trial in finished)
        and len({trial.params[key] for trial in finished}) > 1
    ]
    default = run.summary.default is not None and len(run.state.ranked()) > len(finished)
    bare = Importance(
        study, target, name, len(finished), stopped, left_out=tuple(every), default=default
    )
    if why := _why_not(len(finished), usable):
        return replace(bare, why_not=why)
    try:
        trees = TREES if len(finished) <= MANY else FEWER_TREES
        shares = _shares(finished, usable, target, trees, seed=0)
    except (ValueError, RuntimeError) as error:
        return replace(bare, why_not=f"The importances could not be computed: {error}.")
    return replace(
        bare,
        shares=dict(sorted(shares.items(), key=lambda pair: -pair[1])),
        spread=_spread(finished, usable, target),
        left_out=tuple(key for key in every if key not in usable),
        few=len(finished) < PER_PARAMETER * len(usable),
    )


def _mean_value(trial: FrozenTrial) -> float:
    return float(np.mean(trial.values))


def _why_not(finished: int, usable: Sequence[str]) -> str:
    if finished < LEAST:
        trials = f"{finished} finished trial{'s' if finished != 1 else ''}"
        return f"With {trials} there is no telling what mattered; it takes {LEAST} at least."
    if not usable:
        return "No parameter took more than one value in the finished trials."
    return ""


def _shares(
    trials: Sequence[FrozenTrial],
    parameters: list[str],
    target: Target | None,
    trees: int,
    seed: int,
) -> dict[str, float]:
    with quiet():
        study = optuna.create_study(direction="maximize")
        for trial in trials:
            study.add_trial(_single(trial, target))
        return get_param_importances(
            study,
            evaluator=FanovaImportanceEvaluator(n_trees=trees, seed=seed),
            params=parameters,
        )


def _single(trial: FrozenTrial, target: Target | None) -> FrozenTrial:
    """With one value, whatever there were."""
    value = trial.value if target is None else target(trial)
    return optuna.trial.create_trial(
        value=value, params=trial.params, distributions=trial.distributions
    )


def _spread(
    trials: Sequence[FrozenTrial], parameters: list[str], target: Target | None
) -> dict[str, tuple[float, float]]:
    """The middle 80 % over resampled sets of trials: how far the shares hang on single ones."""
    if len(trials) > MANY:
        return {}
    rng = np.random.default_rng(0)
    found: list[dict[str, float]] = []
    for seed in range(RESAMPLES):
        drawn = [trials[place] for place in rng.integers(len(trials), size=len(trials))]
        varied = [key for key in parameters if len({trial.params[key] for trial in drawn}) > 1]
        try:
            found.append(_shares(drawn, varied, target, FEWER_TREES, seed) if varied else {})
        except (ValueError, RuntimeError):  # a draw without any variation
            continue
    if len(found) < RESAMPLES // 2:
        return {}
    ends = {key: [each.get(key, 0.0) for each in found] for key in parameters}
    return {
        key: (float(np.quantile(of, 0.1)), float(np.quantile(of, 0.9))) for key, of in ends.items()
    }
