"""Several models' answers to one task made into one, without running any of them.

mean    classes: the mean of the probabilities; regression: the mean of the values
vote    classes: the commonest answer (mode); regression: the median

Each with weights. A vote that is even between classes goes to the one with the higher mean
probability.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.scores import Array

Shares = NDArray[np.floating[Any]]  # [N, C], as precise as they were kept


@dataclass(frozen=True)
class Served:
    """Answers to one task's rows: classes or values [N], and probabilities [N, C] of classes."""

    values: Array
    shares: Shares | None


def mean(served: Sequence[Served], weights: Array) -> Served:
    shares = _mean_shares(served, weights)
    if shares is None:
        return Served(np.tensordot(weights, np.stack([s.values for s in served]), axes=1), None)
    return Served(shares.argmax(-1).astype(np.float64), shares)


def vote(served: Sequence[Served], weights: Array) -> Served:
    values = np.stack([each.values for each in served])
    shares = _mean_shares(served, weights)
    if shares is None:
        return Served(_weighted_median(values, weights), None)
    votes = np.zeros(shares.shape)
    rows = np.arange(values.shape[1])
    for answers, weight in zip(values, weights, strict=True):
        votes[rows, answers.astype(np.int64)] += weight
    # Sums of shares differ by rounding where they are even.
    even = np.isclose(votes, votes.max(-1, keepdims=True), rtol=0, atol=1e-9)
    return Served(np.where(even, shares, -1).argmax(-1).astype(np.float64), votes)


RULES: dict[str, Callable[[Sequence[Served], Array], Served]] = {"mean": mean, "vote": vote}


def blend(rule: str, served: Sequence[Served], weights: Sequence[float]) -> Served:
    """One answer per row. The weights are taken relative to their sum."""
    if len(served) == 1:
        return served[0]
    given = np.asarray(weights, dtype=np.float64)
    return RULES[rule](served, given / given.sum())


def _mean_shares(served: Sequence[Served], weights: Array) -> Array | None:
    if served[0].shares is None:
        return None
    total = np.zeros(served[0].shares.shape)
    for each, weight in zip(served, weights, strict=True):
        total += weight * np.asarray(each.shares, dtype=np.float64)
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
