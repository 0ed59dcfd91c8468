"""Pictures of the answer, of the soup, and of several runs beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.dev_predictions import OVERALL
from tuner.methods import BEST, GREEDY, PREDICTIONS
from tuner.reporting.answer import OTHER, SINGLE, Answer, Contender
from tuner.reporting.compare import Comparison
from tuner.reporting.figures import (
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
from tuner.reporting.numbers import ends, short
from tuner.reporting.soup_file import Score, Soup
from tuner.summary import DEFAULT

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


def draw_scores(answer: Answer, prefix: str) -> Figure | None:
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
            data.append(_dots(label, names, points, colour, symbol))
    order = [wrapped(each.name) for each in shown]
    reading = HOW_INTERVALS
    papers = [(each, value) for each in answer.published if (value := each.dev or each.test)]
    if papers and answer.goal == OVERALL:
        names = [wrapped(f"{each.paper} ({'dev' if each.dev else 'test'})") for each, _ in papers]
        hollow = _dots(
            "published, not measured here",
            names,
            [Score(v) for _, v in papers],
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


def _goal_axis(answer: Answer) -> str:
    if answer.goal == OVERALL:
        return "overall score on dev (0 to 1)"
    return f"{answer.goal} on dev ({answer.metrics[answer.goal]})"


def _dots(
    label: str, names: Sequence[str], points: Sequence[Score], colour: str, symbol: str
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


def draw_tasks(answer: Answer, prefix: str) -> Figure | None:
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


def _told(answer: Answer) -> list[Contender]:
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


def draw_soup(soup: Soup, prefix: str) -> list[Figure]:
    if not soup.steps:
        return []
    numbers = list(range(1, len(soup.steps) + 1))
    best, marks = None, []
    for step in soup.steps:
        best = step.score if step.accepted else best
        marks.append(best if best is not None else step.score)
    data: list[Json] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "score of the soup",
            "x": numbers,
            "y": marks,
            "line": {"shape": "hv", "color": GREY, "width": 2},
            "hoverinfo": "skip",
        }
    ]
    for taken, label, colour, symbol in (
        (True, "accepted", GREEN, "circle"),
        (False, "refused", ORANGE, "x"),
    ):
        steps = [(n, s) for n, s in zip(numbers, soup.steps, strict=True) if s.accepted is taken]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label,
                "x": [number for number, _ in steps],
                "y": [step.score for _, step in steps],
                "text": [step.ingredient for _, step in steps],
                "marker": {"color": colour, "symbol": symbol, "size": 11},
                "hovertemplate": "%{text}<br>with it: %{y:.3f}<extra>" + label + "</extra>",
            }
        )
    whole = axis("ingredient, in the order it was tried", dtick=1 if len(numbers) <= 20 else None)
    found = [
        Figure(
            f"{prefix}soup-steps",
            "The greedy soup, ingredient by ingredient",
            "Each mark is the score of the soup with that ingredient. It is accepted if that beats "
            "the soup without it, and the line follows what was accepted.",
            data,
            {"xaxis": whole, "yaxis": axis("score on dev")},
            size="half",
        )
    ]
    far = [(n, s) for n, s in zip(numbers, soup.steps, strict=True) if s.distance is not None]
    if far:
        bars = {
            "type": "bar",
            "x": [number for number, _ in far],
            "y": [step.distance for _, step in far],
            "text": [step.ingredient for _, step in far],
            "textposition": "none",
            "marker": {"color": [GREEN if step.accepted else ORANGE for _, step in far]},
            "hovertemplate": "%{text}<br>distance %{y:.3g}<extra></extra>",
        }
        found.append(
            Figure(
                f"{prefix}soup-distance",
                "How far the ingredients are from the best",
                "The length of the difference of the weights, as a share of the best one's own "
                "length. Those far away lie in another valley, and averages with them score "
                "badly.",
                [bars],
                {
                    "xaxis": whole,
                    "yaxis": axis("distance of the weights (share)"),
                    "showlegend": False,
                },
                size="half",
            )
        )
    return found


def draw_comparison(comparison: Comparison) -> list[Figure]:
    known = [(side, side.best) for side in comparison.sides if side.best is not None]
    if not known:
        return []
    names = [wrapped(side.name) for side, _ in known]
    points = [best.overall or best.score for _, best in known]
    dots = _dots("best trial", names, points, BLUE, "circle")
    lines = []
    for place, (side, _) in enumerate(known):
        reports = [
            e for e in side.run.state.reports if not side.run.state.trials[e["trial"]].is_repeat
        ]
        seen: dict[str, int] = {}
        x, y, best = [], [], 0.0
        for report in reports:
            seen[report["trial"]] = int(report["examples"])
            best = max(best, float(report["score"]))
            x.append(sum(seen.values()))
            y.append(best)
        lines.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": side.name,
                "x": x,
                "y": y,
                "line": {
                    "shape": "hv",
                    "width": 2.5,
                    "color": CLASSES[place % len(CLASSES)],
                    "dash": ("solid", "dash", "dot", "dashdot")[place % 4],
                },
                "hovertemplate": "%{x:,} examples: %{y:.3f}<extra>%{fullData.name}</extra>",
            }
        )
    return [
        Figure(
            "compare-scores",
            "The best of each run",
            HOW_INTERVALS,
            [dots],
            {
                "xaxis": axis("overall score on dev (0 to 1)"),
                "yaxis": axis("", autorange="reversed"),
                "showlegend": False,
            },
            height=150 + 40 * len(known),
            size="half",
        ),
        Figure(
            "compare-progress",
            "What the examples bought",
            "Each line is the best evaluation so far of one run. Higher for the same number of "
            "examples is the better search; the best of many is a little flattered.",
            lines,
            {
                "xaxis": axis("examples trained by all trials"),
                "yaxis": axis("best overall score on dev"),
            },
            size="half",
        ),
    ]
