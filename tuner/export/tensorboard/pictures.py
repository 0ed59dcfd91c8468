"""Pictures of dev predictions: confusion, calibration, predicted against true.

Each function takes plain arrays and returns a matplotlib Figure of its own: no pyplot, no state,
no display. Colours are ones that colour-blind people tell apart.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from model.cli.text import shorten
from model.evaluation.scores import Array, Confusion, measure
from model.tasks.task_set import Task, TaskSet
from tuner.scoring.dev_rows import LabelledPredictions, read_predictions

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6B6B6B"
SIZE, DPI = 4.6, 100  # inches and dots: a picture is read at its own size, at most 500 pixels wide
MOST = 20  # classes with a row of their own
BINS = 10
DENSE = 2000  # points from which on they are counted rather than drawn


@dataclass(frozen=True)
class Picture:
    png: bytes
    width: int
    height: int


def pictures_of(path: Path, tasks: TaskSet, title: str) -> dict[str, Picture]:
    """All pictures of one file of predictions, by the name TensorBoard shows them under."""
    found = read_predictions(path, tasks)
    drawn: dict[str, Picture] = {}
    for name, of in found.items():
        task = tasks[name]
        if task.kind == "regression":
            drawn[f"predicted against true/{task.name}"] = png(scatter(task, of, title))
            continue
        drawn[f"confusion/{task.name}"] = png(confusion(task, of, title))
        if of.probabilities is not None:
            drawn[f"calibration/{task.name}"] = png(calibration(task, of, title))
    return drawn


def png(figure: Figure) -> Picture:
    canvas = FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    canvas.print_png(buffer)  # type: ignore[no-untyped-call]
    width, height = canvas.get_width_height()
    return Picture(buffer.getvalue(), width, height)


def confusion_counts(task: Task, of: LabelledPredictions) -> tuple[NDArray[np.int64], list[str]]:
    """[true, predicted] and the classes' names; beyond MOST classes the rarer are one, 'other'."""
    true, predicted = of.labels.astype(np.int64), of.values.astype(np.int64)
    names = [str(task.source.label_name(number)) for number in range(min(task.classes, MOST))]
    size = task.classes
    if task.classes > MOST:
        known, often = np.unique(true, return_counts=True)
        kept = np.sort(known[np.argsort(-often, kind="stable")][: MOST - 1])
        place = {int(number): index for index, number in enumerate(kept)}
        true = np.array([place.get(int(number), len(kept)) for number in true])
        predicted = np.array([place.get(int(number), len(kept)) for number in predicted])
        names = [*(str(task.source.label_name(number)) for number in kept), "other"]
        size = len(names)
    cells = Confusion.of(true.astype(np.float64), predicted.astype(np.float64), size)
    return cells.matrix(size), names


def confusion(task: Task, of: LabelledPredictions, title: str) -> Figure:
    """Each row is a true class: its share by colour, share and count in the cell."""
    counts, names = confusion_counts(task, of)
    totals = counts.sum(1, keepdims=True)
    shares = counts / np.maximum(totals, 1)
    figure, axes = _canvas(task, of, title)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    small = len(names) > 7
    for (row, column), count in np.ndenumerate(counts):
        share = shares[row, column]
        if small and not count:
            continue
        said = f"{share:.0%}" if small else f"{share:.0%}\n{count}"
        colour = "white" if share > 0.55 else "black"
        size = 6 if small else 9
        axes.text(column, row, said, ha="center", va="center", color=colour, fontsize=size)
    shown = [shorten(name, 14) for name in names]
    axes.set_xticks(range(len(names)), shown, rotation=90 if len(names) > 7 else 0)
    axes.set_yticks(range(len(names)), shown)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class (each row is 100 %)")
    return figure


