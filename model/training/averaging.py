"""Averaged weights, which score as if the learning rate had come to rest.

A score in the middle of a run is that of weights that still jump about. The mean over the last
steps does not, and costs a copy of the model instead of a decay of the rate.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def averaged(model: nn.Module, share: float) -> AveragedModel:
    """A copy of the model that follows it: the mean over about the last `share` of the steps.

    The window grows with the run, so that a long run forgets its beginning as a short one does.
    """

    def update(means: Sequence[Tensor], values: Sequence[Tensor], steps: Tensor | int) -> None:
        weight = 1.0 / max(1.0, share * (int(steps) + 1))
        torch._foreach_lerp_(list(means), list(values), weight)

    return AveragedModel(model, multi_avg_fn=update)
