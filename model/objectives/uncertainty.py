"""Weights of the tasks' losses, learned with the model (Kendall, Gal and Cipolla, 2018).

A task has a log-variance s, and its loss L counts as exp(-s) L + s / 2; regression, whose error is
that of a normal distribution, as exp(-s) L / 2 + s / 2. All start at s = 0. The gradient of s is
written out here instead of left to autograd, so that replicas that train side by side need not
share a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Uncertainty:
    def __init__(self, kinds: Mapping[str, str], device: torch.device) -> None:
        """`kinds`: of each task."""
        self.kinds = kinds
        self.log_variances = {task: nn.Parameter(torch.zeros((), device=device)) for task in kinds}

    def factor(self, task: str) -> Tensor:
        """What the task's loss is to be multiplied with, held constant."""
        factor = torch.exp(-self.log_variances[task].detach())
        return factor / 2 if self.kinds[task] == "regression" else factor

    def gradient(self, task: str, loss: Tensor) -> Tensor:
        """Of factor * loss + s / 2 with respect to s."""
        return 0.5 - self.factor(task) * loss
