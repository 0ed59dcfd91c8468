"""Optuna's own pictures of a study, in the page's colours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import optuna.visualization as pictures
from optuna.distributions import CategoricalDistribution
from optuna.importance import BaseImportanceEvaluator
from plotly.colors import sample_colorscale  # type: ignore[import-untyped,unused-ignore]

from tuner.engine.conclusions import Effect
from tuner.engine.study import quiet
from tuner.report.figures import BLUE, INK, ORANGE, PAPER, SCALE, Figure, Json, axis
from tuner.report.importance.collect import (
    EVALUATOR,
    FULL,
    PRUNED,
    Importance,
    ScoredPoint,
    study_of,
)
from tuner.report.numbers import short_value
from tuner.runs.state import DEFAULT
from tuner.space.domains import is_number

SLICES = 12  # parameters that have a picture of their own
COORDINATES = 8  # axes that can be told apart
NARROWEST = 0.02  # of an axis of scores
EFFECTS, EFFECT_TASKS = 6, 6  # rows and columns of the small multiples


def draw_importance(importance: Importance, prefix: str) -> list[Figure]:
    found: list[Figure] = []
    if importance.shares:
        found.append(_shares(importance, prefix))
    if len(importance.points) < 2 or not importance.ordered:
        return found
    found += [
        figure
        for place, key in enumerate(importance.ordered[:SLICES])
        if (figure := _slice(importance, key, f"{prefix}slice-{place}")) is not None
    ]
    found += [
        figure
        for figure in (
            _effects(importance, prefix),
            _parallel(importance, prefix),
            _contour(importance, prefix),
        )
        if figure is not None
    ]
    return found


class Known(BaseImportanceEvaluator):
    """What was computed already, for a picture that would compute it again."""

    def __init__(self, shares: dict[str, float]) -> None:
        self.shares = shares

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        return self.shares


def _optuna(importance: Importance, draw: Callable[..., Any], **options: Any) -> Json | None:
    """The figure as plain data, without Optuna's title, size and template; None if it has none."""
    points = importance.compared
    study = study_of(importance, points, [point.score for point in points])
    with quiet():
        try:
            made = draw(study, target_name=importance.target, **options)
        except (ValueError, RuntimeError):  # nothing to draw, as Optuna says it
            return None
    figure = json.loads(made.to_json())
    for key in ("template", "title", "width", "height"):
        figure["layout"].pop(key, None)
    return unquoted(figure) if figure["data"] else None


def unquoted(value: Any) -> Any:
    """Optuna shows a choice that is text as Python writes it; readers know it without quotes."""
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1]
    if isinstance(value, dict):
        return {key: unquoted(each) for key, each in value.items()}
    return [unquoted(each) for each in value] if isinstance(value, list) else value


def _shares(importance: Importance, prefix: str) -> Figure:
    figure = _optuna(
        importance,
        pictures.plot_param_importances,
        evaluator=Known(importance.shares),
        params=list(importance.shares),
    )
    reading = (
        f"The share of the differences in score that goes with each parameter ({EVALUATOR} over "
        f"{len(importance.compared)} configurations, scored after about {importance.examples:,} "
        "examples; all together are 1)."
    )
    if figure is None:
        figure = {"data": [], "layout": {}}
    for trace in figure["data"]:
        trace["marker"] = {"color": BLUE}
        trace["textposition"] = "none" if importance.spread else "auto"
        names = [str(name) for name in trace["y"]]
        if all(name in importance.spread for name in names) and names:
            values, spread = trace["x"], [importance.spread[name] for name in names]
            trace["error_x"] = {
                "type": "data",
                "symmetric": False,
                "array": [max(0, high - v) for v, (_, high) in zip(values, spread, strict=True)],
                "arrayminus": [max(0, v - low) for v, (low, _) in zip(values, spread, strict=True)],
                "color": INK,
                "thickness": 1.5,
                "width": 4,
            }
    if importance.spread:
        reading += (
            " The thin bars span what resampled trials give, 8 times in 10: the longer, "
            "the less it says."
        )
    layout = {**figure["layout"], "showlegend": False}
    _titles(layout, x=f"importance ({EVALUATOR}, shares of 1)", y="")
    return Figure(
        f"{prefix}importance",
        "Which parameters mattered",
        reading,
        figure["data"],
        layout,
        height=150 + 30 * len(importance.shares),
    )


MARKS = {
    FULL: ("trained in full", BLUE, "circle"),
    PRUNED: ("pruned", BLUE, "circle-open"),
    DEFAULT: ("default configuration", ORANGE, "diamond-open"),
}


