"""What a search is sure of, by the model of its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.engine.points import PointColumn, Points
from tuner.engine.results import full_length, settings_of, unit_offset
from tuner.engine.task_gp import Model, key_of, model_of, most_expected
from tuner.runs.state import DEFAULT, DISTILLED, RunState
from tuner.scoring.summary import Expected
from tuner.space.domains import Choice, Number
from tuner.space.space import Space

DRAWS = 4000
STEPS = 7  # values of a range that an effect is shown at


@dataclass(frozen=True)
class Effect:
    """How one parameter moves one task's score in full, all else as it was in the trials."""

    task: str
    parameter: str
    values: tuple[Any, ...]
    means: tuple[float, ...]
    sds: tuple[float, ...]
    configurations: int  # from which it is known

    @property
    def size(self) -> float:
        return max(self.means) - min(self.means)


def expected_of(state: RunState, space: Space, recommended: str | None = None) -> Expected | None:
    """A configuration and the default, trained in full; None if the model cannot tell.

    It is that of the trial whose model is recommended. Where that is of several trials, was
    taught by others or is the default, it is the best trial's.
    """
    taken = state.trials.get(recommended) if recommended else None
    if taken is None or taken.origin == DISTILLED or state.is_default(taken):
        taken = None
    best = taken or state.best_trial()
    if best is None or len(state.search_trials) < 3:
        return None
    points = Points(space)
    model = model_of(state, points)
    default = next((t.id for t in state.search_trials if t.origin == DEFAULT), None)
    if model is None or len(model.tried) < 3:
        return None
    pair = [best.configuration, default]
    if pair[0] == default or not all(name in model.tried for name in pair):
        return None
    rng = np.random.default_rng(state.seed)
    top = most_expected(state, points, model, rng)
    at = np.stack([*(model.tried[str(name)] for name in pair), points.encode(top)])
    drawn = model.surrogate.draw(at, DRAWS, rng) + unit_offset(state, points)
    means, sds = drawn.mean(0).tolist(), drawn.std(0).tolist()
    names = [str(run["name"]) for run in state.earlier]
    known = {key_of(points, settings_of(state, points, name)): name for name in model.tried}
    mine = settings_of(state, points, best.configuration)
    keys = [column.parameter.key for column in points.columns]
    changes = {key: (mine.get(key), top.get(key)) for key in keys if mine.get(key) != top.get(key)}
    return Expected(
        examples=full_length(state),
        trial=best.id,
        recommended=taken is not None,
        best=means[0],
        best_sd=sds[0],
        default=means[1],
        default_sd=sds[1],
        worse=float((drawn[:, 0] < drawn[:, 1]).mean()),
        top=means[2],
        top_sd=sds[2],
        top_trial=known.get(key_of(points, top)),
        top_changes=changes,
        earlier=tuple(zip(names, model.surrogate.taken(), strict=True)),
    )


def effects_of(state: RunState, space: Space) -> list[Effect]:
    """Every parameter's effect on every task, the largest first."""
    points = Points(space)
    model = model_of(state, points)
    if model is None or len(model.tried) < 3:
        return []
    tried = [settings_of(state, points, name) for name in model.tried]
    found = [
        effect(model, points, column, task, tried)
        for task in model.surrogate.processes
        for column in points.columns
    ]
    return sorted(found, key=lambda each: -each.size)


def effect(
    model: Model, points: Points, column: PointColumn, task: str, tried: list[dict[str, Any]]
) -> Effect:
    """The mean over the configurations that were tried, with the parameter at each value."""
    key, values = column.parameter.key, values_of(column)
    means, sds = [], []
    for value in values:
        at = np.stack([points.encode({**each, key: value}) for each in tried])
        mean, variance = model.surrogate.processes[task].predict(at)
        means.append(float(mean.mean()))
        sds.append(float(np.sqrt(variance.mean())))
    return Effect(task, key, tuple(values), tuple(means), tuple(sds), len(tried))


def values_of(column: PointColumn) -> list[Any]:
    domain = column.parameter.domain
    if isinstance(domain, Choice):
        return list(domain.values)
    assert isinstance(domain, Number)
    shares = np.linspace(0, 1, STEPS)
    if domain.log:
        low, high = np.log([domain.low, domain.high])
        numbers = np.exp(low + shares * (high - low))
    else:
        numbers = domain.low + shares * (domain.high - domain.low)
    return list(dict.fromkeys(domain.value(float(number)) for number in numbers))
