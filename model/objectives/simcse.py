"""Unsupervised SimCSE: the same sentences twice through dropout, told apart in the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def simcse_loss(first: Tensor, second: Tensor, temperature: float = 0.05) -> Tensor:
    """Each row of `first` must be nearest to its own row of `second`, [B, width] each.

    The other rows of the batch are the negatives, so a batch of one teaches nothing.
    """
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
        return F.cross_entropy(a @ b.T / temperature, own)
