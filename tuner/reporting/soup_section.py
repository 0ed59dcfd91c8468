"""Section 4, the soup: its ingredients, and what each step brought."""

from __future__ import annotations

from typing import Any

from tuner.reporting.draw_answer import draw_soup
from tuner.reporting.markup import (
    Cell,
    Html,
    join,
    note,
    paragraph,
    table,
    tag,
)
from tuner.reporting.numbers import (
    duration,
    short,
)
from tuner.reporting.pieces import pictures
from tuner.reporting.run import Run
from tuner.reporting.section import Section
from tuner.reporting.soup_file import Soup


def soup_section(run: Run, prefix: str) -> Section:
    soup = run.soup
    title = "The soup"
    if soup is None:
        command = f"python -m tuner.soup {run.shown}"
        body = paragraph(
            "No soup has been cooked of this run yet. ",
            tag("code", command),
            " averages the weights of its best checkpoints, and this page then says "
            "which were taken.",
        )
        return Section(f"{prefix}soup", title, body)
    taken = [step for step in soup.steps if step.accepted]
    lead = (
        f"{len(taken)} of {len(soup.steps)} ingredients went into the greedy soup"
        if soup.steps
        else "No ingredient was tried"
    )
    parts: list[Any] = [paragraph(f"{lead}, of {soup.candidates} candidates{_spent(soup)}.")]
    parts.append(pictures(draw_soup(soup, prefix)))
    parts.append(_steps(soup))
    if len(soup.groups) > 1:
        sizes = ", ".join(str(len(group)) for group in soup.groups)
        parts.append(
            note(
                f"Only checkpoints with the same tensors can be averaged: there are "
                f"{len(soup.groups)} groups, of {sizes}; the first was cooked."
            )
        )
    if soup.skipped:
        rows = [[each.get("name", "?"), each.get("reason", "")] for each in soup.skipped]
        parts += [
            tag("h3", "Left out"),
            table(["checkpoint", "reason"], rows, left={"checkpoint"}, texts={"reason"}),
        ]
    return Section(f"{prefix}soup", title, join(parts))


def _spent(soup: Soup) -> str:
    """Evaluations in the time that those took which were run."""
    if soup.evaluations is None:
        return ""
    ran = soup.evaluations if soup.ran is None else soup.ran
    known = round(soup.evaluations - ran, 2)
    said = f"{ran:g} evaluations" + (f" in {duration(soup.seconds)}" if soup.seconds else "")
    return f" ({said}{f', {known:g} known before' if known else ''})"


def _steps(soup: Soup) -> Html | None:
    if not soup.steps:
        return None
    alone = {each.get("name"): each for each in soup.ingredients}
    rows = []
    for number, step in enumerate(soup.steps, 1):
        own = alone.get(step.ingredient, {})
        rows.append(
            [
                number,
                step.ingredient,
                short(own.get("score")),
                short(step.score),
                short(step.best),
                Cell(
                    "accepted" if step.accepted else "refused",
                    None,
                    "good" if step.accepted else "bad",
                ),
                "-" if step.distance is None else f"{step.distance:.3g}",
            ]
        )
    header = ["", "ingredient", "alone", "soup with it", "had to beat", "verdict", "distance"]
    return table(
        header,
        rows,
        left={"ingredient", "verdict"},
        hints={"distance": "of the weights from the best one's, as a share"},
    )
