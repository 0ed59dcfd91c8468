"""Section 2, what mattered: importance, slices, parallel coordinates."""

from __future__ import annotations

from typing import Any

from tuner.report.importance.collect import EVALUATOR, Importance
from tuner.report.importance.draw import SLICES, draw_importance
from tuner.report.markup import join, note, paragraph, tag
from tuner.report.pieces import pictures
from tuner.report.section import Section


def mattered_section(importance: Importance, prefix: str) -> Section:
    parts: list[Any] = []
    if importance.why_not:
        parts.append(paragraph(importance.why_not))
    elif importance.few:
        parts.append(
            paragraph(
                f"With {importance.finished} finished trials for {len(importance.shares)} "
                "parameters this is a first hint and no more: another dozen trials may change "
                "the order."
            )
        )
    if importance.default:
        parts.append(
            note(
                "The default configuration, which finished too, is not counted: it is no part of "
                "the study, as nothing drew its values."
            )
        )
    if importance.shares and importance.stopped:
        parts.append(
            note(
                f"{importance.stopped} trials that were stopped early are left out: "
                "their scores are of shorter training."
            )
        )
    if importance.shares and importance.left_out:
        parts.append(
            note(
                f"Not in {EVALUATOR}, because not every finished trial has them or all "
                f"have the same value: {', '.join(importance.left_out)}."
            )
        )
    figures = draw_importance(importance, prefix)
    slices = [figure for figure in figures if "slice-" in figure.id]
    others = [figure for figure in figures if figure not in slices]
    lead = [figure for figure in others if figure.id.endswith("importance")]
    parts.append(pictures(lead))
    if slices:
        parts += [tag("h3", "Parameter by parameter"), pictures(slices)]
        if len(importance.ordered) > SLICES:
            parts.append(note(f"The {SLICES} most important of {len(importance.ordered)}."))
    parts.append(pictures([figure for figure in others if figure not in lead]))
    return Section(f"{prefix}mattered", "What mattered", join(parts))
