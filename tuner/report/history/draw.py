"""Pictures of how a search went."""

from __future__ import annotations

from tuner.report.figures import BLUE, FAINT, GREEN, GREY, INK, ORANGE, RED, SKY, Figure, Json, axis
from tuner.report.history.collect import Curve, History

# name, colour, dash and symbol: never told apart by the colour alone
ENDS = {
    "finished": ("finished", BLUE, "solid", "circle"),
    "promoted": ("promoted", GREEN, "solid", "triangle-up"),
    "waiting": ("waiting", SKY, "dash", "diamond-open"),
    "pruned": ("pruned", ORANGE, "dot", "x"),
    "failed": ("failed", RED, "dash", "triangle-down"),
    "lost": ("lost with its machine", GREY, "dash", "triangle-down-open"),
    "paused": ("paused", SKY, "dash", "square-open"),
    "running": ("running", SKY, "solid", "circle-open"),
}


def draw_history(history: History, prefix: str) -> list[Figure]:
    found = [
        draw_curves(history, prefix),
        draw_best_so_far(history, prefix),
        draw_hypervolume(history, prefix),
        draw_timeline(history, prefix),
    ]
    return [figure for figure in found if figure is not None]


def draw_curves(history: History, prefix: str) -> Figure | None:
    if not history.curves:
        return None
    best = [curve for curve in history.curves if curve.trial == history.best]
    rest = [curve for curve in history.curves if curve.trial != history.best]
    data = []
    for end, (label, colour, dash, symbol) in ENDS.items():
        alike = [curve for curve in rest if curve.end == end]
        if alike:
            data.append(_lines(alike, label, colour, dash, 1.5, 0.55))
        if alike and end not in ("finished", "running"):
            data.append(_last_points(alike, label, colour, symbol))
    if best:
        data.append(_lines(best, f"the best ({best[0].trial})", INK, "solid", 3, 1))
    return Figure(
        f"{prefix}curves",
        "Learning curves",
        "A line is a trial, from its first evaluation to its last. One that ends in a cross was "
        "pruned there; after a triangle that points up its settings were trained for longer, in a "
        "trial of its own; one that points down is a failure.",
        data,
        {
            "xaxis": axis("examples seen", rangemode="tozero"),
            "yaxis": axis(f"{history.goal} score on dev"),
        },
        height=400,
    )


def _lines(
    curves: list[Curve], label: str, colour: str, dash: str, width: float, opacity: float
) -> Json:
    """Many trials as one trace with gaps: hundreds stay quick."""
    x: list[int | None] = []
    y: list[float | None] = []
    names: list[str | None] = []
    for curve in curves:
        x += [*curve.examples, None]
        y += [*curve.scores, None]
        names += [*([curve.trial] * len(curve.examples)), None]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label,
        "x": x,
        "y": y,
        "text": names,
        "opacity": opacity,
        "line": {"color": colour, "dash": dash, "width": width},
        "marker": {"size": 4, "color": colour},
        "hovertemplate": "%{text}<br>%{x:,} examples: %{y:.3f}<extra>" + label + "</extra>",
    }


def _last_points(curves: list[Curve], label: str, colour: str, symbol: str) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": [curve.examples[-1] for curve in curves],
        "y": [curve.scores[-1] for curve in curves],
        "text": [f"{curve.trial}: {curve.reason}"[:120] for curve in curves],
        "marker": {"size": 9, "color": colour, "symbol": symbol},
        "hovertemplate": "%{text}<extra>" + label + "</extra>",
    }


def draw_best_so_far(history: History, prefix: str) -> Figure | None:
    of = history.so_far
    if not of.minutes:
        return None
    data: list[Json] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "finished trial",
            "x": of.minutes,
            "y": of.scores,
            "text": of.trials,
            "marker": {"color": BLUE, "size": 7, "opacity": 0.6},
            "hovertemplate": "%{text}<br>after %{x:.1f} min: %{y:.3f}<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "x": of.minutes,
            "y": of.best,
            "line": {"shape": "hv", "color": INK, "width": 2.5},
            "hoverinfo": "skip",
        },
    ]
    layout: Json = {
        "xaxis": axis("minutes since the search began", rangemode="tozero"),
        "yaxis": axis(f"{history.goal} score on dev"),
    }
    if of.default is not None:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "default configuration",
                "x": [0, of.minutes[-1]],
                "y": [of.default, of.default],
                "line": {"color": ORANGE, "dash": "dash", "width": 2},
                "hoverinfo": "skip",
            }
        )
    return Figure(
        f"{prefix}best-so-far",
        "The best so far",
        "Each dot is a trial that finished; the line is the best until then. Where it has been "
        "flat for long, more trials of the same kind promise little.",
        data,
        layout,
        size="half",
    )


def draw_hypervolume(history: History, prefix: str) -> Figure | None:
    of = history.so_far
    if not of.hypervolume:
        return None
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": of.minutes,
        "y": of.hypervolume,
        "text": of.trials,
        "line": {"shape": "hv", "color": INK, "width": 2.5},
        "marker": {"color": BLUE, "size": 7},
        "hovertemplate": "%{text}<br>after %{x:.1f} min: %{y:.3f}<extra></extra>",
    }
    return Figure(
        f"{prefix}hypervolume",
        "Hypervolume so far",
        "How much of what could be had in all objectives together is behind the Pareto front: 0 at "
        "scores of 0, 1 at perfect ones. It grows when a trial leads in any of them.",
        [line],
        {
            "xaxis": axis("minutes since the search began", rangemode="tozero"),
            "yaxis": axis("hypervolume"),
            "showlegend": False,
        },
    )


def draw_timeline(history: History, prefix: str) -> Figure | None:
    if not history.stretches:
        return None
    slots = list(dict.fromkeys(each.slot for each in history.stretches))
    data = []
    for how, (label, colour, _, _) in ENDS.items():
        alike = [each for each in history.stretches if each.how == how]
        if alike:
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": label,
                    "y": [each.slot for each in alike],
                    "base": [each.start for each in alike],
                    "x": [each.end - each.start for each in alike],
                    "text": [each.trial for each in alike],
                    "textposition": "none",
                    "marker": {
                        "color": colour,
                        "line": {"color": FAINT, "width": 1},
                        "pattern": {"shape": PATTERNS.get(how, "")},
                    },
                    "hovertemplate": "%{text}, %{x:.2f} min<extra>" + label + "</extra>",
                }
            )
    return Figure(
        f"{prefix}timeline",
        "Timeline",
        "A row is a slot (a place for one trial at a time), a bar a trial at work in it. Gaps are "
        "time in which the slot waited.",
        data,
        {
            "barmode": "overlay",
            "bargap": 0.25,
            "xaxis": axis("minutes since the search began", rangemode="tozero"),
            "yaxis": axis(
                "", categoryorder="array", categoryarray=sorted(slots, key=_natural)[::-1]
            ),
        },
        height=max(220, 150 + 26 * min(len(slots), 40)),
        size="half" if len(slots) <= 8 else "full",
    )


PATTERNS = {"pruned": "/", "failed": "x", "lost": "\\", "paused": "."}


def _natural(slot: str) -> tuple[str, int]:
    node, _, number = slot.rpartition(" ")
    return node, int(number)
