"""The columns of TensorBoard's HParams table: a search space as it can be shown, typed and bounded.

The table holds numbers, text and booleans. A list has a readable label, as in Optuna, and where it
is given task by task a number for each task beside it. A range on a log scale has its logarithm
beside it, because the table knows no scale.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from model.config.values import find_setting
from tuner.runs.state import OUTCOMES, Outcome
from tuner.space.default import default_values
from tuner.space.domains import Choice, Fixed, Number, Parameter, is_number, value_text
from tuner.space.space import Space
from tuner.space.values import spread

Value: TypeAlias = "str | float | bool"

ORIGIN, OUTCOME = "origin", "outcome"
# TensorBoard shows five settings, by name, and only then scores, which a usual screen has no room
# for. So the scores are columns among the settings too; capitals come before all.
SCORE = "Overall"
TASK = "Score "  # of each task, which is its label; "Overall" comes before it
RATE = "optim.learning_rate"  # shown before other settings, where there is room for one
FIRST = 5  # settings that TensorBoard ticks
LETTERS = 12  # that fit above an axis of the parallel coordinates
TRIED = ("default", "start_from", "warm_start", "sampler", "expected")
ORIGINS = (*TRIED, "promoted", "confirm", "distilled", "soup")


@dataclass(frozen=True)
class BoardColumn:
    name: str
    about: str
    key: str  # the parameter it is made from
    read: Callable[[Any], Value | None]  # of that parameter's value; None leaves the cell empty
    shown: bool  # among those of which TensorBoard ticks the first
    ends: tuple[float, float] | None = None
    choices: tuple[Value, ...] = ()
    label: str = ""  # shown for its name

    def within(self, value: Value | None) -> BoardColumn:
        """The same with this value among the choices: the filter hides what is not offered."""
        if value is None or self.ends or value in self.choices:
            return self
        return replace(self, choices=(*self.choices, value))


@dataclass(frozen=True)
class Columns:
    columns: tuple[BoardColumn, ...]
    default: dict[str, Any]  # the default's value of every parameter that takes part in it

    @classmethod
    def of(cls, space: Space) -> Columns:
        default = default_values(space)
        found = [column for each in space.parameters for column in _columns(each, space)]
        fitting = [
            column.within(column.read(default[column.key]) if column.key in default else None)
            for column in found
        ]
        about = "the default, a known point, the sampler's, a repeat of another trial, or a soup"
        origin = BoardColumn(ORIGIN, about, ORIGIN, str, False, choices=ORIGINS)
        about = "how the trial ended"
        outcome = BoardColumn(OUTCOME, about, OUTCOME, str, False, choices=OUTCOMES)
        scores = list(_scores(space))
        room = max(0, FIRST - len(scores))
        return cls((*scores, *the_telling(fitting, space, room), origin, outcome), default)

    def values(
        self,
        settings: Mapping[str, Any],
        origin: str,
        outcome: Outcome = "finished",
        scores: Mapping[str, Any] | None = None,
    ) -> dict[str, Value]:
        """A trial's cells. A parameter that takes no part in it has none.

        The default, and a repeat of it, has no settings: it is what base alone gives.
        """
        known = {**(settings or self.default), ORIGIN: origin, OUTCOME: outcome, **(scores or {})}
        cells = {c.name: c.read(known[c.key]) for c in self.columns if c.key in known}
        return {name: value for name, value in cells.items() if value is not None}


def score_cells(overall: float, tasks: Mapping[str, float | None]) -> dict[str, Any]:
    return {SCORE: overall, **{f"{TASK}{name}": value for name, value in tasks.items()}}


def _scores(space: Space) -> Iterable[BoardColumn]:
    about = "of the trial's best evaluation, once it has ended"
    yield BoardColumn(SCORE, f"overall score {about}", SCORE, _number, True, ends=(0.0, 1.0))
    for place, task in enumerate(space.task_set, 1):
        name, ends = f"{TASK}{task.name}", (-1.0 if task.kind == "regression" else 0.0, 1.0)
        told = f"{task.metric} of {task.name} {about}"
        yield BoardColumn(name, told, name, _number, place < FIRST, ends=ends, label=task.name)


def the_telling(columns: list[BoardColumn], space: Space, room: int) -> list[BoardColumn]:
    """With as many shown as there is room for, if they are enough, that are ranges and that all
    tasks share. They have names that fit above an axis.
    """
    names = space.task_set.names
    shown = [column for column in columns if column.shown]
    common = [column for column in shown if column.name.rpartition(".")[2] not in names]
    ranges = [column for column in common if column.ends]
    some = next((found for found in (ranges, common) if len(found) >= max(1, room)), shown)
    first = sorted(some, key=lambda column: column.name != RATE)[:room]
    ends = Counter(column.name.rpartition(".")[2] for column in columns)

    def label(name: str) -> str:
        last = name.rpartition(".")[2]
        fits = len(name) <= LETTERS or ends[last] > 1 or last in names
        return name if fits else last

    return [
        replace(column, shown=column in first, label=label(column.name) if column in some else "")
        for column in columns
    ]


def _columns(parameter: Parameter, space: Space) -> Iterable[BoardColumn]:
    key, domain = parameter.key, parameter.domain
    setting = find_setting(key, space.task_set)
    about = setting.help if setting else key
    if parameter.when:
        about += f" (takes part when {' and '.join(map(str, parameter.when))})"
    # TensorBoard draws no line for a trial that lacks a column that is shown.
    shown = not parameter.when
    if isinstance(domain, Number):
        yield BoardColumn(key, about, key, _number, shown, (domain.low, domain.high))
        if domain.log:
            ends = (math.log10(domain.low), math.log10(domain.high))
            yield BoardColumn(f"{key}.log10", f"log10 of: {about}", key, _log10, False, ends)
    elif isinstance(domain, Choice):
        read = _reader(domain)
        choices = tuple(cell for value in domain.values if (cell := read(value)) is not None)
        yield BoardColumn(key, about, key, read, shown, choices=tuple(dict.fromkeys(choices)))
        yield from _per_task(key, about, domain, space)
    else:
        assert isinstance(domain, Fixed)  # the same in every trial: nothing to compare


def _per_task(key: str, about: str, domain: Choice, space: Space) -> Iterable[BoardColumn]:
    """A number for each task, where the value is given so: batch sizes, loss weights."""
    spreads = [spread(key, value, space.task_set) for value in domain.values]
    names = dict.fromkeys(name for each in spreads for name in each if name != key)
    if not any(isinstance(value, list | Mapping) for value in domain.values):
        return  # one number for all of them, and shown as such
    for name in names:
        found = [each[name] for each in spreads if name in each]
        if not all(map(is_number, found)):
            continue

        def read(value: Any, name: str = name) -> Value | None:
            return _number(spread(key, value, space.task_set).get(name))

        task = name.removeprefix(f"{key}.")
        choices = tuple(sorted({float(number) for number in found}))
        yield BoardColumn(name, f"of {task}: {about}", key, read, False, choices=choices)


def _number(value: Any) -> Value | None:
    return float(value) if is_number(value) and math.isfinite(value) else None


def _log10(value: Any) -> Value | None:
    return math.log10(value) if is_number(value) and value > 0 else None


def _reader(domain: Choice) -> Callable[[Any], Value | None]:
    """How the values of a choice are shown: one type for all, or TensorBoard mixes them up."""
    if all(map(is_number, domain.values)):
        return _number
    if all(isinstance(value, bool) for value in domain.values):
        return lambda value: value if isinstance(value, bool) else None

    def label(value: Any) -> Value:
        return value_text(domain.label(value) if value in domain.values else value)

    return label
