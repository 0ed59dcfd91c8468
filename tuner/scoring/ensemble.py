"""Several models' answers to one task made into one, without running any of them.

mean    classes: the mean of the probabilities; regression: the mean of the values
vote    classes: the commonest answer (mode); regression: the median

Each with weights. A vote that is even between classes goes to the one with the higher mean
probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from model.evaluation.predictions import Predictions
from model.evaluation.scores import Array


def mean(predictions: Sequence[Predictions], weights: Array) -> Predictions:
    probabilities = _mean_probabilities(predictions, weights)
    if probabilities is None:
        return Predictions(
            np.tensordot(weights, np.stack([s.values for s in predictions]), axes=1), None
        )
    return Predictions(probabilities.argmax(-1).astype(np.float64), probabilities)


def vote(predictions: Sequence[Predictions], weights: Array) -> Predictions:
    values = np.stack([each.values for each in predictions])
    probabilities = _mean_probabilities(predictions, weights)
    if probabilities is None:
        return Predictions(_weighted_median(values, weights), None)
    votes = np.zeros(probabilities.shape)
    rows = np.arange(values.shape[1])
    for answers, weight in zip(values, weights, strict=True):
        votes[rows, answers.astype(np.int64)] += weight
    # Sums of weights differ by rounding where they are even.
    even = np.isclose(votes, votes.max(-1, keepdims=True), rtol=0, atol=1e-9)
    return Predictions(np.where(even, probabilities, -1).argmax(-1).astype(np.float64), votes)


RULES: dict[str, Callable[[Sequence[Predictions], Array], Predictions]] = {
    "mean": mean,
    "vote": vote,
}


def blend(rule: str, predictions: Sequence[Predictions], weights: Sequence[float]) -> Predictions:
    """One answer per row. The weights are taken relative to their sum."""
    if len(predictions) == 1:
        return predictions[0]
    given = np.asarray(weights, dtype=np.float64)
    return RULES[rule](predictions, given / given.sum())


def _mean_probabilities(predictions: Sequence[Predictions], weights: Array) -> Array | None:
    if predictions[0].probabilities is None:
        return None
    total = np.zeros(predictions[0].probabilities.shape)
    for each, weight in zip(predictions, weights, strict=True):
        total += weight * np.asarray(each.probabilities, dtype=np.float64)
    return total


def _weighted_median(values: Array, weights: Array) -> Array:
    """Along the first axis; between the middle two where the weights are even there."""
    order = values.argsort(axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    reached = np.cumsum(weights[order], axis=0)
    lower = (reached >= 0.5 - 1e-9).argmax(axis=0)
    upper = (reached > 0.5 + 1e-9).argmax(axis=0)
    columns = np.arange(values.shape[1])
    median: Array = (ordered[lower, columns] + ordered[upper, columns]) / 2
    return median
