from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from model.objectives.distill import distilled, soft_loss, softened
from model.objectives.losses import LOSSES

SOFTMAX = ("cross_entropy", "ordinal_log")
ROWS = torch.Generator().manual_seed(0)
LOGITS = torch.randn(6, 4, generator=ROWS)
TEACHER = torch.randn(6, 4, generator=ROWS)


@pytest.mark.parametrize("name", SOFTMAX)
@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_with_a_softmax_it_is_hintons_formula(name: str, temperature: float) -> None:
    """The Kullback-Leibler divergence of both at a temperature, and the teacher's own entropy."""
    target = (TEACHER / temperature).softmax(-1)
    log = (LOGITS / temperature).log_softmax(-1)
    divergence = F.kl_div(log, target, reduction="batchmean")
    entropy = -(target * target.log()).sum(-1).mean()
    found = soft_loss(name, LOGITS, TEACHER.softmax(-1), temperature)
    torch.testing.assert_close(found, temperature**2 * (divergence + entropy))


@pytest.mark.parametrize("name", ["cross_entropy", "dual_objective", "binary_cross_entropy", "mse"])
def test_a_teacher_that_is_sure_teaches_as_the_labels_do(name: str) -> None:
    single = name in ("binary_cross_entropy", "mse")
    outputs = LOGITS[:, :1] if single else LOGITS
    labels = torch.tensor([0.0, 1, 1, 0, 1, 0])
    answers = labels[:, None] if name == "mse" else torch.eye(2 if single else 4)[labels.long()]
    hard = LOSSES[name](outputs, labels)
    torch.testing.assert_close(soft_loss(name, outputs, answers), hard)
    torch.testing.assert_close(distilled(hard, name, outputs, answers, 0.3, 1.0), hard)


def test_the_weight_mixes_labels_and_answers() -> None:
    hard, soft = torch.tensor(2.0), soft_loss("cross_entropy", LOGITS, TEACHER.softmax(-1), 2.0)
    for weight in (0.0, 0.25, 1.0):
        found = distilled(hard, "cross_entropy", LOGITS, TEACHER.softmax(-1), weight, 2.0)
        torch.testing.assert_close(found, (1 - weight) * hard + weight * soft)


def test_a_temperature_softens_probabilities_as_it_does_logits() -> None:
    torch.testing.assert_close(softened(TEACHER.softmax(-1), 3.0), (TEACHER / 3).softmax(-1))
    assert np.isfinite(softened(torch.eye(3), 2.0).numpy()).all()
