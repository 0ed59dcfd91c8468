"""What a parameter of a search space can be, and when it takes part.

Optuna's storages, its importances and TensorBoard hold numbers, text and booleans only. So each
value has a label: itself where it is one of those, else a short text ("16-16-10" for a list).
Labels are Optuna's side of a parameter, values the run's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from model.common.typed import COMPARE

Label: TypeAlias = "str | int | float | bool"

OR = " or "  # between the parameters of one condition


class Outside(ValueError):
    """A value that is not in the domain; the text stands after the value."""


@dataclass(frozen=True)
class Number:
    """A range of numbers with both its ends in it, whole ones where `whole`."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    def suggest(self, trial: optuna.Trial, key: str) -> float:
        if self.whole:
            step = int(self.step or 1)
            return trial.suggest_int(key, int(self.low), int(self.high), log=self.log, step=step)
        return self.value(
            trial.suggest_float(key, self.low, self.high, log=self.log, step=self.step)
        )

    def distribution(self) -> BaseDistribution:
        if self.whole:
            step = int(self.step or 1)
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=step)
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def draw(self, rng: np.random.Generator) -> float:
        if self.log:
            # Whole numbers as Optuna draws them: each has its share of the log scale.
            half = 0.5 if self.whole else 0.0
            low, high = math.log(self.low - half), math.log(self.high + half)
            drawn = math.exp(rng.uniform(low, high))
        elif self.whole or self.step:
            step = self.step or 1
            drawn = self.low + step * int(rng.integers(_count(self.low, self.high, step) + 1))
        else:
            drawn = float(rng.uniform(self.low, self.high))
        return self.value(min(max(round(drawn) if self.whole else drawn, self.low), self.high))

    def every(self, rng: np.random.Generator) -> Iterator[float]:
        """All its numbers in a random order; of a range without steps there is no last one."""
        if self.low == self.high:
            yield self.value(self.low)
        elif self.whole or self.step:
            step = self.step or 1
            for place in rng.permutation(_count(self.low, self.high, step) + 1):
                yield self.value(self.low + step * int(place))
        else:
            while True:
                yield self.draw(rng)

    def value(self, label: Label) -> float:
        """On the grid of a step exactly: 0.45, where 0.1 + 7 * 0.05 is 0.45000000000000007."""
        if not is_number(label):
            raise Outside(f"is not a number; it can be {self}")
        number = float(label)
        if self.whole:
            first, each = int(self.low), int(self.step or 1)
            return first + each * round((number - first) / each)
        if self.step:
            low, step = Decimal(str(self.low)), Decimal(str(self.step))
            return float(low + round((number - self.low) / self.step) * step)
        return number

    def label(self, value: Any) -> Label:
        if not is_number(value):
            raise Outside(f"is not a number; it can be {self}")
        if not self.low <= value <= self.high:
            raise Outside(f"is outside {self}")
        if self.whole and value != round(value):
            raise Outside(f"is not a whole number; it can be {self}")
        nearest = self.value(value)
        if (self.step or self.whole) and not math.isclose(nearest, value, abs_tol=1e-12):
            raise Outside(f"is not on the steps of {self}; the nearest is {number_text(nearest)}")
        return nearest

    def can(self, sign: str, value: Any) -> bool:
        """Whether any number of the range compares so with the value."""
        if sign == "!=":
            return True
        return bool(COMPARE[sign](self.high if sign in (">", ">=") else self.low, value))

    @property
    def written(self) -> dict[str, Any]:
        """As in a space file, as with the other domains."""
        spec: dict[str, Any] = {"int" if self.whole else "float": [self.low, self.high]}
        if self.log:
            spec["log"] = True
        if self.step is not None:
            spec["step"] = self.step
        return spec

    @property
    def scale(self) -> str:
        if self.log:
            return "log"
        return f"step {number_text(self.step)}" if self.step else "whole" if self.whole else ""

    def __str__(self) -> str:
        return f"{number_text(self.low)} .. {number_text(self.high)}"


