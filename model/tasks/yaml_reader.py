"""The YAML reader of task files and search spaces: a mapping's values, whatever they are.

Every fault is noted on the way, so that all of a file's come at once.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from model.common.errors import suggest
from model.common.files import Document
from model.common.secrets import bounded
from model.common.typed import show


class YamlSection:
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
                name = plain_text(key)
                self.fault(f"'{name}' is not a setting; {suggest(name, known)}", name)

    def part(self, key: str, what: str) -> YamlSection | None:
        if key not in self.data:
            self.fault(f"'{key}' is missing; give {what}")
        elif not isinstance(self.data[key], dict):
            self.fault(f"'{key}' must be {what}, but is {show(self.data[key])}", key)
        else:
            return YamlSection(self.document, (*self.key, key), self.data[key], self.faults)
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

    def one_of(
        self,
        key: str,
        known: tuple[str, ...],
        default: str | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> str | None:
        """`hints`: what is said of words that are none of them, but are often tried."""
        value = self.word(key, default)
        if value is None or value in known:
            return value
        remedy = (hints or {}).get(value) or suggest(value, known)
        self.fault(f"'{key}' is {show(value)}; {remedy}", key)
        return None

    def number(self, key: str, default: float) -> float | None:
        value = as_number(self.data.get(key, default))
        if value is None or value < 0:
            found = show(self.data[key])
            self.fault(f"'{key}' must be a number, 0 or more, but is {found}", key)
            return None
        return value


def by_line(faults: Iterable[str]) -> list[str]:
    """In the order of the file; those of no line come last."""

    def line(fault: str) -> int:
        found = re.match(r"line (\d+): ", fault)
        return int(found[1]) if found else sys.maxsize

    return sorted(faults, key=line)


def as_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer too long for a float
        return None


def plain_text(value: Any) -> str:
    try:
        text = bounded(str(value))
    except ValueError:  # an integer of more digits than Python will print
        text = "a very long number"
    return text if len(text) <= 60 else f"{text[:57]}..."
