"""Linear layers by oneDNN where no gradients are wanted.

torch gives their products to MKL, which for as few rows as a batch has is the slower one.
oneDNN's operation has no gradients, and in training it brought nothing that could be seen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Linear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        plain = input.device.type == "cpu" and input.dtype == self.weight.dtype == torch.float32
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or not plain:
            return super().forward(input)
        operation: Any = torch.ops.mkldnn._linear_pointwise
        result: Tensor = operation(input, self.weight, self.bias, "none", [], "")
        return result


def has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