@dataclass(frozen=True)
class Choice:
    """One of several values, of any kind that a setting takes."""

    values: tuple[Any, ...]

    @cached_property
    def labels(self) -> tuple[Label, ...]:
        plain = [label_of(value) for value in self.values]
        if len({str(label) for label in plain}) == len(plain):
            return tuple(plain)
        return tuple(json.dumps(value) for value in self.values)

    def suggest(self, trial: optuna.Trial, key: str) -> Any:
        label: Any = trial.suggest_categorical(key, self.labels)
        return self.value(label)

    def distribution(self) -> BaseDistribution:
        return CategoricalDistribution(self.labels)

    def draw(self, rng: np.random.Generator) -> Any:
        return self.values[int(rng.integers(len(self.values)))]

    def every(self, rng: np.random.Generator) -> Iterator[Any]:
        return (self.values[place] for place in rng.permutation(len(self.values)))

    def value(self, label: Label) -> Any:
        if label not in self.labels:
            raise Outside(f"is not one of {self}")
        return self.values[self.labels.index(label)]

    def label(self, value: Any) -> Label:
        if value not in self.values:
            raise Outside(f"is not one of {self}")
        return self.labels[self.values.index(value)]

    def can(self, sign: str, value: Any) -> bool:
        if sign == "!=":
            return any(each != value for each in self.values)
        return any(is_number(each) and COMPARE[sign](each, value) for each in self.values)

    @property
    def written(self) -> dict[str, Any]:
        return {"choice": list(self.values)}

    @property
    def scale(self) -> str:
        return "choice"

    def __str__(self) -> str:
        return " | ".join(map(value_text, self.values))


@dataclass(frozen=True)
class Fixed:
    """A value that the space decides and Optuna never hears of."""

    only: Any

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.only,)

    def suggest(self, trial: optuna.Trial, key: str) -> Any:
        return self.only

    def draw(self, rng: np.random.Generator) -> Any:
        return self.only

    def every(self, rng: np.random.Generator) -> Iterator[Any]:
        return iter(self.values)

    def label(self, value: Any) -> Label:
        if value != self.only:
            raise Outside(f"is not {self}, the value it is fixed at")
        return label_of(value)

    def can(self, sign: str, value: Any) -> bool:
        return Choice(self.values).can(sign, value)

    @property
    def written(self) -> dict[str, Any]:
        return {"fixed": self.only}

    @property
    def scale(self) -> str:
        return "fixed"

    def __str__(self) -> str:
        return value_text(self.only)


Domain: TypeAlias = "Number | Choice | Fixed"


@dataclass(frozen=True)
class Condition:
    """One of the keys has one of the values ("in"), or compares so with the only one."""

    keys: tuple[str, ...]
    sign: str
    values: tuple[Any, ...]

    def holds(self, values: Mapping[str, Any]) -> bool:
        """A parameter that takes no part itself meets no condition."""
        return any(key in values and self.fits(values[key]) for key in self.keys)

    def fits(self, value: Any) -> bool:
        if self.sign == "in":
            return value in self.values
        if self.sign == "!=":
            return bool(value != self.values[0])
        return is_number(value) and bool(COMPARE[self.sign](value, self.values[0]))

    @property
    def name(self) -> str:
        """As in a space file, as with its value."""
        return OR.join(self.keys)

    @property
    def written(self) -> Any:
        if self.sign == "in":
            one = len(self.values) == 1 and not isinstance(self.values[0], list)
            return self.values[0] if one else list(self.values)
        return f"{self.sign} {json.dumps(self.values[0])}"

    def __str__(self) -> str:
        values = " or ".join(map(value_text, self.values))
        return f"{self.name} {'is' if self.sign == 'in' else self.sign} {values}"


@dataclass(frozen=True)
class Parameter:
    key: str
    domain: Domain
    when: tuple[Condition, ...] = ()

    def active(self, values: Mapping[str, Any]) -> bool:
        return all(condition.holds(values) for condition in self.when)

    def can_be(self, value: Any) -> bool:
        """Of a value that fits the setting."""
        return isinstance(self.domain, Number) or value in self.domain.values

    def can_meet(self, condition: Condition) -> bool:
        """Of a condition that it can meet with all that was offered."""
        return isinstance(self.domain, Number) or any(map(condition.fits, self.domain.values))

    @property
    def written(self) -> dict[str, Any]:
        when = {condition.name: condition.written for condition in self.when}
        return {**self.domain.written, **({"when": when} if when else {})}


def label_of(value: Any) -> Label:
    """Unique among the values of most parameters; `Choice` sees to the rest."""
    return value if isinstance(value, str | bool | int | float) else value_text(value)


def value_text(value: Any) -> str:
    """Short and readable: 16-16-10, same:cross near:cosine, null."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return " ".join(f"{key}:{value_text(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "-".join(value_text(each) for each in value)
    return number_text(value) if is_number(value) else str(value)


def number_text(number: float | None) -> str:
    """1 for 1.0, and 1e-05 as it is."""
    text = repr(number)
    return text.removesuffix(".0")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(low: float, high: float, step: float) -> int:
    """How many steps there are from low to high."""
    return round((high - low) / step)
