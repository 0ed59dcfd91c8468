"""Pictures of the soup: what each ingredient brought, and how far it is from the best."""

from __future__ import annotations

from tuner.report.figures import GREEN, GREY, ORANGE, Figure, Json, axis
from tuner.soup.record import SoupRecord


def draw_soup(soup: SoupRecord, prefix: str) -> list[Figure]:
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
        (True, "kept", GREEN, "circle"),
        (False, "left out", ORANGE, "x"),
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
            "Each mark is the score of the soup with that ingredient. It is kept if that beats the "
            "soup without it, and the line follows what was kept.",
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
