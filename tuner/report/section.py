"""A section of the page, and the cells that several of them show."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.report.markup import Html, join, tag, text
from tuner.report.numbers import Estimate, ends, short, signed_ends, with_sign
from tuner.scoring.crossfit import Difference


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
    interval = tag("span", signed_ends(difference.low, difference.high), class_="ends")
    return join(
        [
            tag("b", with_sign(difference.value)),
            " ",
            interval,
            " " if difference.tie else None,
            TIE if difference.tie else None,
        ]
    )
