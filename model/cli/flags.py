"""One table of flags: a dataclass whose annotations say what each field takes and what it means.

    num_samples: Annotated[int, AtLeast(1), Flag("Trials to run.", "how to search", "N")] = 8

The parser's flags, their help with the defaults, the checks of values, and what Python's callers
may give all follow from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, reduce
from operator import or_
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from model.common.errors import InputError, PartlyRead
from model.common.typed import Bound, Misfit, Typed, options_of

T = TypeVar("T")


@dataclass(frozen=True)
class Flag:
    """What a flag says of itself, beside its type, its bounds and its default."""

    help: str
    group: str
    metavar: str | None = None
    default: str = ""  # in words, where the value does not tell
    short: str | None = None
    free: bool = False  # may be another when a run goes on
    read: Callable[[Any], Any] = lambda value: value  # how it is written -> what it means
    write: Callable[[Any], list[str]] | None = None  # back: one text for each time it is typed


@dataclass(frozen=True)
class TypedFlag(Typed):
    name: str  # of the field
    kind: Any  # without None
    bounds: tuple[Bound, ...]
    default: Any
    flag: Flag

    @property
    def text(self) -> str:
        """What is typed; a field that is true by itself is turned off."""
        return ("--no-" if self.default is True else "--") + self.name.replace("_", "-")

    @property
    def help(self) -> str:
        default = self.flag.default or ("" if self.kind is bool else self.written(self.default))
        text = self.flag.help
        return f"{text.removesuffix('.')} (default: {default})." if default else text

    def fit(self, value: Any) -> Any:
        if value is None and self.default is None:
            return None
        return super().fit(self.flag.read(value))

    def faults(self, value: Any) -> list[str]:
        try:
            self.fit(value)
        except Misfit as misfit:
            return [f"{self.text} {misfit}"]
        except InputError as error:
            return [f"{error.where}: {fault}" for fault in error.faults]
        return []

    def mended(self, value: Any) -> Any:
        """In place of one that does not fit: what of it could be read, or else the default."""
        try:
            return self.fit(value)
        except PartlyRead as partly:
            return partly.value
        except (Misfit, InputError):
            return self.default

    def written(self, value: Any) -> str:
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        return f"{value:g}" if isinstance(value, float) else str(value)

    def arguments(self, value: Any) -> list[str]:
        """What is typed for this value."""
        if self.kind is bool:
            return [self.text]
        texts = self.flag.write(value) if self.flag.write else [self.written(value)]
        return [word for text in texts for word in (self.text, text)]

    def shown(self, value: Any) -> Any:
        """A value as the flag means it."""
        return not value if self.default is True else value

    def add_to(self, group: Any) -> None:
        """Only flags that are given come into the namespace. Values are read by `fit`, not here,
        so that all that is wrong with them can be told at once."""
        names = [self.text] if self.flag.short is None else [self.flag.short, self.text]
        given: dict[str, Any] = {"dest": self.name, "default": argparse.SUPPRESS, "help": self.help}
        if self.kind is bool:
            group.add_argument(*names, action="store_const", const=not self.default, **given)
        else:
            metavar = f"{{{','.join(self.choices)}}}" if self.choices else self.flag.metavar
            action = "append" if get_origin(self.kind) is dict else "store"
            group.add_argument(*names, action=action, metavar=metavar, **given)


@cache
def flags_of(table: type) -> dict[str, TypedFlag]:
    """Of the fields that have one, by their names."""
    hints = get_type_hints(table, include_extras=True)
    found = {}
    for item in fields(table):
        kind, *notes = get_args(hints[item.name]) or (None,)
        bounds = tuple(note for note in notes if isinstance(note, Bound))
        kinds = [option for option in options_of(kind) if option is not NoneType]
        for flag in (note for note in notes if isinstance(note, Flag)):
            default = item.default_factory() if callable(item.default_factory) else item.default
            found[item.name] = TypedFlag(item.name, reduce(or_, kinds), bounds, default, flag)
    return found


def given_for(table: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is given, what is this table's."""
    return {name: given[name] for name in flags_of(table) if name in given}


def settle(given: object) -> None:
    """Each value in its type. What does not fit stays as it is, for `faults_of` to tell."""
    table: type = type(given)
    for name, flag in flags_of(table).items():
        if not flag.faults(value := getattr(given, name)):
            object.__setattr__(given, name, flag.fit(value))


def faults_of(table: type, given: Mapping[str, Any]) -> list[str]:
    """All that is wrong with the values that are given for its fields."""
    flags = flags_of(table)
    return [fault for name in flags if name in given for fault in flags[name].faults(given[name])]


def sound(given: T) -> T:
    """The same with what does not fit mended as far as can be, for further checks to go on."""
    table: type = type(given)
    flags = flags_of(table).items()
    unfit = {n: flag.mended(v) for n, flag in flags if flag.faults(v := getattr(given, n))}
    return replace(given, **unfit)  # type: ignore[type-var]
