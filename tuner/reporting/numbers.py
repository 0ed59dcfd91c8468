"""Numbers and words as people read them."""

from __future__ import annotations

import math
from typing import Any

from model.console import clock, short

__all__ = [
    "clock",
    "count",
    "duration",
    "ends",
    "percent",
    "sentence",
    "short",
    "signed",
    "value_text",
]

MINUS = "\N{MINUS SIGN}"


def ends(low: float | None, high: float | None) -> str:
    """[.701, .745], or nothing where there is no interval."""
    return "" if low is None or high is None else f"[{short(low)}, {short(high)}]"


def signed(value: float) -> str:
    """+.031, −.004, and .000 without a sign."""
    text = f"{abs(value):.3f}".replace("0.", ".", 1)
    if float(text) == 0:
        return ".000"
    return (MINUS if value < 0 else "+") + text


def signed_ends(low: float, high: float) -> str:
    return f"[{signed(low)}, {signed(high)}]"


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


def value_text(value: Any) -> str:
    """A setting's value: three digits are enough to tell two trials apart."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(value_text(each) for each in value) + "]"
    return "-" if value is None else str(value)
