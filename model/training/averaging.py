"""Averaged weights, which score as if the learning rate had come to rest.

A score in the middle of a run is that of weights that still jump about. The mean over the last
steps does not, and costs a copy of the model instead of a decay of the rate.
"""

from __future__ import annotations

import copy
from typing import Generic, TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


class Averaged(Generic[Model]):
    """A copy of the model that follows it: the mean over about the last `share` of the steps.

    The window grows with the run, so that a long run forgets its beginning as a short one does.
    Not torch's `AveragedModel`, which counts its steps on the device and reads them there.
    """

    def __init__(self, model: Model, share: float, steps: int = 0) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.share, self.steps = share, steps

    @torch.no_grad()
    def update(self, model: Model) -> None:
        self.steps += 1
        weight = 1.0 / max(1.0, self.share * self.steps)
        means, values = tuple(self.model.parameters()), tuple(model.parameters())
        torch._foreach_lerp_(means, values, weight)
        for mine, now in zip(self.model.buffers(), model.buffers(), strict=True):
            mine.copy_(now)
