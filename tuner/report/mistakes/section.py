"""The section on what the model gets wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.report.markup import Cell, Html, join, note, paragraph, table, tag
from tuner.report.mistakes.collect import MOST_CLASSES, WORST, Mistake, Mistakes, TaskResult
from tuner.report.mistakes.draw import BY_LABEL, BY_PREDICTION, draw_cloud, draw_result
from tuner.report.mistakes.vectors import Cloud
from tuner.report.pieces import pictures, switch
from tuner.report.section import Section

PAIRS = 10  # of classes that are confused most, where there are too many for a picture


def mistakes_section(
    mistakes: Mistakes, clouds: list[Cloud], no_clouds: str, prefix: str
) -> Section:
    parts: list[Any] = []
    if mistakes.subject is not None:
        rows = ", ".join(
            f"{len(each.answers.ids):,} of {each.task.name}" for each in mistakes.results
        )
        parts.append(
            paragraph(
                "The answers of ",
                tag("b", mistakes.subject.name),
                f" on the dev examples ({rows})." if rows else ".",
            )
        )
    parts += [note(line) for line in mistakes.notes]
    figures = [draw_result(result, prefix) for result in mistakes.results]
    parts.append(pictures([figure for figure in figures if figure is not None]))
    parts += [
        _confused(each)
        for each in mistakes.results
        if each.confusion is not None and each.task.classes > MOST_CLASSES
    ]
    if mistakes.worst:
        parts += [
            tag("h3", "The worst errors"),
            note(
                f"Up to {WORST} of each task: wrong answers of the highest confidence, or the "
                "largest errors. Labels can be wrong too, and this is where it shows."
            ),
            _worst(mistakes.worst),
        ]
    parts.append(_clouds(mistakes, clouds, no_clouds, prefix))
    return Section(f"{prefix}wrong", "What it gets wrong", join(parts))


def _worst(worst: list[Mistake]) -> Html:
    rows = [
        [
            each.task,
            _sentences(each),
            each.true,
            each.said,
            Cell(each.how, each.size),
            each.id,
        ]
        for each in worst
    ]
    header = ["task", "sentence", "true", "predicted", "error", "id"]
    left = {"task", "true", "predicted", "error", "id"}
    return table(header, rows, left=left, texts={"sentence"}, search="errors")


def _sentences(mistake: Mistake) -> Html:
    if not mistake.sentences:
        return tag("i", "not there")
    return join(tag("span", sentence, class_="sentence") for sentence in mistake.sentences)


def _confused(result: TaskResult) -> Html:
    """With very many classes: which are taken for which most often."""
    assert result.confusion is not None
    off = result.confusion.copy()
    np.fill_diagonal(off, 0)
    order = np.argsort(-off, axis=None, kind="stable")[:PAIRS]
    cells = [divmod(int(place), len(off)) for place in order]
    names = result.names
    rows = [
        [names[true], names[said], int(off[true, said])] for true, said in cells if off[true, said]
    ]
    return join(
        [
            tag("h3", f"{result.task.name}: confused most"),
            table(["true", "predicted", "examples"], rows, left={"true", "predicted"}),
        ]
    )


def _clouds(mistakes: Mistakes, clouds: list[Cloud], why_not: str, prefix: str) -> Html:
    if not clouds:
        return note(why_not)
    count = sum(len(cloud.rows) for cloud in clouds)
    figures = [figure for cloud in clouds for figure in draw_cloud(cloud, prefix)]
    owner, subject = clouds[0].owner, mistakes.subject
    instead = "" if subject is None or subject.name == owner else f", as {subject.name} has none"
    return join(
        [
            tag("h3", "How the model sees the examples"),
            paragraph(
                f"{count:,} dev examples as the vectors that each task's head is given, laid out "
                "in two dimensions. Point at one to read it. The vectors are those of ",
                tag("b", owner),
                f"{instead}.",
            ),
            switch("colour by", (BY_LABEL, BY_PREDICTION)),
            pictures(figures),
        ]
    )
