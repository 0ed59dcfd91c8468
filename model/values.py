"""The table of settings, and what fits each: read from the annotations in `model.settings`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from model.settings import NAMES_TASKS, Bound, PerTask, RunConfig, key_of
from model.tasks import TaskSet
from model.yaml_parts import show as show

TASK = ".<task>"  # ends the key of a setting that every task has


class Misfit(ValueError):
    """A value that is not what its setting takes."""


@dataclass(frozen=True)
class Setting:
    """What is known of one dotted key; `<task>` at its end stands for the name of any task."""

    key: str
    kind: Any
    default: Any
    bounds: tuple[Bound, ...]
    help: str
    names_tasks: bool

    @property
    def choices(self) -> tuple[Any, ...]:
        """The known words, where the value can only be one of them."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def expected(self) -> str:
        """What fits, in words that stand after 'must be'."""
        words = _expected(self.kind, self.bounds)
        return words.replace("text", "the name of a task") if self.names_tasks else words

    def fit(self, value: Any) -> Any:
        """The value in the type that a RunConfig holds; Misfit says what it must be."""
        if value is None and self.key.endswith(TASK):
            return None  # takes back what was said of this task
        try:
            return _fit(value, self.kind, self.bounds)
        except Misfit:
            text = f"must be {self.expected}, but is {show(value)}{self._hint(value)}"
            raise Misfit(text) from None

    def _hint(self, value: Any) -> str:
        if isinstance(value, str):
            words = [word for word in self.choices if isinstance(word, str)]
            near = get_close_matches(value, words, n=1)
            return f"; did you mean '{near[0]}'?" if near else ""
        scalar = not isinstance(value, (list, tuple, set, Mapping))
        return "; put it in quotes" if str in _options(self.kind) and scalar else ""


def find_setting(key: str, tasks: TaskSet) -> Setting | None:
    """The setting of this key, where `loss.<task>` and its like stand for each task's own."""
    section, _, last = key.rpartition(".")
    return SETTINGS.get(key) or (SETTINGS.get(section + TASK) if last in tasks.names else None)


def known_keys(tasks: TaskSet) -> list[str]:
    """Every key that can be set in a run of these tasks."""
    keys: dict[str, None] = {}
    for key in SETTINGS:
        stem = key.removesuffix(TASK)
        keys.update(dict.fromkeys([key] if stem == key else [f"{stem}.{n}" for n in tasks.names]))
    return list(keys)


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _fit(value: Any, kind: Any, bounds: tuple[Bound, ...]) -> Any:
    for option in _options(kind):
        try:
            return _fit_one(value, option, bounds)
        except Misfit:
            continue
    raise Misfit


def _fit_one(value: Any, kind: Any, bounds: tuple[Bound, ...]) -> Any:
    if kind in (int, float):
        return _number(value, kind, bounds)
    if get_origin(kind) is tuple:
        return _items(value, get_args(kind), bounds)
    if get_origin(kind) is Literal:
        for choice in get_args(kind):
            if not isinstance(value, bool) and value == choice:
                return choice
    elif kind is NoneType and value is None:
        return None
    elif kind is str and isinstance(value, str) and value.strip() and value.isprintable():
        return value
    elif kind is bool and isinstance(value, bool):
        return value
    raise Misfit


def _items(value: Any, kinds: tuple[Any, ...], bounds: tuple[Bound, ...]) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise Misfit
    if kinds[-1] is not Ellipsis and len(value) != len(kinds):
        raise Misfit
    return tuple(_fit(item, kinds[0], bounds) for item in value)


def _number(value: Any, kind: type, bounds: tuple[Bound, ...]) -> float:
    """YAML reads 1e-5 as text (it wants 1.0e-5), so text that is a number counts as one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise Misfit
    try:
        number = value if isinstance(value, int) else float(value)
        finite = math.isfinite(number)
    except (ValueError, OverflowError):
        raise Misfit from None
    if not finite or not all(bound.holds(number) for bound in bounds):
        raise Misfit
    if kind is float:
        return float(number)
    if number != int(number):
        raise Misfit
    return int(number)


def _expected(kind: Any, bounds: tuple[Bound, ...]) -> str:
    limits = " and ".join(f"{bound.sign} {bound.limit}" for bound in bounds)
    words = {bool: "true or false", str: "text", NoneType: "null"}
    parts = []
    for option in _options(kind):
        items = get_args(option)
        if get_origin(option) is tuple:
            count = "" if items[-1] is Ellipsis else f" of {len(items)}"
            parts.append(f"a list{count}, each {_expected(items[0], bounds)}")
        elif get_origin(option) is Literal:
            parts.append(("one of " if len(items) > 1 else "") + ", ".join(map(str, items)))
        elif option in words:
            parts.append(words[option])
        else:
            parts.append(f"{'a whole' if option is int else 'a'} number {limits}".rstrip())
    return ", or ".join(parts)


def _settings(section: type, prefix: str) -> Iterator[Setting]:
    hints = get_type_hints(section, include_extras=True)
    for item in fields(section):
        key = key_of(prefix, item.name)
        if is_dataclass(hints[item.name]):
            yield from _settings(hints[item.name], f"{key}.")
            continue
        kind, *notes = get_args(hints[item.name])
        bounds = tuple(note for note in notes if isinstance(note, Bound))
        text = next(note for note in notes if isinstance(note, str))
        # A mapping is given task by task, never as one value.
        own = [get_args(option)[1] for option in _options(kind) if get_origin(option) is Mapping]
        own += [note.kind for note in notes if isinstance(note, PerTask)]
        rest = tuple(option for option in _options(kind) if get_origin(option) is not Mapping)
        if rest:
            default = None if item.default is MISSING else item.default
            yield Setting(key, reduce(or_, rest), default, bounds, text, NAMES_TASKS in notes)
        for each in own:
            about = "the same, for this task alone" if rest else text
            yield Setting(f"{key}{TASK}", each, None, bounds, about, False)


SETTINGS: dict[str, Setting] = {setting.key: setting for setting in _settings(RunConfig, "")}
SECTIONS: frozenset[str] = frozenset(
    ".".join(parts[:depth])
    for parts in (key.split(".") for key in SETTINGS)
    for depth in range(1, len(parts))
)
