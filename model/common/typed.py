"""What fits an annotated field: its type, its bounds, and how a value that does not is told."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from model.common.secrets import bounded

COMPARE = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


@dataclass(frozen=True)
class Bound:
    sign: str
    limit: float

    def holds(self, value: float) -> bool:
        return bool(COMPARE[self.sign](value, self.limit))


AtLeast, Above, AtMost, Below = (partial(Bound, sign) for sign in COMPARE)


class Misfit(ValueError):
    """A value that is not what its field takes."""


class Unsuited(Misfit):
    """Right in itself, but not for this task."""


class Typed:
    """Whatever has a type and bounds: a setting of a run, a flag of a command."""

    kind: Any
    bounds: tuple[Bound, ...]

    @property
    def choices(self) -> tuple[Any, ...]:
        """The known words, where the value can only be one of them."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def expected(self) -> str:
        """What fits, in words that stand after 'must be'."""
        return words_for(self.kind, self.bounds)

    def fit(self, value: Any) -> Any:
        """The value in its type; Misfit says what it must be."""
        try:
            return _fit(value, self.kind, self.bounds)
        except Misfit:
            text = f"must be {self.expected}, but is {show(value)}{self._hint(value)}"
            raise Misfit(text) from None

    def _hint(self, value: Any) -> str:
        word = str(value) if isinstance(value, (str, float)) else ""
        if word.strip().lower().lstrip("+-") in ("inf", "infinity", "nan"):
            return ", which is no finite number"
        if isinstance(value, str):
            words = [word for word in self.choices if isinstance(word, str)]
            near = get_close_matches(value, words, n=1)
            return f"; did you mean '{near[0]}'?" if near else ""
        scalar = not isinstance(value, (list, tuple, set, Mapping))
        return "; put it in quotes" if str in options_of(self.kind) and scalar else ""


def options_of(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _fit(value: Any, kind: Any, bounds: tuple[Bound, ...]) -> Any:
    for option in options_of(kind):
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
    elif kind is Path and isinstance(value, (str, Path)) and str(value).strip():
        return Path(value)
    elif get_origin(kind) is dict and isinstance(value, Mapping):
        return dict(value)
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


def words_for(kind: Any, bounds: tuple[Bound, ...]) -> str:
    limits = " and ".join(f"{bound.sign} {bound.limit}" for bound in bounds)
    words = {bool: "true or false", str: "text", NoneType: "null", Path: "a path"}
    parts = []
    for option in options_of(kind):
        items = get_args(option)
        if get_origin(option) is tuple:
            count = "" if items[-1] is Ellipsis else f" of {len(items)}"
            parts.append(f"a list{count}, each {words_for(items[0], bounds)}")
        elif get_origin(option) is Literal:
            parts.append(("one of " if len(items) > 1 else "") + ", ".join(map(str, items)))
        elif get_origin(option) is dict:
            parts.append("values by their keys")
        elif option in words:
            parts.append(words[option])
        else:
            parts.append(f"{'a whole' if option is int else 'a'} number {limits}".rstrip())
    return ", or ".join(parts)


class _Shown(reprlib.Repr):
    """Values in YAML's own words, cut short where they are long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_str(self, value: str, level: int) -> str:
        return super().repr_str(bounded(value), level)

    def repr_instance(self, value: Any, level: int) -> str:
        return bounded(repr(value))[: self.maxother]

    def repr_NoneType(self, value: None, level: int) -> str:
        return "null"

    def repr_bool(self, value: bool, level: int) -> str:
        return "true" if value else "false"

    def repr_date(self, value: Any, level: int) -> str:
        return str(value)

    repr_datetime = repr_date


_SHOWN = _Shown()


def show(value: Any) -> str:
    """A value as the user might have written it, without secrets, cut short where it is long."""
    try:
        return _SHOWN.repr(value)
    except ValueError:  # Python does not print a number of thousands of digits
        return "a number of too many digits"
