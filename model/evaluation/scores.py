"""Metrics, the overall score, and 95 % bootstrap intervals for both.

A classification metric is a function of the confusion matrix, so a bootstrap replicate is one
multinomial draw over its cells: exact, and hardly slower for a large dev set than for a small
one. Only cells that are occupied can be drawn, and those are never more than the rows, however
many classes there are. A regression metric is resampled row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Array = NDArray[np.float64]
Places = NDArray[np.int64]
RESAMPLES = 1000
LEVEL = 0.95
BLOCK = 2_000_000  # numbers drawn at once


@dataclass(frozen=True)
class Confusion:
    """The occupied cells of a confusion matrix: the class, the answer, and how often."""

    true: Places  # [K]
    predicted: Places  # [K]
    counts: Array  # [..., K]

    @classmethod
    def of(cls, labels: Array, predictions: Array, classes: int) -> Confusion:
        cells = labels.astype(np.int64) * classes + predictions.astype(np.int64)
        occupied, counts = np.unique(cells, return_counts=True)
        return cls(occupied // classes, occupied % classes, counts.astype(np.float64))

    def matrix(self, classes: int) -> NDArray[np.int64]:
        """[true, predicted]: how often each was given for each."""
        full = np.zeros((classes, classes), np.int64)
        full[self.true, self.predicted] = self.counts
        return full

    def count(self, where: NDArray[np.bool_]) -> Array:
        """Rows in the cells that `where` marks."""
        total: Array = self.counts[..., where].sum(-1)
        return total


def accuracy(confusion: Confusion) -> Array:
    """Share on the diagonal."""
    right = confusion.count(confusion.true == confusion.predicted)
    share: Array = right / confusion.counts.sum(-1)
    return share


def macro_f1(confusion: Confusion) -> Array:
    """F1 averaged over the classes that occur as label or as prediction."""
    both = np.stack([confusion.true, confusion.predicted])
    known, place = np.unique(both, return_inverse=True)
    true, predicted = place.reshape(both.shape)
    cell, each = np.arange(len(true)), np.ones(len(true))
    shape = (len(true), len(known))
    # [cells, classes]: a product with these sums the cells of every class.
    marks = csr_array((each, (cell, true)), shape) + csr_array((each, (cell, predicted)), shape)
    marked = confusion.counts @ marks
    hits = confusion.counts @ csr_array(((true == predicted) * each, (cell, true)), shape)
    f1 = 2 * hits / np.where(marked > 0, marked, 1)
    mean: Array = f1.sum(-1) / (marked > 0).sum(-1)
    return mean


def f1(confusion: Confusion) -> Array:
    """F1 of class 1, for binary tasks."""
    true, predicted = confusion.true == 1, confusion.predicted == 1
    marked = confusion.count(true) + confusion.count(predicted)
    share: Array = 2 * confusion.count(true & predicted) / np.where(marked > 0, marked, 1)
    return share


def pearson(labels: Array, predictions: Array) -> Array:
    """Correlation along the last axis; 0 where either side does not vary."""
    x = labels - labels.mean(-1, keepdims=True)
    y = predictions - predictions.mean(-1, keepdims=True)
    scale = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    r: Array = np.where(scale > 0, (x * y).sum(-1) / np.where(scale > 0, scale, 1), 0.0)
    return r.clip(-1, 1)  # rounding can lead a little beyond


def spearman(labels: Array, predictions: Array) -> Array:
    from scipy.stats import rankdata  # most of a second, which other metrics do without

    return pearson(rankdata(labels, axis=-1), rankdata(predictions, axis=-1))


def _as_is(value: Array) -> Array:
    return value


def _halved(value: Array) -> Array:
    return (1 + value) / 2


@dataclass(frozen=True)
class Metric:
    """`of` takes a Confusion or (labels, predictions); `unit` maps it to 0..1."""

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


def measure(metric: str, labels: Array, predictions: Array, classes: int) -> float:
    """The metric's value on one dev set."""
    chosen = METRICS[metric]
    if chosen.on_classes:
        return float(chosen.of(Confusion.of(labels, predictions, classes)))
    return float(chosen.of(labels, predictions))


def replicates(
    metric: str, labels: Array, predictions: Array, classes: int, *, seed: int = 0
) -> Array:
    """The metric on `RESAMPLES` bootstrap resamples of the dev set."""
    chosen = METRICS[metric]
    rng = np.random.default_rng(seed)
    rows = len(labels)
    parts = []
    if chosen.on_classes:
        cells = Confusion.of(labels, predictions, classes)
        for size in _blocks(len(cells.counts)):
            draws = rng.multinomial(rows, cells.counts / rows, size=size)
            parts.append(chosen.of(replace(cells, counts=draws.astype(np.float64))))
    else:
        for size in _blocks(rows):
            drawn = rng.integers(rows, size=(size, rows))
            parts.append(chosen.of(labels[drawn], predictions[drawn]))
    return np.concatenate(parts)


def _blocks(width: int) -> Iterator[int]:
    """How many resamples of that width to draw at a time: bounds memory, whatever the size."""
    block = max(1, BLOCK // max(width, 1))
    for start in range(0, RESAMPLES, block):
        yield min(block, RESAMPLES - start)


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


def further(task: Scored, metrics: Sequence[str]) -> dict[str, Score]:
    """Other metrics of the same answers, with their intervals."""
    given = (task.labels, task.predictions, task.classes)
    return {
        name: Score(measure(name, *given), *interval(replicates(name, *given))) for name in metrics
    }


def majority_baseline(metric: str, train_labels: Array, labels: Array, classes: int) -> float:
    """What always answering the commonest training label (or its mean) scores on dev."""
    if METRICS[metric].on_classes:
        guess = float(np.bincount(train_labels.astype(np.int64), minlength=classes).argmax())
    else:
        guess = float(train_labels.mean())
    return measure(metric, labels, np.full_like(labels, guess), classes)
