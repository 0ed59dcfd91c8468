"""Pictures of several runs beside each other."""

from __future__ import annotations

from tuner.report.answer.draw import HOW_INTERVALS, dots
from tuner.report.compare.collect import RunComparison
from tuner.report.figures import BLUE, CLASSES, Figure, axis, wrapped


def draw_comparison(comparison: RunComparison) -> list[Figure]:
    known = [(side, side.best) for side in comparison.sides if side.best is not None]
    if not known:
        return []
    names = [wrapped(side.name) for side, _ in known]
    points = [best.overall for _, best in known]
    marks = dots("best trial", names, points, BLUE, "circle")
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
            [marks],
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
