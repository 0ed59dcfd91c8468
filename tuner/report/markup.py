"""HTML from Python values. Whatever is not made here is text, and is escaped."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any


class Html(str):
    """Markup made by this module; any other string is taken for text."""

    __slots__ = ()


VOID = {"br", "hr", "input", "meta"}


def text(value: Any) -> Html:
    return value if isinstance(value, Html) else Html(escape(str(value)))


def join(parts: Iterable[Any]) -> Html:
    return Html("".join(text(part) for part in parts if part is not None))


def tag(name: str, /, *inside: Any, **attributes: Any) -> Html:
    """`tag("a", "here", href="#x", class_="y")`; None and False leave an attribute out."""
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written.append(f" {key}" if value is True else f' {key}="{escape(str(value))}"')
    start = f"<{name}{''.join(written)}>"
    return Html(start) if name in VOID else Html(f"{start}{join(inside)}</{name}>")


def paragraph(*inside: Any, **attributes: Any) -> Html:
    return tag("p", *inside, **attributes)


def note(*inside: Any) -> Html:
    return tag("p", *inside, class_="note")


def code(text_: str) -> Html:
    return tag("pre", tag("code", text_), tabindex="0")


def folded(title: str, *inside: Any) -> Html:
    return tag("details", tag("summary", title), *inside)


@dataclass(frozen=True)
class Cell:
    """What is shown, and what a column is sorted by where that is something else."""

    shown: Any
    key: float | str | None = None
    class_: str | None = None


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    left: Collection[str] = (),
    texts: Collection[str] = (),
    search: str | None = None,
    hints: dict[str, str] | None = None,
    settings: Collection[str] = (),
    tall: bool = False,
) -> Html:
    """Columns are numbers, on the right, but those in `left`; `texts` are long and may wrap.

    `settings` are many, so on paper they are left out; `tall` puts intervals below their values.
    `search` names what is looked for, and gives the table a field for it. All can be sorted.
    """
    kinds = [
        ("text" if name in texts else "left" if name in left else "right")
        + (" setting" if name in settings else "")
        for name in header
    ]
    hints = hints or {}
    head = tag(
        "tr",
        *(
            tag("th", tag("button", name, type="button", title=hints.get(name)), class_=kind)
            for name, kind in zip(header, kinds, strict=True)
        ),
    )
    body = [
        tag("tr", *(_cell(value, kind) for value, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    whole = tag(
        "div",
        tag("table", tag("thead", head), tag("tbody", *body), class_="tall" if tall else None),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=search or "table",
    )
    if search is None:
        return whole
    field = tag(
        "label",
        tag("span", f"search {search}"),
        tag("input", type="search", placeholder="type to filter", autocomplete="off"),
        tag("output", f"{len(rows):,} of {len(rows):,}"),
        class_="search",
    )
    return tag("div", field, whole, class_="searchable")


def _cell(value: Any, kind: str) -> Html:
    cell = value if isinstance(value, Cell) else Cell(value)
    classes = " ".join(filter(None, [kind, cell.class_]))
    return tag("td", cell.shown, class_=classes, data_key=cell.key)


def facts(pairs: Iterable[tuple[str, Any]]) -> Html:
    """A short list of names and values."""
    items = [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs]
    return tag("dl", *items, class_="facts")


def data_script(identity: str, value: Any) -> Html:
    """Data for the page's script: inert, and nothing in it can end the element."""
    written = json.dumps(tidy(value), separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        written = written.replace(sign, f"\\u{ord(sign):04x}")
    return Html(f'<script type="application/json" id="{escape(identity)}">{written}</script>')


def tidy(value: Any) -> Any:
    """Plain values; numbers with as many digits as a picture shows, and no NaN."""
    if isinstance(value, dict):
        return {str(key): tidy(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return tidy(value.tolist())
    return value
