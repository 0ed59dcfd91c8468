"""Pictures of the answer: all scores on one axis, and task by task."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.report.answer.collect import OTHER, SINGLE, BestAnswer, Contender
from tuner.report.figures import (
    BLUE,
    CLASSES,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    Figure,
    Json,
    axis,
    wrapped,
)
from tuner.report.numbers import Estimate, ends, short
from tuner.runs.state import DEFAULT, OVERALL
from tuner.soup.methods import BEST, GREEDY, PREDICTIONS

KINDS = {
    "single": ("one trial", BLUE, "circle"),
    "weights": ("soup: one model of averaged weights", GREEN, "diamond"),
    "predictions": ("ensemble: several models answer together", PURPLE, "square"),
    DEFAULT: ("default configuration", GREY, "circle-open"),
    OTHER: ("next best trials", SKY, "circle-open"),
}
HOW_INTERVALS = (
    "A mark is the score on dev, its bar the 95 % interval over the dev examples: where bars "
    "overlap widely, the order may be chance."
)


def draw_scores(answer: BestAnswer, prefix: str) -> Figure | None:
    """All contenders on one axis; published scores, where there are any, apart from them."""
    if not answer.contenders:
        return None
    shown = [*answer.contenders, *answer.runners_up]
    data = []
    for kind, (label, colour, symbol) in KINDS.items():
        of_kind = [each for each in shown if each.kind == kind]
        if of_kind:
            names = [wrapped(each.name) for each in of_kind]
            points = [each.score for each in of_kind]
            data.append(dots(label, names, points, colour, symbol))
    order = [wrapped(each.name) for each in shown]
    reading = HOW_INTERVALS
    papers = [(each, value) for each in answer.published if (value := each.dev or each.test)]
    if papers and answer.goal == OVERALL:
        names = [wrapped(f"{each.paper} ({'dev' if each.dev else 'test'})") for each, _ in papers]
        hollow = dots(
            "published, not measured here",
            names,
            [Estimate(v) for _, v in papers],
            ORANGE,
            "x-thin-open",
        )
        data.append(hollow)
        order += names
        reading += (
            " Crosses are scores as their papers give them: BERT-base, full data, no interval."
        )
    rows = sum(1 + name.count("<br>") for name in order)
    return Figure(
        f"{prefix}scores",
        "Scores and how sure they are",
        reading,
        data,
        {
            "xaxis": axis(_goal_axis(answer)),
            "yaxis": axis("", categoryorder="array", categoryarray=order[::-1]),
        },
        height=130 + 14 * rows + 16 * len(order),
    )


def _goal_axis(answer: BestAnswer) -> str:
    if answer.goal == OVERALL:
        return "overall score on dev"
    return f"{answer.goal} on dev ({answer.metrics[answer.goal]})"


def dots(
    label: str, names: Sequence[str], points: Sequence[Estimate], colour: str, symbol: str
) -> Json:
    high = [0.0 if p.high is None else p.high - p.value for p in points]
    low = [0.0 if p.low is None else p.value - p.low for p in points]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label,
        "x": [point.value for point in points],
        "y": list(names),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": high,
            "arrayminus": low,
            "color": colour,
            "thickness": 2,
            "width": 5,
        },
        "marker": {"color": colour, "size": 11, "symbol": symbol, "line": {"width": 2}},
        "text": [f"{short(p.value)} {ends(p.low, p.high)}" for p in points],
        "hovertemplate": "%{y}<br>%{text}<extra></extra>",
    }


def draw_tasks(answer: BestAnswer, prefix: str) -> Figure | None:
    """Every task's score of the contenders that matter most, a group of marks a task."""
    shown = [each for each in _told(answer) if each.tasks]
    if not shown:
        return None
    data = []
    for place, each in enumerate(shown):
        names = list(each.tasks)
        labels = [f"{name}<br>{answer.metrics.get(name, '')}" for name in names]
        points = [each.tasks[name] for name in names]
        ups = [0.0 if p.high is None else p.high - p.value for p in points]
        downs = [0.0 if p.low is None else p.value - p.low for p in points]
        data.append(
            {
                "type": "bar",
                "name": each.name,
                "x": labels,
                "y": [point.value for point in points],
                "marker": {"color": CLASSES[place]},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": ups,
                    "arrayminus": downs,
                    "color": INK,
                    "thickness": 1.5,
                    "width": 4,
                },
                "text": [f"{short(p.value)} {ends(p.low, p.high)}" for p in points],
                "textposition": "none",
                "hovertemplate": "%{fullData.name}<br>%{x}: %{text}<extra></extra>",
            }
        )
    return Figure(
        f"{prefix}tasks",
        "Task by task",
        "The height is the task's own metric on dev; the thin bar is its 95 % interval.",
        data,
        {"barmode": "group", "xaxis": axis("task and its metric"), "yaxis": axis("score on dev")},
    )


def _told(answer: BestAnswer) -> list[Contender]:
    """What is recommended, the best single, the greedy soup, the best ensemble, the default."""
    every = answer.contenders

    def first(fits: Callable[[Contender], bool]) -> list[Contender]:
        return [each for each in every if fits(each)][:1]

    found = [
        *first(lambda each: each.recommended),
        *(first(lambda each: each.name == BEST) or first(lambda each: each.kind == SINGLE)),
        *first(lambda each: each.name == GREEDY),
        *first(lambda each: each.kind == PREDICTIONS),  # they come best first
        *first(lambda each: each.kind == DEFAULT),
    ]
    return [each for place, each in enumerate(found) if each not in found[:place]]
