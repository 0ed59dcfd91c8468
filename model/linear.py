"""Linear layers on the CPU, by oneDNN.

torch gives their products to MKL, which for as few rows as a batch has is the slower one
(docs/performance.md has by how much). oneDNN's own operation has no gradients, so here is what
goes back, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_held: ContextVar[bool] = ContextVar("weights_held", default=False)


@contextmanager
def weights_held() -> Iterator[None]:
    """Passes within ask for no gradients of the weights.

    For gradients of the inputs alone: autograd would not tell an operation written in Python
    that the rest of its work is not wanted.
    """
    before = _held.set(True)
    try:
        yield
    finally:
        _held.reset(before)


def _multiply(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    operation: Any = torch.ops.mkldnn._linear_pointwise
    result: Tensor = operation(rows, weight, bias, "none", [], "")
    return result


class _Product(torch.autograd.Function):
    """Of a matrix of rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(rows if ctx.needs_input_grad[1] else None, weight)
        return _multiply(rows, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias = ctx.needs_input_grad
        return (
            _multiply(gradient, weight.t(), None) if of_rows else None,
            _of_weight(gradient, rows) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def _of_weight(gradient: Tensor, rows: Tensor) -> Tensor:
    """The one product that MKL is better at, unless what comes out is wider than high."""
    if rows.shape[1] > gradient.shape[1] and len(rows):
        return _multiply(gradient.t(), rows.t(), None)
    return gradient.t() @ rows


class Linear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        plain = input.device.type == "cpu" and input.dtype == weight.dtype == torch.float32
        if not plain or input.dim() < 2 or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        if not torch.is_grad_enabled():
            return _multiply(input, weight, bias)
        if _held.get():
            weight, bias = weight.detach(), None if bias is None else bias.detach()
        # Rows outside of it: what comes out of it as a view may not be changed in place, and
        # some encoders do that.
        rows = input.flatten(0, -2)
        made: Tensor = _Product.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
        result: Tensor = made.unflatten(0, input.shape[:-1])
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