def _slice(importance: Importance, key: str, identity: str) -> Figure | None:
    """Every configuration that has the parameter, at its value and its score."""
    having = [point for point in importance.points if key in point.params]
    if not having:
        return None
    domain = importance.space.distributions({key: having[0].params[key]})[key]
    data: list[Json] = []
    for kind, (label, colour, symbol) in MARKS.items():
        alike = [point for point in having if point.kind == kind]
        if alike:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": label,
                    "x": [point.params[key] for point in alike],
                    "y": [point.score for point in alike],
                    "text": [f"{point.trial}, {point.examples:,} examples" for point in alike],
                    "marker": {"size": 9, "color": colour, "symbol": symbol, "line": {"width": 2}},
                    "hovertemplate": "%{text}<br>%{x}: %{y:.3f}<extra>" + label + "</extra>",
                }
            )
    reading = "Filled: trained in full. Hollow: pruned. Diamond: the default."
    own = [point for point in importance.points if key in point.own]
    for point in own:
        value, at = point.own[key], _nearest(point.own[key], domain)
        data.append(_default(point, at, "" if at == value else short_value(value)))
        if at != value:
            reading += f" Its value, {short_value(value)}, is outside the space: it is at the edge."
    if less := len(importance.points) - len(having) - len(own):
        missing = f"{less} of {len(importance.points)}"
        reading += f" Not drawn: {missing}, where it takes no part or is not known."
    more: Json = {}
    if isinstance(domain, CategoricalDistribution):
        more = {"type": "category", "categoryarray": [str(each) for each in domain.choices]}
        for trace in data:
            trace["x"] = [str(value) for value in trace["x"]]
    elif getattr(domain, "log", False):
        more = {"type": "log", "exponentformat": "e", "nticks": 5, "tickangle": 0}
    return Figure(
        identity,
        key,
        reading,
        data,
        {
            "xaxis": axis(key, **more),
            "yaxis": axis(f"{importance.target} on dev", **_wide_enough(data)),
            "showlegend": False,
        },
        height=270,
        size="half",
    )


def _nearest(value: Any, domain: Any) -> Any:
    """Where an axis of the space has it: its edge, or a choice beside the others."""
    if isinstance(domain, CategoricalDistribution):
        return value if value in domain.choices else [value]  # which is none of them
    return min(max(value, domain.low), domain.high) if is_number(value) else domain.low


def _default(point: ScoredPoint, at: Any, outside: str) -> Json:
    """The default where its value is not one of the space's; from outside, with the value."""
    label, colour, symbol = MARKS[DEFAULT]
    told = f"{point.trial}, {point.examples:,} examples" + (f", {outside}" if outside else "")
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": f"{label}, outside the space" if outside else label,
        "x": [outside if isinstance(at, list) else at],
        "y": [point.score],
        "text": [outside],
        "textposition": "top center",
        "cliponaxis": False,
        "marker": {"size": 9, "color": colour, "symbol": symbol, "line": {"width": 2}},
        "hovertemplate": f"{told}<br>%{{y:.3f}}<extra>{label}</extra>",
    }


def _wide_enough(data: Sequence[Json]) -> Json:
    """An axis that does not make two scores look far apart that are not."""
    scores = [score for trace in data for score in trace["y"]]
    low, high = min(scores), max(scores)
    middle = (low + high) / 2
    narrow = high - low < NARROWEST
    return {"range": [middle - NARROWEST / 2, middle + NARROWEST / 2]} if narrow else {}


def _effects(importance: Importance, prefix: str) -> Figure | None:
    """Small multiples: a row for a parameter, a column for a task, one scale for each task."""
    effects = {(each.parameter, each.task): each for each in importance.effects}
    rows = list(dict.fromkeys(each.parameter for each in importance.effects))[:EFFECTS]
    seen = {each.task for each in importance.effects}
    tasks = [name for name in importance.space.task_set.names if name in seen][:EFFECT_TASKS]
    if not rows or not tasks:
        return None
    data: list[Json] = []
    layout: Json = {
        "grid": {"rows": len(rows), "columns": len(tasks), "pattern": "independent", "ygap": 0.45},
        "showlegend": False,
        "margin": {"l": 60, "r": 20, "t": 30, "b": 40},
    }
    scales = {task: _scale([effects[key, task] for key in rows]) for task in tasks}
    for place, (key, task) in enumerate((key, task) for key in rows for task in tasks):
        number = "" if place == 0 else str(place + 1)
        data.append(_effect(effects[key, task], f"x{number}", f"y{number}"))
        layout[f"xaxis{number}"] = axis(key, **_kind_of_axis(effects[key, task].values))
        layout[f"yaxis{number}"] = axis(task, range=scales[task], nticks=4)
    return Figure(
        f"{prefix}effects",
        "What moves which task",
        "What the model of the results expects of each task in full, with one parameter at each of "
        "its values and the others as they were in the trials. Bars are a standard deviation of "
        "what it expects. A flat line: nothing is seen that the parameter does for that task, in "
        f"{importance.effects[0].configurations} configurations; the fewer, the less that says.",
        data,
        layout,
        height=60 + 180 * len(rows),
        size="wide",
    )


