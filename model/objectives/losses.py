"""The losses that a task can be trained with.

Every loss takes the head's outputs, [B, C] or [B, 1], and the labels, [B] as
floating point numbers, and gives the mean over the batch, so that the weight of
a task does not depend on its batch size. Those of `IN_BATCH` compare the rows of
a batch with each other: it must not be cut, and a larger one is another loss.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]
TINY = 1e-12  # keeps a spread of 0 from being divided by


def cross_entropy(outputs: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    logits = _class_logits("cross_entropy", outputs)
    return F.cross_entropy(logits, labels.long(), label_smoothing=smoothing)


def dual_objective(outputs: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """One-vs-all sigmoid cross-entropy: the right class up, and every other one down.

    Summed over the classes and averaged over the examples only.
    """
    logits = _class_logits("dual_objective", outputs)
    # Not one_hot, which looks at the labels and waits for them.
    classes = torch.arange(logits.shape[-1], device=logits.device)
    target = (labels.long().unsqueeze(-1) == classes).to(logits.dtype)
    target = _smooth(target, smoothing, logits.shape[-1])
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


def soft_ordinal(
    outputs: Tensor, labels: Tensor, *, alpha: float = 1.5, spread: float = 0.5
) -> Tensor:
    """Cross-entropy against soft labels: class i has exp(-|y - i|^alpha / spread) of the mass."""
    logits = _class_logits("soft_ordinal", outputs)
    classes = torch.arange(logits.shape[-1], device=logits.device, dtype=logits.dtype)
    distance = (labels.to(logits.dtype).unsqueeze(-1) - classes).abs()
    return F.cross_entropy(logits, torch.softmax(-(distance**alpha) / spread, dim=-1))


def binary_cross_entropy(outputs: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    logit = _single("binary_cross_entropy", outputs)
    target = _smooth(labels.to(logit.dtype), smoothing, 2)
    return F.binary_cross_entropy_with_logits(logit, target)


def pearson(outputs: Tensor, labels: Tensor, *, anchor: float = 0.1) -> Tensor:
    """1 - r of the batch's outputs and labels. A batch without any spread has an r of 0."""
    value = _single("pearson", outputs)
    target = labels.to(value.dtype)
    a, b = value - value.mean(), target - target.mean()
    r = (a * b).sum() / ((a.square().sum() + TINY).sqrt() * (b.square().sum() + TINY).sqrt())
    return 1 - r + anchor * F.mse_loss(value, target)


def cosent(
    outputs: Tensor,
    labels: Tensor,
    *,
    width: float = 1.0,
    scale: float = 20.0,
    anchor: float = 0.1,
) -> Tensor:
    """log(1 + sum exp(scale (s_j - s_i))) over all pairs of rows whose labels say i above j.

    As published it is for cosines. Here s is the output as a share of the labels' range, of that
    `width`, so that it fits every head. Not a mean: the sum is in the logarithm.
    """
    value = _single("cosent", outputs)
    target = labels.to(value.dtype)
    share = value / width * scale
    rises = (share.unsqueeze(0) - share.unsqueeze(1)).masked_fill(
        target.unsqueeze(1) <= target.unsqueeze(0), -torch.inf
    )
    total = torch.cat([rises.flatten(), rises.new_zeros(1)]).logsumexp(0)
    return total + anchor * F.mse_loss(value, target)


def mse(outputs: Tensor, labels: Tensor) -> Tensor:
    value = _single("mse", outputs)
    return F.mse_loss(value, labels.to(value.dtype))


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "dual_objective": dual_objective,
    "ordinal_log": ordinal_log,
    "soft_ordinal": soft_ordinal,
    "binary_cross_entropy": binary_cross_entropy,
    "mse": mse,
    "pearson": pearson,
    "cosent": cosent,
}
# Made of comparisons between the rows of a batch.
IN_BATCH = frozenset({"pearson", "cosent"})


def make_loss(name: str, **options: float) -> Loss:
    """The loss of that name, with those of the options that it has; the others are for others."""
    loss = LOSSES[name]
    known = inspect.signature(loss).parameters
    return partial(loss, **{key: value for key, value in options.items() if key in known})


def _smooth(target: Tensor, smoothing: float, classes: int) -> Tensor:
    """A share `smoothing` of the mass goes to all classes alike."""
    return target if smoothing == 0 else target * (1 - smoothing) + smoothing / classes


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
