"""A picture: plotly's data and layout, with the sentence that says how to read it.

Colours are names that the page's script looks up when it draws, because a page is light, dark or
on paper. They are Okabe and Ito's, which people with any colour vision can tell apart.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

INK, FAINT, PAPER = "@ink@", "@faint@", "@paper@"
BLUE, ORANGE, GREEN, RED = "@blue@", "@orange@", "@green@", "@red@"
PURPLE, SKY, GREY = "@purple@", "@sky@", "@grey@"
CLASSES = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, GREY)
SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "star", "x")
# From little to much; lightness alone carries it, so it survives any colour vision and a printer.
# It goes only so far that text in INK can be read on all of it.
AMOUNT = [[0, "@low@"], [1, "@high@"]]
# For numbers on points and lines: the middle of plasma. Of its ends one would be lost on a light
# page and the other on a dark one; lightness alone still tells the order.
SCALE = [[0, "rgb(143, 16, 161)"], [0.5, "rgb(203, 71, 120)"], [1, "rgb(241, 132, 76)"]]


@dataclass(frozen=True)
class Figure:
    id: str
    title: str
    reading: str  # how to read it
    data: list[Json]
    layout: Json = field(default_factory=dict)
    height: int = 340
    size: str = "full"  # full, half (two beside each other) or wide (scrolls on a phone)
    switch: tuple[str, ...] = ()  # names of groups of traces of which one is shown


def axis(title: str, **more: Any) -> Json:
    return {"title": {"text": title}, "automargin": True, **more}


def class_style(place: int) -> Json:
    """The look of the class of this number: another colour, then another symbol."""
    turn, colour = divmod(place, len(CLASSES))
    return {"color": CLASSES[colour], "symbol": SYMBOLS[(place + turn) % len(SYMBOLS)]}


def wrapped(label: str) -> str:
    return "<br>".join(textwrap.wrap(label, 30)) or label


KNOWN = re.compile(r"<(?!(?:br|extra|/extra)>)")


def tame(value: Any) -> Any:
    """Plotly draws some tags in text. Only those that this package writes are left."""
    if isinstance(value, str):
        return KNOWN.sub("&lt;", value)
    if isinstance(value, dict):
        return {key: tame(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [tame(each) for each in value]
    return value
