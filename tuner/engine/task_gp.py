"""The sampler for few trials: the point from which the model of the results expects most.

Optuna's samplers see one number per trial. This one sees every task's score with its noise and at
every length, so it learns from ten short trials what they would need a hundred for. It maximises
the expected improvement of the overall score in full. As with the others, what it proposes follows
from the ledger alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from tuner.engine.earlier import from_earlier
from tuner.engine.points import Points
from tuner.engine.results import (
    Settings,
    full_length,
    observations,
    pending,
    settings_of,
    weights_of,
)
from tuner.engine.surrogate import Surrogate
from tuner.runs.state import RunState

Array = NDArray[np.float64]

ENOUGH = 2  # results before a model says more than a draw
BEST = 6  # configurations whose neighbours and mixtures are looked at
DRAWN, NEIGHBOURS, MIXED = (
    400,
    40,
    160,
)  # candidates: at random, of each of the best, of two of them
ROUNDS = 3  # of looking around what is best so far
CHANGED = 3  # parameters of a neighbour that differ, at most


@dataclass(frozen=True)
class Model:
    """The model of the results, and the configurations that it has seen."""

    surrogate: Surrogate
    tried: Mapping[str, Array]  # by the trial that they were first tried in

    def in_full(self) -> dict[str, tuple[float, float]]:
        """What each would score in full, and how far that may be off (a standard deviation)."""
        mean, sd = self.surrogate.predict(np.stack(list(self.tried.values())))
        pairs = zip(mean.tolist(), sd.tolist(), strict=True)
        return dict(zip(self.tried, pairs, strict=True))


def model_of(
    state: RunState,
    points: Points,
    weights: Mapping[str, float] | None = None,
    fantasies: bool = False,
) -> Model | None:
    """None while there is too little to go by. With `fantasies`, what is running counts with what
    is expected of it, so that the next proposal goes elsewhere."""
    full = full_length(state)
    seen = list(observations(state, points, full))
    if len(seen) < ENOUGH:
        return None
    observed = [each for _, each in seen]
    weights = weights or weights_of(state, points)
    try:
        surrogate = Surrogate(points, observed, weights, from_earlier(state, points))
        if fantasies and (going := list(pending(state, points, full))):
            surrogate.believe(np.stack([point for point, _ in going]), [s for _, s in going])
    except RuntimeError:  # of torch.linalg: scores that no process can have
        return None
    return Model(surrogate, {name: each.point for name, each in seen})


def propose(
    state: RunState,
    points: Points,
    rng: np.random.Generator,
    fixed: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings to try next; those that are fixed stay as they are."""
    space, given = points.space, dict(fixed or {})
    model = model_of(state, points, weights_of(state, points, rng), fantasies=True)
    if model is None:
        return space.draw(rng, given)
    scores = {name: mean for name, (mean, _) in model.in_full().items()}
    ranked = sorted(scores, key=lambda name: -scores[name])
    best = [settings_of(state, points, name) for name in ranked[:BEST]]
    known = {key_of(points, settings_of(state, points, trial.id)) for trial in state.search_trials}
    incumbent = model.tried[ranked[0]]
    return most_promising(model.surrogate, points, rng, best, incumbent, known, given)


def most_promising(
    surrogate: Surrogate,
    points: Points,
    rng: np.random.Generator,
    best: Sequence[Settings],
    incumbent: Array,
    known: Container[tuple[Any, ...]],
    given: Settings,
) -> Settings:
    """Of what is not known yet, the settings with the largest expected improvement."""

    def improvement(at: Array) -> Array:
        return expected_improvement(*surrogate.lead(at, incumbent))

    return _climb(improvement, points, rng, best, known, given)


def most_expected(
    state: RunState, points: Points, model: Model, rng: np.random.Generator
) -> Settings:
    """The settings, tried or not, that the model expects the highest score of in full."""
    scores = model.in_full()
    ranked = sorted(scores, key=lambda name: -scores[name][0])
    best = [settings_of(state, points, name) for name in ranked[:BEST]]
    return _climb(lambda at: model.surrogate.predict(at)[0], points, rng, best, (), {})


def _climb(
    worth: Callable[[Array], Array],
    points: Points,
    rng: np.random.Generator,
    best: Sequence[Settings],
    known: Container[tuple[Any, ...]],
    given: Settings,
) -> Settings:
    def by_worth(candidates: Sequence[Settings]) -> list[Settings]:
        values = worth(np.stack([points.encode(each) for each in candidates]))
        return [candidates[n] for n in np.argsort(-values, kind="stable")]

    def fresh(candidates: Iterator[Settings]) -> list[Settings]:
        return [each for each in candidates if key_of(points, each) not in known]

    drawn = fresh(_around(points, rng, best, given))
    leading = by_worth(drawn or [points.space.draw(rng, given)])
    for _ in range(ROUNDS):
        leaders = leading[:BEST]
        near = (_neighbour(points, rng, each, given) for each in leaders for _ in range(NEIGHBOURS))
        leading = by_worth([*leaders, *fresh(near)])
    return leading[0]


def expected_improvement(lead: Array, sd: Array) -> Array:
    z = lead / sd
    improvement: Array = sd * (z * norm.cdf(z) + norm.pdf(z))
    return improvement


def key_of(points: Points, settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """Two settings with the same one are the same point."""
    return tuple(points.encode(settings).round(9))


# --- candidates ---------------------------------------------------------------------------------


def _around(
    points: Points, rng: np.random.Generator, best: Sequence[Settings], given: Settings
) -> Iterator[Settings]:
    """The best, near them, mixtures of them, and anywhere."""
    yield from best
    for _ in range(DRAWN):
        yield points.space.draw(rng, given)
    for each in best:
        for _ in range(NEIGHBOURS):
            yield _neighbour(points, rng, each, given)
    if len(best) > 1:
        for _ in range(MIXED):
            yield _mixture(points, rng, best, given)


def _neighbour(
    points: Points, rng: np.random.Generator, settings: Settings, given: Settings
) -> Settings:
    keys = [column.parameter.key for column in points.columns if column.parameter.key in settings]
    count = int(rng.integers(1, CHANGED + 1))
    left_out = set(rng.choice(keys, size=min(count, len(keys)), replace=False)) if keys else set()
    kept = {key: value for key, value in settings.items() if key not in left_out}
    return points.space.draw(rng, {**kept, **given})


def _mixture(
    points: Points, rng: np.random.Generator, best: Sequence[Settings], given: Settings
) -> Settings:
    """Of each task's own parameters, and of those of all tasks, one of the best has a say."""
    groups = dict.fromkeys(column.task for column in points.columns)
    lender = {group: best[int(rng.integers(len(best)))] for group in groups}
    mixed = {
        column.parameter.key: lender[column.task][column.parameter.key]
        for column in points.columns
        if column.parameter.key in lender[column.task]
    }
    return points.space.draw(rng, {**mixed, **given})
