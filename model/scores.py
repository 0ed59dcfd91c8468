"""Metrics, the overall score, and 95 % bootstrap intervals for both.

A classification metric is a function of the confusion matrix, so a bootstrap replicate is one
multinomial draw over its cells: exact, and no slower for a large dev set than for a small one.
A regression metric is resampled row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Array = NDArray[np.float64]
RESAMPLES = 1000
LEVEL = 0.95


def accuracy(confusion: Array) -> Array:
    """Share on the diagonal; `confusion` is [..., true, predicted]."""
    share: Array = np.trace(confusion, axis1=-2, axis2=-1) / confusion.sum(axis=(-2, -1))
    return share


def macro_f1(confusion: Array) -> Array:
    """F1 averaged over the classes that occur as label or as prediction."""
    hits = np.diagonal(confusion, axis1=-2, axis2=-1)
    marked = confusion.sum(-1) + confusion.sum(-2)
    f1 = 2 * hits / np.where(marked > 0, marked, 1)
    mean: Array = f1.sum(-1) / (marked > 0).sum(-1)
    return mean


def f1(confusion: Array) -> Array:
    """F1 of class 1, for binary tasks."""
    marked = confusion[..., 1, :].sum(-1) + confusion[..., :, 1].sum(-1)
    share: Array = 2 * confusion[..., 1, 1] / np.where(marked > 0, marked, 1)
    return share


def pearson(labels: Array, predictions: Array) -> Array:
    """Correlation along the last axis; 0 where either side does not vary."""
    x = labels - labels.mean(-1, keepdims=True)
    y = predictions - predictions.mean(-1, keepdims=True)
    scale = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    r: Array = np.where(scale > 0, (x * y).sum(-1) / np.where(scale > 0, scale, 1), 0.0)
    return r.clip(-1, 1)  # rounding can lead a little beyond


def spearman(labels: Array, predictions: Array) -> Array:
    return pearson(rankdata(labels, axis=-1), rankdata(predictions, axis=-1))


def _as_is(value: Array) -> Array:
    return value


def _halved(value: Array) -> Array:
    return (1 + value) / 2


@dataclass(frozen=True)
class Metric:
    """`of` takes a confusion matrix or (labels, predictions); `unit` maps it to 0..1."""

    of: Callable[..., Array]
    on_classes: bool
    unit: Callable[[Array], Array] = _as_is


METRICS: dict[str, Metric] = {
    "accuracy": Metric(accuracy, on_classes=True),
    "macro_f1": Metric(macro_f1, on_classes=True),
    "f1": Metric(f1, on_classes=True),
    "pearson": Metric(pearson, on_classes=False, unit=_halved),
    "spearman": Metric(spearman, on_classes=False, unit=_halved),
}


def confusion_matrix(labels: Array, predictions: Array, classes: int) -> Array:
    cells = labels.astype(np.int64) * classes + predictions.astype(np.int64)
    counts = np.bincount(cells, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.float64)


def measure(metric: str, labels: Array, predictions: Array, classes: int) -> float:
    """The metric's value on one dev set."""
    chosen = METRICS[metric]
    if chosen.on_classes:
        return float(chosen.of(confusion_matrix(labels, predictions, classes)))
    return float(chosen.of(labels, predictions))


def replicates(
    metric: str, labels: Array, predictions: Array, classes: int, *, seed: int = 0
) -> Array:
    """The metric on `RESAMPLES` bootstrap resamples of the dev set."""
    chosen = METRICS[metric]
    rng = np.random.default_rng(seed)
    rows = len(labels)
    if chosen.on_classes:
        cells = confusion_matrix(labels, predictions, classes)
        draws = rng.multinomial(rows, cells.ravel() / rows, size=RESAMPLES)
        return chosen.of(draws.reshape(RESAMPLES, classes, classes).astype(np.float64))
    parts = []
    block = max(1, 2_000_000 // max(rows, 1))  # bounds memory, whatever the dev set's size
    for start in range(0, RESAMPLES, block):
        drawn = rng.integers(rows, size=(min(block, RESAMPLES - start), rows))
        parts.append(chosen.of(labels[drawn], predictions[drawn]))
    return np.concatenate(parts)


def interval(values: Array) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Score:
    """A value with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Scores:
    overall: Score
    tasks: dict[str, Score]


@dataclass(frozen=True)
class Scored:
    """One task's dev set, ready to be scored."""

    metric: str
    weight: float
    classes: int
    labels: Array
    predictions: Array


def overall_of(metrics: Sequence[str], values: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted mean of the tasks' metrics, each mapped to 0..1."""
    units = [
        float(METRICS[name].unit(np.asarray(value)))
        for name, value in zip(metrics, values, strict=True)
    ]
    return float(np.average(units, weights=weights))


def score(tasks: Mapping[str, Scored], *, seed: int = 0) -> Scores:
    """Every task's metric, and the weighted mean of the metrics mapped to 0..1."""
    values: dict[str, Score] = {}
    resampled: list[Array] = []
    for number, (name, task) in enumerate(tasks.items()):
        value = measure(task.metric, task.labels, task.predictions, task.classes)
        draws = replicates(
            task.metric, task.labels, task.predictions, task.classes, seed=seed + number
        )
        values[name] = Score(value, *interval(draws))
        resampled.append(METRICS[task.metric].unit(draws))
    weights = [task.weight for task in tasks.values()]
    overall = overall_of(
        [task.metric for task in tasks.values()], [one.value for one in values.values()], weights
    )
    draws = np.average(np.stack(resampled), axis=0, weights=weights)
    return Scores(Score(overall, *interval(draws)), values)


def majority_baseline(metric: str, train_labels: Array, labels: Array, classes: int) -> float:
    """What always answering the commonest training label (or its mean) scores on dev."""
    if METRICS[metric].on_classes:
        guess = float(np.bincount(train_labels.astype(np.int64), minlength=classes).argmax())
    else:
        guess = float(train_labels.mean())
    return measure(metric, labels, np.full_like(labels, guess), classes)
