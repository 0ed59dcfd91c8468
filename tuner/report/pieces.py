"""Pictures on the page, and the switch between two views of them."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.report.figures import Figure, tame
from tuner.report.markup import Html, data_script, join, tag


def picture(figure: Figure) -> Html:
    """Its place and its data; the page's script draws it when it comes near."""
    plot = tag(
        "div",
        class_="plot",
        id=figure.id,
        role="img",
        aria_label=f"{figure.title}. {figure.reading}",
        style=f"height:{figure.height}px",
    )
    held = tag("div", plot, class_="scroll", tabindex="0") if figure.size == "wide" else plot
    body = {"data": tame(figure.data), "layout": tame(figure.layout), "switch": figure.switch}
    return tag(
        "figure",
        tag("h4", figure.title),
        held,
        tag("figcaption", figure.reading),
        data_script(f"{figure.id}-data", body),
        class_=figure.size,
    )


def pictures(figures: Sequence[Figure]) -> Html:
    if not figures:
        return Html("")
    return tag("div", join(picture(figure) for figure in figures), class_="pictures")


def switch(title: str, names: Sequence[str]) -> Html:
    """Buttons of which one is down; they act on the pictures that have such groups."""
    buttons = [
        tag("button", name, type="button", data_view=name, aria_pressed=str(not place).lower())
        for place, name in enumerate(names)
    ]
    return tag("div", tag("span", title), *buttons, class_="switch", role="group")
