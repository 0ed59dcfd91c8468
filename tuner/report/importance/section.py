"""Section 2, what mattered: importance, slices, parallel coordinates."""

from __future__ import annotations

from typing import Any

from tuner.report.importance.collect import EVALUATOR, Importance
from tuner.report.importance.draw import SLICES, draw_importance
from tuner.report.markup import Cell, Html, join, note, paragraph, table, tag
from tuner.report.numbers import percent
from tuner.report.pieces import pictures
from tuner.report.section import Section


def mattered_section(importance: Importance, prefix: str) -> Section:
    parts: list[Any] = []
    if importance.why_not:
        parts.append(paragraph(importance.why_not))
    elif importance.few:
        parts.append(
            paragraph(
                f"With {len(importance.compared)} configurations for {len(importance.shares)} "
                "parameters this is a first hint and no more: another dozen may change the order."
            )
        )
    if importance.shares and importance.left_out:
        parts.append(
            note(
                f"Not in {EVALUATOR}, because not every trial has them or all "
                f"have the same value: {', '.join(importance.left_out)}."
            )
        )
    figures = draw_importance(importance, prefix)
    slices = [figure for figure in figures if "slice-" in figure.id]
    others = [figure for figure in figures if figure not in slices]
    lead = [figure for figure in others if figure.id.endswith("importance")]
    parts.append(pictures(lead))
    if importance.tasks:
        parts.append(_by_task(importance))
    if slices:
        parts += [tag("h3", "Parameter by parameter"), note(SLICE), pictures(slices)]
        if len(importance.ordered) > SLICES:
            parts.append(note(f"The {SLICES} most important of {len(importance.ordered)}."))
    parts.append(pictures([figure for figure in others if figure not in lead]))
    return Section(f"{prefix}mattered", "What mattered", join(parts))


SLICE = (
    "Every configuration at its value and its score after the same training. Those with filled "
    "dots were then trained in full, those with hollow ones were pruned."
)


def _by_task(importance: Importance) -> Html:
    tasks = list(importance.tasks)
    rows = [
        [
            key,
            Cell(percent(share), share),
            *(Cell(percent(of := importance.tasks[task].get(key, 0.0)), of) for task in tasks),
        ]
        for key, share in importance.shares.items()
    ]
    return join(
        [
            tag("h3", "What mattered for each task"),
            table(["parameter", importance.target, *tasks], rows, left={"parameter"}),
            note("The share of each task's own differences in score that goes with a parameter."),
        ]
    )
