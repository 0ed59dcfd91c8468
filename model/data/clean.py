"""The rules by which text is cleaned before anything else sees it."""

from __future__ import annotations

import re
from collections.abc import Callable

_MARKS = re.compile(r"([.?,'])")


def lower(text: str) -> str:
    """CS224N's rule for single sentences."""
    return text.lower().strip()


def spaced(text: str) -> str:
    """CS224N's rule for pairs: a space before . ? , and ', and single spaces everywhere."""
    return " ".join(_MARKS.sub(r" \1", text.lower()).split())


def none(text: str) -> str:
    return text


CLEAN: dict[str, Callable[[str], str]] = {"none": none, "lower": lower, "spaced": spaced}
