"""Points of a search space as numbers, so that a model of the results can compare them.

Each parameter is one column or several. Two values of a parameter are at most 1 apart, whatever
it is: a range by its own scale, numbers to choose from by their order, lists of numbers place by
place, and other choices all equally far from each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.modules.encoder_defaults import encoder_defaults
from tuner.space.domains import Choice, Domain, Fixed, Number, Parameter, is_number
from tuner.space.space import Space
from tuner.space.values import meaning

Array = NDArray[np.float64]
RATE = "optim.learning_rate"  # null: the encoder's own
MIDDLE = 0.5  # stands for a value where a parameter takes no part


@dataclass(frozen=True)
class PointColumn:
    """One parameter's place in a point."""

    parameter: Parameter
    start: int
    width: int
    task: str | None  # whose parameter it is, by its name; None: of all tasks

    @property
    def places(self) -> slice:
        return slice(self.start, self.start + self.width)


class Points:
    """Encodes settings of a space; fixed parameters have no column."""

    def __init__(self, space: Space) -> None:
        self.space = space
        names = {task.name for task in space.task_set}
        self.columns: list[PointColumn] = []
        self.width = 0
        for parameter in space.parameters:
            if not isinstance(parameter.domain, Fixed):
                last = parameter.key.rpartition(".")[2]
                # One more says whether a parameter with conditions takes part.
                width = _width(parameter.domain) + bool(parameter.when)
                task = last if last in names else None
                self.columns.append(PointColumn(parameter, self.width, width, task))
                self.width += width
        self._default: dict[str, Any] | None = None

    def encode(self, settings: Mapping[str, Any]) -> Array:
        point = np.empty(self.width)
        for column in self.columns:
            domain, key = column.parameter.domain, column.parameter.key
            inside = key in settings
            numbers = _numbers(domain, settings[key]) if inside else [MIDDLE] * _width(domain)
            if column.parameter.when:
                numbers.append(float(inside))
            point[column.places] = numbers
        return point

    def default(self) -> dict[str, Any]:
        """The default configuration by the space's parameters.

        What lies outside a range is taken as its nearer end, so that the default's results are
        of use to a model of the space.
        """
        if self._default is None:
            space = self.space
            config = space.config(space.fixed)
            known = meaning(config, space.task_set)
            if known[RATE] is None:
                known[RATE] = encoder_defaults(config.encoder.name).learning_rate
            found = space.default_point()
            for column in self.columns:
                domain, key = column.parameter.domain, column.parameter.key
                value: Any = known.get(key)
                if key not in found and is_number(value) and column.parameter.active(found):
                    found |= _nearest(key, domain, value)
            self._default = found
        return self._default

    def nearest(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The point of the space next to these settings; what has no counterpart is left out."""
        found: dict[str, Any] = {}
        for column in self.columns:
            key, domain = column.parameter.key, column.parameter.domain
            if key in settings and column.parameter.active(found):
                found |= _nearest(key, domain, settings[key])
        return found

    def group(self, task: str) -> list[str]:
        """The parameters that belong to one task."""
        return [column.parameter.key for column in self.columns if column.task == task]


def _nearest(key: str, domain: Domain, value: Any) -> dict[str, Any]:
    if isinstance(domain, Number):
        inside = is_number(value)
        return {key: domain.value(min(max(value, domain.low), domain.high))} if inside else {}
    if value in domain.values:
        return {key: value}
    numbers = [each for each in domain.values if is_number(each)]
    if not numbers or not is_number(value):
        return {}
    return {key: min(numbers, key=lambda each: abs(each - value))}


def _lists(domain: Choice) -> NDArray[np.float64] | None:
    """[values, places], where all values are lists of as many numbers."""
    values = domain.values
    if not all(
        isinstance(value, list) and value and all(map(is_number, value)) for value in values
    ):
        return None
    if len({len(value) for value in values}) > 1:
        return None
    return np.array(values, dtype=np.float64)


def _width(domain: Domain) -> int:
    if isinstance(domain, Number):
        return 1
    values = domain.values
    if all(map(is_number, values)):
        return 1
    lists = _lists(domain) if isinstance(domain, Choice) else None
    return len(values) if lists is None else lists.shape[1]


def _numbers(domain: Domain, value: Any) -> list[float]:
    if isinstance(domain, Number):
        if not is_number(value):
            return [MIDDLE]
        scale = math.log if domain.log else float
        low, high = scale(domain.low), scale(domain.high)
        share = (scale(min(max(value, domain.low), domain.high)) - low) / ((high - low) or 1.0)
        return [share]
    values = domain.values
    if all(map(is_number, values)):
        return [_rank(sorted(values), value)]
    lists = _lists(domain) if isinstance(domain, Choice) else None
    if lists is None:  # so that two different values are 1 apart
        return [math.sqrt(0.5) * (each == value) for each in values]
    ranks = [sorted(set(column)) for column in lists.T]
    places = value if isinstance(value, list) and len(value) == len(ranks) else [None] * len(ranks)
    count = math.sqrt(lists.shape[1])
    return [_rank(order, each) / count for order, each in zip(ranks, places, strict=True)]


def _rank(order: list[float], value: Any) -> float:
    """The place of a number among those in order, 0..1; of the nearest, if it is not there."""
    if not is_number(value) or len(order) < 2:
        return MIDDLE
    return min(range(len(order)), key=lambda n: abs(order[n] - value)) / (len(order) - 1)
