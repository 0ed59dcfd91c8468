"""Linear layers for evaluation on the CPU, by oneDNN.

torch gives them to MKL, which for as few rows as a batch has is the slower one: a pass over dev
takes about a tenth longer with it (docs/performance.md). oneDNN's own has no gradients, so it
serves where none can be asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Linear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        plain = input.device.type == "cpu" and input.dtype == self.weight.dtype == torch.float32
        if not plain or not torch.is_inference_mode_enabled() or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        multiply: Any = torch.ops.mkldnn._linear_pointwise
        result: Tensor = multiply(input, self.weight, self.bias, "none", [], "")
        return result


def quicken_linear(module: nn.Module) -> None:
    """Put ours in the place of every plain `nn.Linear` inside; the parameters stay the same."""
    if not torch.backends.mkldnn.is_available() or not hasattr(
        torch.ops.mkldnn, "_linear_pointwise"
    ):
        return
    for parent in list(module.modules()):
        for name, child in parent.named_children():
            if type(child) is nn.Linear:
                biased = child.bias is not None
                ours = Linear(child.in_features, child.out_features, biased, device="meta")
                ours.weight, ours.bias = child.weight, child.bias
                setattr(parent, name, ours.train(child.training))