@dataclass(frozen=True)
class Calibration:
    """Per bin of confidence: the mean confidence, the share that is right, and the rows."""

    confidence: Array
    right: Array
    rows: NDArray[np.intp]

    @property
    def error(self) -> float:
        """The expected calibration error: the gap between both, weighted by rows."""
        gaps = np.abs(self.confidence - self.right) * self.rows
        return float(np.nansum(gaps) / max(1, self.rows.sum()))


def calibration_bins(of: LabelledPredictions) -> Calibration:
    assert of.probabilities is not None
    sure = of.probabilities.max(1).astype(np.float64)
    right = (of.values == of.labels).astype(np.float64)
    place = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    rows = np.bincount(place, minlength=BINS)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, sure, BINS) / rows
        share = np.bincount(place, right, BINS) / rows
    return Calibration(mean, share, rows)


def calibration(task: Task, of: LabelledPredictions, title: str) -> Figure:
    """How often the model is right when it says so: on the diagonal it means what it says."""
    bins = calibration_bins(of)
    figure, axes = _canvas(task, of, title)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="as sure as right")
    there = bins.rows > 0
    sure, right, rows = bins.confidence[there], bins.right[there], bins.rows[there]
    axes.plot(sure, right, color=BLUE, linewidth=1)
    # A point's area is its rows: one of a single row says little.
    axes.scatter(sure, right, s=10 + 140 * rows / rows.max(), color=BLUE, label="this model")
    for x, y, count in zip(sure, right, rows, strict=True):
        axes.annotate(
            f"{count}", (x, y), (0, -16), textcoords="offset points", ha="center", fontsize=7
        )
    axes.set(xlim=(0, 1.02), ylim=(-0.06, 1.02), aspect="equal")
    axes.set_xlabel("confidence in its answer (rows in each tenth)")
    axes.set_ylabel("share that is right")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", title=f"calibration error {bins.error:.3f}", fontsize=8)
    return figure


def scatter(task: Task, of: LabelledPredictions, title: str) -> Figure:
    """A point per row; from DENSE rows on, how many there are in each cell."""
    figure, axes = _canvas(task, of, title)
    margin = 0.04 * (task.high - task.low)
    ends = (task.low - margin, task.high + margin)
    if len(of.labels) < DENSE:
        axes.scatter(of.labels, of.values, s=10, color=BLUE, alpha=0.45, linewidths=0)
    else:
        extent = (*ends, *ends)
        cells: Any = axes.hexbin(
            of.labels, of.values, gridsize=40, extent=extent, cmap="Blues", bins="log"
        )
        figure.colorbar(cells, ax=axes, label="rows", fraction=0.046)
    axes.plot(ends, ends, color=ORANGE, linewidth=1, label="right")
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    axes.set_xlabel("true value")
    axes.set_ylabel("predicted value")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    return figure


def maps(
    task: Task, values: Array, points: Mapping[str, NDArray[np.float32]], title: str
) -> Figure:
    """Rows where their embeddings are, on each of these maps, coloured by what is predicted."""
    figure = Figure(figsize=(SIZE * len(points), SIZE), dpi=DPI, layout="constrained")
    for place, (name, flat) in enumerate(points.items()):
        axes = figure.add_subplot(1, len(points), place + 1)
        x, y = flat.T
        shown: Any = axes.scatter(
            x, y, c=values, cmap="viridis", vmin=task.low, vmax=task.high, s=10, linewidths=0
        )
        axes.set(xticks=[], yticks=[], xlabel=name)
    figure.colorbar(shown, ax=axes, label="predicted", fraction=0.046)
    figure.suptitle(f"{task.name}: embeddings of {len(values):,} rows\n{title}", fontsize=9)
    return figure


def _canvas(task: Task, of: LabelledPredictions, title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(SIZE, SIZE), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    value = measure(task.metric, of.labels, of.values, task.classes)
    head = f"{task.name}: {task.metric} {value:.3f} on {len(of.labels):,} rows"
    axes.set_title(f"{head}\n{title}", fontsize=9)
    return figure, axes
