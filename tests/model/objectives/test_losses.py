from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from model.objectives.losses import LOSSES, make_loss, ordinal_log

ONE_OUTPUT = {"binary_cross_entropy", "mse"}  # the others need one output per class


def batch(name: str, size: int = 6) -> tuple[Tensor, Tensor]:
    """Outputs and labels that suit a loss."""
    draw = torch.Generator().manual_seed(3)
    width = 1 if name in ONE_OUTPUT else 5
    labels = torch.randint(0, 2 if width == 1 else width, (size,), generator=draw)
    return torch.randn(size, width, generator=draw, dtype=torch.float64), labels.double()


def softmax(row: list[float]) -> list[float]:
    total = sum(math.exp(z) for z in row)
    return [math.exp(z) / total for z in row]


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def by_hand(name: str, row: list[float], label: float, alpha: float) -> float:
    """The loss of one example, as the formulas have it."""
    y = int(label)
    if name == "cross_entropy":
        return -math.log(softmax(row)[y])
    if name == "dual_objective":
        return sum(-math.log(sigmoid(z) if i == y else 1 - sigmoid(z)) for i, z in enumerate(row))
    if name == "ordinal_log":
        return -sum(
            math.log(1 - p) * math.pow(abs(y - i), alpha) for i, p in enumerate(softmax(row))
        )
    if name == "binary_cross_entropy":
        p = sigmoid(row[0])
        return -(label * math.log(p) + (1 - label) * math.log(1 - p))
    return (row[0] - label) ** 2


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_the_mean_of_its_formula(name: str, alpha: float) -> None:
    outputs, labels = batch(name)
    rows = zip(outputs.tolist(), labels.tolist(), strict=True)
    each = [by_hand(name, row, label, alpha) for row, label in rows]
    loss = make_loss(name, alpha=alpha)(outputs, labels)
    assert loss.item() == pytest.approx(sum(each) / len(each), rel=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_does_not_depend_on_the_batch_size(name: str) -> None:
    outputs, labels = batch(name)
    twice = LOSSES[name](outputs.repeat(2, 1), labels.repeat(2))
    torch.testing.assert_close(twice, LOSSES[name](outputs, labels))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_has_exact_gradients(name: str) -> None:
    outputs, labels = batch(name)
    assert torch.autograd.gradcheck(lambda x: LOSSES[name](x, labels), (outputs.requires_grad_(),))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_bf16_outputs_is_computed_in_float32(name: str) -> None:
    outputs, labels = batch(name)
    low = outputs.bfloat16()
    loss = LOSSES[name](low, labels.float())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, LOSSES[name](low.float(), labels.float()))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_refuses_outputs_of_the_wrong_width(name: str) -> None:
    wrong = torch.zeros(4, 3) if name in ONE_OUTPUT else torch.zeros(4, 1)
    with pytest.raises(ValueError, match=name):
        LOSSES[name](wrong, torch.zeros(4))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_stays_finite_when_it_is_certain_and_wrong(name: str) -> None:
    outputs = torch.full((2, 1 if name in ONE_OUTPUT else 5), -200.0)
    outputs[:, -1] = 200.0
    outputs.requires_grad_()
    loss = LOSSES[name](outputs, torch.zeros(2))
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert loss.isfinite() and loss > 100
    assert gradient.isfinite().all() and gradient[:, -1].min() > 0


def test_ordinal_log_costs_more_far_from_the_label() -> None:
    label = torch.tensor([0.0])
    near, far = (torch.tensor([row]) for row in ([0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0]))
    assert ordinal_log(near, label) < ordinal_log(far, label)


def test_ordinal_log_refuses_an_alpha_that_forgets_the_distance() -> None:
    with pytest.raises(ValueError, match="alpha > 0"):
        ordinal_log(torch.zeros(1, 3), torch.zeros(1), alpha=0.0)
