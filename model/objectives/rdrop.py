"""R-Drop: two passes with dropout masks of their own must agree (Liang et al., 2021)."""

from __future__ import annotations

from torch import Tensor

from model.objectives.smart import divergence


def rdrop_term(kind: str, first: Tensor, second: Tensor) -> Tensor:
    """The mean of the KLs both ways, or the squared difference of values; over the batch."""
    apart = divergence(kind, first, second)
    return apart if kind == "regression" else apart / 2
