"""Metrics of weighted rows, for many candidates and many weightings at once.

This serves halves of a dev set (0 or 1) and bootstrap resamples (how often a row was drawn)
alike, with matrix products in place of loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from model.evaluation.scores import Array

# (labels [N], predictions [C, N], inside [C or 1, N], weights [W, N]) -> [C, W]. Row n counts
# inside[c, n] * weights[w, n] times. Without any weight the value is 0, as where nothing varies.


def _share(part: Array, whole: Array) -> Array:
    share: Array = part.astype(np.float64) / np.where(whole > 0, whole, 1)
    return share


def _accuracy(labels: Array, predictions: Array, inside: Array, weights: Array) -> Array:
    return _share(((predictions == labels) * inside) @ weights.T, inside @ weights.T)


def _f1(labels: Array, predictions: Array, inside: Array, weights: Array) -> Array:
    true, said = labels == 1, predictions == 1
    hits = ((true & said) * inside) @ weights.T
    return _share(2 * hits, (said * inside) @ weights.T + (true * inside) @ weights.T)


def _macro_f1(labels: Array, predictions: Array, inside: Array, weights: Array) -> Array:
    known, place = np.unique(np.vstack([labels, predictions]), return_inverse=True)
    true, *answers = place.reshape(-1, len(labels))
    shape, weights = (len(known), len(labels)), np.ascontiguousarray(weights.T)

    def per_class(classes: Any, count: Array) -> Any:
        """[classes, W]: weights summed over each class's rows, at one cost for 2 and for 20,000."""
        (row,) = count.nonzero()
        return csr_array((count[row], (classes[row], row)), shape) @ weights

    values = []
    for said, each in zip(answers, np.broadcast_to(inside, predictions.shape), strict=True):
        hits = per_class(true, each * (true == said))
        marked = per_class(true, each) + per_class(said, each)
        values.append(_share(_share(2 * hits, marked).sum(0), (marked > 0).sum(0)))
    return np.stack(values)


def _pearson(labels: Array, predictions: Array, inside: Array, weights: Array) -> Array:
    # Centred first, so that the differences of sums below lose no digits.
    x = (labels - labels.mean())[None]
    y = predictions - predictions.mean(-1, keepdims=True)
    n, sx, sy, sxx, syy, sxy = (
        (values * inside) @ weights.T for values in (np.ones_like(x), x, y, x * x, y * y, x * y)
    )
    return _correlation(n, sx, sy, sxx, syy, sxy)


def _correlation(n: Array, sx: Array, sy: Array, sxx: Array, syy: Array, sxy: Array) -> Array:
    n = np.where(n > 0, n, 1)
    of_x, of_y = sxx - sx * sx / n, syy - sy * sy / n
    # What rounding leaves of the spread of a constant is no spread.
    varies = (of_x > 1e-12 * sxx) & (of_y > 1e-12 * syy)
    scale = np.sqrt(np.where(varies, of_x * of_y, 1))
    r: Array = np.where(varies, (sxy - sx * sy / n) / scale, 0.0)
    return r.clip(-1, 1)


def _ranks(values: Array, weights: Array) -> Array:
    """[N, W] as its weights: ranks among rows as often as they count, centred; equals share."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    counts = np.add.reduceat(weights[order], starts, axis=0)
    ranks: Array = (np.cumsum(counts, axis=0) - (counts + weights.sum(0)) / 2)[group]
    return ranks


def _spearman(labels: Array, predictions: Array, inside: Array, weights: Array) -> Array:
    weights = np.ascontiguousarray(weights.T)  # so that rows are moved as wholes
    same = len(inside) == 1
    w, x = weights * inside[0][:, None], _ranks(labels, weights * inside[0][:, None])
    rows = []
    for number, answer in enumerate(predictions):
        if number and not same:
            w = weights * inside[number][:, None]
            x = _ranks(labels, w)
        y, wx = _ranks(answer, w), w * x
        of_x, of_y, of_both = (
            np.einsum("nw,nw->w", a, b) for a, b in ((wx, x), (w * y, y), (wx, y))
        )
        scale = np.sqrt(of_x * of_y)
        rows.append(np.where(scale > 0, of_both / np.where(scale > 0, scale, 1), 0.0))
    return np.stack(rows)


WEIGHTED: dict[str, Callable[[Array, Array, Array, Array], Array]] = {
    "accuracy": _accuracy,
    "macro_f1": _macro_f1,
    "f1": _f1,
    "pearson": _pearson,
    "spearman": _spearman,
}
