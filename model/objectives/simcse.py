"""Unsupervised SimCSE: the same sentences twice through dropout, told apart in the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

NEGATIVES = ("other", "both", "all")


def simcse_loss(
    first: Tensor, second: Tensor, temperature: float = 0.05, negatives: str = "other"
) -> Tensor:
    """Each row of `first` must be nearest to its own row of `second`, [B, width] each.

    The other rows of the batch are the negatives, so a batch of one teaches nothing: those of
    `second`, as published; with `both` those of `first` too; with `all` also the row itself, whose
    similarity is always 1, as an equation whose sum leaves out no row has it.
    """
    if negatives not in NEGATIVES:
        raise ValueError(f"'{negatives}' are no negatives; known: {', '.join(NEGATIVES)}")
    if temperature <= 0:
        raise ValueError(f"the temperature must be above 0, but got {temperature}")
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(
            "both sides must have one shape [B, width], "
            f"but got {[*first.shape]} and {[*second.shape]}"
        )
    # Divided by a small temperature, the rounding of bf16 would show: no autocast here.
    with torch.autocast(first.device.type, enabled=False):
        wide = torch.promote_types(first.dtype, torch.float32)
        a, b = F.normalize(first.to(wide), dim=-1), F.normalize(second.to(wide), dim=-1)
        own = torch.arange(len(first), device=first.device)
        scores = a @ b.T
        if negatives != "other":
            same = a @ a.T
            if negatives == "both":
                itself = torch.eye(len(a), dtype=torch.bool, device=a.device)
                same = same.masked_fill(itself, -torch.inf)
            scores = torch.cat([scores, same], dim=1)
        return F.cross_entropy(scores / temperature, own)
