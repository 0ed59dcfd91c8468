"""Section 4, the soup: its ingredients, and what each step brought."""

from __future__ import annotations

from typing import Any

from model.cli.invocation import command
from tuner.report.markup import Cell, Html, join, note, paragraph, table, tag
from tuner.report.numbers import duration, short
from tuner.report.pieces import pictures
from tuner.report.run import ReportedRun
from tuner.report.section import Section
from tuner.report.soup.draw import draw_soup
from tuner.soup.record import SoupRecord


def soup_section(run: ReportedRun, prefix: str) -> Section:
    soup = run.soup
    title = "The soup"
    if soup is None:
        body = paragraph(
            "This run has no soup yet. ",
            tag("code", command("soup", run.shown)),
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
                f"{len(soup.groups)} groups, of {sizes}; the soup is made of the first."
            )
        )
    if soup.skipped:
        rows = [[each.name, each.reason] for each in soup.skipped]
        parts += [
            tag("h3", "Left out"),
            table(["checkpoint", "reason"], rows, left={"checkpoint"}, texts={"reason"}),
        ]
    return Section(f"{prefix}soup", title, join(parts))


def _spent(soup: SoupRecord) -> str:
    """Evaluations in the time that those took which were run."""
    known = max(0, round(soup.evaluations - soup.ran, 2))
    said = f"{soup.ran:g} evaluations in {duration(soup.seconds)}"
    return f" ({said}{f', {known:g} known before' if known else ''})"


def _steps(soup: SoupRecord) -> Html | None:
    if not soup.steps:
        return None
    alone = {each.name: each.score for each in soup.ingredients}
    rows = []
    for number, step in enumerate(soup.steps, 1):
        rows.append(
            [
                number,
                step.ingredient,
                short(alone.get(step.ingredient)),
                short(step.score),
                short(step.best),
                Cell(
                    "kept" if step.accepted else "left out",
                    None,
                    "good" if step.accepted else "bad",
                ),
                "-" if step.distance is None else f"{step.distance:.3g}",
            ]
        )
    header = ["", "ingredient", "alone", "soup with it", "score to beat", "verdict", "distance"]
    return table(
        header,
        rows,
        left={"ingredient", "verdict"},
        hints={"distance": "of the weights from the best one's, as a share"},
    )
