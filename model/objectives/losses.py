"""The losses that a task can be trained with.

Every loss takes the head's outputs, [B, C] or [B, 1], and the labels, [B] as
floating point numbers, and gives the mean over the batch, so that the weight of
a task does not depend on its batch size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(_class_logits("cross_entropy", outputs), labels.long())


def dual_objective(outputs: Tensor, labels: Tensor) -> Tensor:
    """One-vs-all sigmoid cross-entropy: the right class up, and every other one down.

    Summed over the classes and averaged over the examples only.
    """
    logits = _class_logits("dual_objective", outputs)
    # Not one_hot, which looks at the labels and waits for them.
    classes = torch.arange(logits.shape[-1], device=logits.device)
    target = (labels.long().unsqueeze(-1) == classes).to(logits.dtype)
    each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return each.sum(dim=-1).mean()


def ordinal_log(outputs: Tensor, labels: Tensor, *, alpha: float = 1.5) -> Tensor:
    """-sum_i log(1 - p_i) |y - i|^alpha: a class costs more the farther it is from the label."""
    if alpha <= 0:
        raise ValueError(f"ordinal_log needs alpha > 0, but got {alpha}")
    logits = _class_logits("ordinal_log", outputs)
    count = logits.shape[-1]
    # 1 - p_i is the mass of all the other classes. Taken as a logsumexp over them it
    # stays finite, with a useful gradient, where 1 - softmax would round to 0.
    own = torch.eye(count, dtype=torch.bool, device=logits.device)
    others = logits.unsqueeze(-2).expand(-1, count, -1).masked_fill(own, -torch.inf)
    log_rest = others.logsumexp(dim=-1) - logits.logsumexp(dim=-1, keepdim=True)
    classes = torch.arange(count, device=logits.device, dtype=logits.dtype)
    distance = (labels.to(logits.dtype).unsqueeze(-1) - classes).abs()
    return -(log_rest * distance**alpha).sum(dim=-1).mean()


def binary_cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    logit = _single("binary_cross_entropy", outputs)
    return F.binary_cross_entropy_with_logits(logit, labels.to(logit.dtype))


def mse(outputs: Tensor, labels: Tensor) -> Tensor:
    value = _single("mse", outputs)
    return F.mse_loss(value, labels.to(value.dtype))


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "dual_objective": dual_objective,
    "ordinal_log": ordinal_log,
    "binary_cross_entropy": binary_cross_entropy,
    "mse": mse,
}


def make_loss(name: str, *, alpha: float = 1.5) -> Loss:
    """The loss of that name; `alpha` is for the one that has it and ignored by the others."""
    return partial(ordinal_log, alpha=alpha) if name == "ordinal_log" else LOSSES[name]


def _wide(outputs: Tensor) -> Tensor:
    """At least float32."""
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))


def _class_logits(name: str, outputs: Tensor) -> Tensor:
    if outputs.ndim != 2 or outputs.shape[-1] < 2:
        raise ValueError(f"{name} needs outputs of shape [B, C >= 2], but got {[*outputs.shape]}")
    return _wide(outputs)


def _single(name: str, outputs: Tensor) -> Tensor:
    # Without this check [B, 1] against [B] would broadcast to [B, B] in silence.
    if outputs.ndim != 2 or outputs.shape[-1] != 1:
        raise ValueError(f"{name} needs outputs of shape [B, 1], but got {[*outputs.shape]}")
    return _wide(outputs).squeeze(-1)
