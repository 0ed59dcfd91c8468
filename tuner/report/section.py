"""A section of the page, and the cells that several of them show."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.report.markup import Html, join, tag, text
from tuner.report.numbers import MINUS, Estimate, ends, short
from tuner.scoring.crossfit import Difference
from tuner.scoring.tables import difference_parts


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    body: Html


TIE = Html('<span class="tie">a tie</span>')


def scored(score: Estimate | None) -> Html:
    if score is None:
        return text("-")
    interval = ends(score.low, score.high)
    return join([tag("b", short(score.value)), " ", tag("span", interval, class_="ends")])


def apart(difference: Difference | None) -> Html:
    if difference is None:
        return text("-")
    value, interval = (part.replace("-", MINUS) for part in difference_parts(difference))
    return join(
        [
            tag("b", value),
            " ",
            tag("span", interval, class_="ends"),
            " " if difference.tie else None,
            TIE if difference.tie else None,
        ]
    )