def _effect(effect: Effect, x: str, y: str) -> Json:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [value if is_number(value) else short_value(value) for value in effect.values],
        "y": list(effect.means),
        "error_y": {"type": "data", "array": list(effect.sds), "thickness": 1, "color": INK},
        "xaxis": x,
        "yaxis": y,
        "marker": {"size": 6, "color": BLUE},
        "line": {"color": BLUE, "width": 2},
        "hovertemplate": f"{effect.parameter} %{{x}}<br>{effect.task} %{{y:.3f}}<extra></extra>",
    }


def _kind_of_axis(values: Sequence[Any]) -> Json:
    if not all(map(is_number, values)):
        return {"type": "category"}
    wide = min(values) > 0 and max(values) / min(values) > 20
    ends = {"type": "log", "exponentformat": "e"} if wide else {}
    return {"tickvals": [values[0], values[len(values) // 2], values[-1]], **ends}


def _scale(effects: Sequence[Effect]) -> list[float]:
    low = min(mean - sd for each in effects for mean, sd in zip(each.means, each.sds, strict=True))
    high = max(mean + sd for each in effects for mean, sd in zip(each.means, each.sds, strict=True))
    edge = 0.05 * (high - low) or 0.01
    return [low - edge, high + edge]


def _parallel(importance: Importance, prefix: str) -> Figure | None:
    keys = importance.ordered[:COORDINATES]
    if len(keys) < 2:
        return None
    figure = _optuna(importance, pictures.plot_parallel_coordinate, params=keys)
    if figure is None:
        return None
    *lines, bar = figure["data"]  # a line for each trial, then what holds the scale of colours
    for line in lines:
        (colour,) = sample_colorscale(SCALE, [min(1.0, max(0.0, line["y"][0]))])
        line["line"] = {**line["line"], "color": colour, "width": 2}
        line["opacity"] = 0.75
    bar["marker"] |= {"colorscale": SCALE, "reversescale": False}
    bar["marker"]["colorbar"] = {"thickness": 12, "title": {"text": importance.target}}
    layout = {**figure["layout"], "margin": {"l": 40, "r": 40, "t": 40, "b": 60}}
    layout.pop("plot_bgcolor", None)
    for written in layout.get("annotations", []):
        written["font"] = {"color": INK, "size": 11}
        written["bgcolor"] = PAPER
    _titles(layout, x="the score, then the parameters, each from its lowest to its highest", y="")
    return Figure(
        f"{prefix}parallel",
        "Parallel coordinates",
        "A line is a configuration and crosses every axis at its value; purple lines scored low, "
        "orange ones high. Where orange lines run together, that range did well here.",
        figure["data"],
        layout,
        height=400,
        size="wide",
    )


def _contour(importance: Importance, prefix: str) -> Figure | None:
    keys = list(importance.shares)[:2]
    if len(keys) < 2:
        return None
    figure = _optuna(importance, pictures.plot_contour, params=keys)
    if figure is None:
        return None
    for trace in figure["data"]:
        if trace["type"] == "contour":
            trace |= {"colorscale": SCALE, "reversescale": False}
            trace["colorbar"] = {"thickness": 12, "title": {"text": importance.target}}
        else:
            trace["marker"] = {
                **trace.get("marker", {}),
                "size": 7,
                "color": "#ffffff",
                "line": {"color": "#000000", "width": 1.5},
            }
    layout = {**figure["layout"], "showlegend": False}
    for name in ("xaxis", "yaxis"):
        own = layout.get(name, {})
        low, high = own.get("range") or (0, 0)
        # Of a log axis that spans decades these alone have labels: there is no room for 2 to 9.
        decades = {"dtick": 1} if own.get("type") == "log" and high - low >= 2 else {}
        layout[name] = {**own, **decades, "automargin": True}
    return Figure(
        f"{prefix}contour",
        f"{keys[0]} and {keys[1]} together",
        "Dots are configurations; the shading between them is guessed from the nearest ones, "
        "orange for a high score. Trust it only where there are dots.",
        figure["data"],
        layout,
        height=420,
    )


def _titles(layout: Json, *, x: str, y: str) -> None:
    for name, title in (("xaxis", x), ("yaxis", y)):
        layout[name] = {**layout.get(name, {}), "title": {"text": title}, "automargin": True}
