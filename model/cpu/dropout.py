"""Dropout with cheap random numbers, for encoders on the CPU.

torch draws every Bernoulli number of a mask for itself, which on a CPU takes longer than all
other element-wise work of a layer. Sixteen random bits decide as well, and four such decisions
come out of each word of torch's own generator: the same seed still gives the same masks. A rate
is rounded to the nearest 1/65536, and what is kept is scaled by the rounded rate, so that
expectations are exact.
Elsewhere than on a CPU it is torch's own dropout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.common.rng import generator, of_rows

LEVELS = 1 << 16
LOWEST = -(1 << 63)


def dropout(values: Tensor, rate: float, training: bool = True) -> Tensor:
    if not training or rate == 0:
        return values
    dropped = round(rate * LEVELS)
    if values.device.type != "cpu" or not 0 < dropped < LEVELS:
        return F.dropout(values, rate, training)
    return values * keep_mask(values.shape, dropped, values.dtype)


def keep_mask(shape: Sequence[int], dropped: int, dtype: torch.dtype) -> Tensor:
    """0 with a probability of dropped / 65536, else what makes up for it."""
    kept = of_rows(shape, _bits) >= dropped - LEVELS // 2
    return kept.to(dtype).mul_(LEVELS / (LEVELS - dropped))


def _bits(shape: Sequence[int]) -> Tensor:
    """Sixteen for each place, as a signed number."""
    count = math.prod(shape)
    words = torch.empty(-(-count // 4), dtype=torch.int64)
    words.random_(LOWEST, None, generator=generator())
    return words.view(torch.int16)[:count].view(tuple(shape))


class Dropout(nn.Dropout):
    def forward(self, input: Tensor) -> Tensor:
        return dropout(input, self.p, self.training)


class PlainDropout(nn.Dropout):
    """`nn.Dropout`, mask for mask, but from the generator of the replica that is at work."""

    def forward(self, input: Tensor) -> Tensor:
        own = generator()
        if own is None or not self.training or self.p == 0:
            return super().forward(input)
        keep = 1 - self.p
        mask = of_rows(input.shape, lambda s: input.new_empty(s).bernoulli_(keep, generator=own))
        return input * mask.div_(keep)
