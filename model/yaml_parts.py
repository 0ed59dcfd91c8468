"""The YAML reader of task files and search spaces: a mapping's values, whatever they are.

Every fault is noted on the way, so that all of a file's come at once.
"""

from __future__ import annotations

import math
import reprlib
from typing import Any

from model.errors import suggest
from model.files import Document


class Part:
    """One mapping of the file, with the readers of its values; faults gather in one list."""

    def __init__(
        self, document: Document, key: tuple[str, ...], data: dict[Any, Any], faults: list[str]
    ) -> None:
        self.document, self.key, self.data, self.faults = document, key, data, faults

    def fault(self, message: str, *key: str) -> None:
        task = f"{self.key[1]}: " if len(self.key) > 1 else ""
        self.faults.append(f"{self.document.at(*self.key, *key)}{task}{message}")

    def refuse_unknown(self, known: set[str]) -> None:
        for key in self.data:
            if key not in known:
                name = plain(key)
                self.fault(f"'{name}' is not a setting; {suggest(name, known)}", name)

    def part(self, key: str, what: str) -> Part | None:
        if key not in self.data:
            self.fault(f"'{key}' is missing; give {what}")
        elif not isinstance(self.data[key], dict):
            self.fault(f"'{key}' must be {what}, but is {show(self.data[key])}", key)
        else:
            return Part(self.document, (*self.key, key), self.data[key], self.faults)
        return None

    def word(self, key: str, default: str | None = None) -> str | None:
        """A text that is not blank; None, with the fault noted, where it is not one."""
        value = self.data.get(key, default)
        if key not in self.data and default is None:
            self.fault(f"'{key}' is missing")
        elif isinstance(value, str) and (value.strip() or key not in self.data):
            return value
        elif key in self.data:
            self.fault(f"'{key}' must be text, but is {show(value)}", key)
        return None

    def one_of(self, key: str, known: tuple[str, ...], default: str | None = None) -> str | None:
        value = self.word(key, default)
        if value is None or value in known:
            return value
        self.fault(f"'{key}' is {show(value)}; {suggest(value, known)}", key)
        return None

    def number(self, key: str, default: float) -> float | None:
        value = as_number(self.data.get(key, default))
        if value is None or value < 0:
            found = show(self.data[key])
            self.fault(f"'{key}' must be a number, 0 or more, but is {found}", key)
            return None
        return value


def as_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer too long for a float
        return None


def plain(value: Any) -> str:
    try:
        text = str(value)
    except ValueError:  # an integer of more digits than Python will print
        text = "a very long number"
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Shown(reprlib.Repr):
    """Values in YAML's own words, cut short where they are long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_NoneType(self, value: None, level: int) -> str:
        return "null"

    def repr_bool(self, value: bool, level: int) -> str:
        return "true" if value else "false"

    def repr_date(self, value: Any, level: int) -> str:
        return str(value)

    repr_datetime = repr_date


_SHOWN = _Shown()


def show(value: Any) -> str:
    """A value as the user might have written it, cut short where it is long."""
    try:
        return _SHOWN.repr(value)
    except ValueError:  # Python does not print a number of thousands of digits
        return "a number of too many digits"
