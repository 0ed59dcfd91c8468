"""Pictures of what a model gets wrong, and of how it sees the examples."""

from __future__ import annotations

import numpy as np

from tuner.report.figures import AMOUNT, BLUE, GREY, INK, SCALE, Figure, Json, axis, class_style
from tuner.report.mistakes.collect import MOST_CLASSES, TaskResult
from tuner.report.mistakes.vectors import Cloud
from tuner.report.numbers import short

MOST_POINTS = 3000  # of a scatter; more are a blot, and slow


def draw_result(result: TaskResult, prefix: str) -> Figure | None:
    if result.confusion is None:
        return draw_scatter(result, prefix)
    return draw_confusion(result, prefix) if result.task.classes <= MOST_CLASSES else None


def draw_confusion(result: TaskResult, prefix: str) -> Figure:
    assert result.confusion is not None
    counts = result.confusion
    totals = counts.sum(axis=1, keepdims=True)
    shares = counts / np.where(totals > 0, totals, 1)
    names = result.names
    few = len(names) <= 12
    cells = [
        [f"{counts[i, j]}<br>{100 * shares[i, j]:.0f} %" for j in range(len(names))]
        for i in range(len(names))
    ]
    data: Json = {
        "type": "heatmap",
        "z": shares,
        "x": names,
        "y": names,
        "zmin": 0,
        "zmax": 1,
        "colorscale": AMOUNT,
        "customdata": counts,
        "text": cells if few else [],
        "texttemplate": "%{text}" if few else "",
        "textfont": {"color": INK},
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"title": {"text": "share of row"}, "tickformat": ".0%", "thickness": 12},
        "showscale": not few,
        "hovertemplate": "true %{y}, predicted %{x}<br>%{customdata} (%{z:.0%} of the true)"
        "<extra></extra>",
    }
    return Figure(
        f"{prefix}confusion-{result.task.name}",
        f"{result.task.name}: {result.task.metric} {short(result.value)}",
        "A row is a true class and adds up to 100 %; columns are what the model predicted. The "
        "diagonal is right; strong colour elsewhere is a confusion.",
        [data],
        {
            "xaxis": axis("predicted", type="category", side="bottom", showgrid=False),
            "yaxis": axis("true", type="category", autorange="reversed", showgrid=False),
        },
        height=max(300, min(640, 140 + 48 * len(names))),
        size="half",
    )


def draw_scatter(result: TaskResult, prefix: str) -> Figure:
    rows = np.arange(len(result.answers.labels))
    thinned = len(rows) > MOST_POINTS
    if thinned:
        rows = np.sort(np.random.default_rng(0).choice(rows, MOST_POINTS, replace=False))
    low, high = result.task.low, result.task.high
    pad = 0.03 * (high - low)
    data: list[Json] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "right",
            "x": [low, high],
            "y": [low, high],
            "line": {"color": GREY, "dash": "dash", "width": 1.5},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "dev example",
            "x": result.answers.labels[rows],
            "y": result.answers.values[rows],
            "text": [result.answers.ids[row] for row in rows],
            "marker": {"color": BLUE, "size": 6, "opacity": 0.45},
            "hovertemplate": "%{text}<br>true %{x:.2f}, predicted %{y:.2f}<extra></extra>",
        },
    ]
    ends = [low - pad, high + pad]
    said = f"{result.task.name}: {result.task.metric} {short(result.value)}"
    if result.error is not None:
        said += f", MAE {result.error:.2f}"
    return Figure(
        f"{prefix}scatter-{result.task.name}",
        said,
        "A dot is a dev example; on the dashed line the model is right, above it it predicts too "
        "much. MAE is the mean absolute error."
        + (f" {MOST_POINTS:,} of {len(result.answers.labels):,} are drawn." if thinned else ""),
        data,
        {
            "xaxis": axis("true", range=ends),
            "yaxis": axis("predicted", range=ends),
            "showlegend": False,
        },
        height=380,
        size="half",
    )


# --- embeddings -----------------------------------------------------------------------------------

BY_LABEL, BY_PREDICTION = "true label", "prediction"


def draw_cloud(cloud: Cloud, prefix: str) -> list[Figure]:
    name = cloud.result.task.name
    first, second = cloud.explained
    pca = _map(
        cloud,
        cloud.pca,
        f"{prefix}pca-{name}",
        f"{name}: PCA",
        "The two directions in which the examples differ most. Classes that lie apart are easy "
        "for the head.",
        (f"component 1 ({first:.0%} of the variance)", f"component 2 ({second:.0%})"),
    )
    tsne = _map(
        cloud,
        cloud.tsne,
        f"{prefix}tsne-{name}",
        f"{name}: t-SNE",
        "Near neighbours stay near; distances between groups and their sizes mean nothing.",
        ("no unit", "no unit"),
    )
    return [pca, tsne]


def _map(
    cloud: Cloud, places: np.ndarray, identity: str, title: str, reading: str, axes: tuple[str, str]
) -> Figure:
    result = cloud.result
    colourings = (
        (BY_LABEL, result.answers.labels[cloud.rows]),
        (BY_PREDICTION, result.answers.values[cloud.rows]),
    )
    data = [
        {**trace, "meta": by, "visible": by == BY_LABEL}
        for by, values in colourings
        for trace in _traces(cloud, places, values)
    ]
    plain = {"showticklabels": False, "zeroline": False}
    return Figure(
        identity,
        title,
        reading,
        data,
        {"xaxis": axis(axes[0], **plain), "yaxis": axis(axes[1], **plain)},
        height=380,
        size="half",
        switch=(BY_LABEL, BY_PREDICTION),
    )


def _traces(cloud: Cloud, places: np.ndarray, values: np.ndarray) -> list[Json]:
    result, texts = cloud.result, cloud.texts
    hover = "%{text}<extra></extra>"
    said = [
        f"{text}<br>true {result.shown(result.answers.labels[row])}, "
        f"said {result.shown(result.answers.values[row])}"
        for text, row in zip(texts, cloud.rows, strict=True)
    ]
    if result.confusion is None:
        low, high = result.task.low, result.task.high
        scale = {
            "color": values,
            "colorscale": SCALE,
            "cmin": low,
            "cmax": high,
            "showscale": True,
            "size": 7,
            "colorbar": {"thickness": 12},
        }
        return [_points(places, said, hover, "", scale)]
    traces = []
    for number, name in enumerate(result.names):
        chosen = values == number
        if chosen.any():
            style = {**class_style(number), "size": 7, "opacity": 0.75}
            texts_of = [text for text, mine in zip(said, chosen, strict=True) if mine]
            traces.append(_points(places[chosen], texts_of, hover, name, style))
    return traces


def _points(places: np.ndarray, said: list[str], hover: str, name: str, marker: Json) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": bool(name),
        "x": places[:, 0],
        "y": places[:, 1],
        "text": said,
        "marker": marker,
        "hovertemplate": hover,
    }
