"""Distillation (Hinton et al., 2015): a teacher's answers as soft labels beside the true ones.

    loss = (1 - weight) * loss(outputs, labels) + weight * T^2 * H(teacher^(1/T), outputs / T)

H is the cross-entropy in the form that the task's loss trains: a softmax, or a sigmoid per class.
T^2 keeps the gradient's size as the temperature T grows. A regression has values, and no T.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

VALUES = ("mse", "pearson", "cosent")  # losses of regressions, whose answers are values


def distilled(
    loss: Tensor, name: str, outputs: Tensor, answers: Tensor, weight: float, temperature: float
) -> Tensor:
    """The loss of the labels, by the loss of that name, mixed with that of the answers."""
    return (1 - weight) * loss + weight * soft_loss(name, outputs, answers, temperature)


def soft_loss(name: str, outputs: Tensor, answers: Tensor, temperature: float = 1.0) -> Tensor:
    """Of probabilities [B, C] (two columns for binary) or values [B, 1]; the mean over rows."""
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    answers = answers.to(outputs.dtype)
    if name in VALUES:
        return F.mse_loss(outputs, answers)
    target = softened(answers, temperature)
    if outputs.shape[-1] == 1:
        target = target[:, 1:]
    logits = outputs / temperature
    if name in ("binary_cross_entropy", "dual_objective"):
        each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    else:
        each = -target * logits.log_softmax(dim=-1)
    return temperature**2 * each.sum(dim=-1).mean()


def softened(probabilities: Tensor, temperature: float) -> Tensor:
    powers = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny) ** (1 / temperature)
    return powers / powers.sum(dim=-1, keepdim=True)
