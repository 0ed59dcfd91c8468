"""Numbers and words as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model.cli.text import clock, short
from tuner.scoring.tables import plus

__all__ = [
    "Estimate",
    "clock",
    "count",
    "duration",
    "ends",
    "percent",
    "sentence",
    "short",
    "with_sign",
    "short_value",
]


@dataclass(frozen=True)
class Estimate:
    """A score with its 95 % interval, where there is one."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, value: float, interval: Sequence[float] | None) -> Estimate:
        return cls(float(value), *(interval or ()))


MINUS = "\N{MINUS SIGN}"


def ends(low: float | None, high: float | None) -> str:
    """[.701, .745], or nothing where there is no interval."""
    return "" if low is None or high is None else f"[{short(low)}, {short(high)}]"


def with_sign(value: float) -> str:
    """+.031, −.004, and .000 without a sign."""
    return plus(value).replace("-", MINUS)


def count(number: float) -> str:
    return f"{number:,.0f}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """2.4 s, 3 min 20 s, 5 h 12 min."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def sentence(text: str) -> str:
    """Take this. From: take this"""
    return text if not text else text[0].upper() + text[1:].rstrip(".") + "."


def short_value(value: Any) -> str:
    """A setting's value: three digits are enough to tell two trials apart."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(short_value(each) for each in value) + "]"
    return "-" if value is None else str(value)
