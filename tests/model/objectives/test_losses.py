from __future__ import annotations

import math
import statistics

import pytest
import torch
from torch import Tensor

from model.objectives.losses import IN_BATCH, LOSSES, make_loss, ordinal_log

ONE_OUTPUT = {"binary_cross_entropy", "mse", *IN_BATCH}  # the others need one output per class


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
    if name == "soft_ordinal":
        near = [math.exp(-math.pow(abs(y - i), alpha) / 0.5) for i in range(len(row))]
        likely = softmax(row)
        return -sum(n / sum(near) * math.log(p) for n, p in zip(near, likely, strict=True))
    if name == "binary_cross_entropy":
        p = sigmoid(row[0])
        return -(label * math.log(p) + (1 - label) * math.log(1 - p))
    return (row[0] - label) ** 2


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("name", sorted(LOSSES.keys() - IN_BATCH))
def test_a_loss_is_the_mean_of_its_formula(name: str, alpha: float) -> None:
    outputs, labels = batch(name)
    rows = zip(outputs.tolist(), labels.tolist(), strict=True)
    each = [by_hand(name, row, label, alpha) for row, label in rows]
    loss = make_loss(name, alpha=alpha)(outputs, labels)
    assert loss.item() == pytest.approx(sum(each) / len(each), rel=1e-9)


def values() -> tuple[list[float], list[float]]:
    """Outputs and labels of a regression, two labels alike."""
    return [0.3, 2.5, 4.1, 1.7, 2.2], [0.0, 3.0, 5.0, 3.0, 1.0]


def squared(outputs: list[float], labels: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(outputs, labels, strict=True)) / len(labels)


@pytest.mark.parametrize("anchor", [0.0, 0.3])
def test_pearson_is_one_less_the_correlation(anchor: float) -> None:
    outputs, labels = values()
    loss = make_loss("pearson", anchor=anchor)(
        torch.tensor(outputs, dtype=torch.float64)[:, None], torch.tensor(labels)
    )
    expected = 1 - statistics.correlation(outputs, labels) + anchor * squared(outputs, labels)
    assert loss.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("anchor", [0.0, 0.3])
def test_cosent_wants_the_order_of_the_labels(anchor: float) -> None:
    outputs, labels = values()
    total = sum(
        math.exp(7 * (low - high) / 5)
        for high, above in zip(outputs, labels, strict=True)
        for low, below in zip(outputs, labels, strict=True)
        if above > below
    )
    loss = make_loss("cosent", scale=7.0, width=5.0, anchor=anchor)(
        torch.tensor(outputs, dtype=torch.float64)[:, None], torch.tensor(labels)
    )
    expected = math.log1p(total) + anchor * squared(outputs, labels)
    assert loss.item() == pytest.approx(expected, rel=1e-9)


def test_cosent_of_cosines_is_the_published_one() -> None:
    published = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    u, v = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0)).double()
    labels = torch.tensor([0.0, 1, 2, 3, 3, 4, 5, 5]).double()
    theirs = published.CoSENTLoss(torch.nn.Identity())
    expected = theirs.compute_loss_from_embeddings([u, v], labels)
    cosines = torch.cosine_similarity(u, v)[:, None]
    torch.testing.assert_close(make_loss("cosent", anchor=0.0)(cosines, labels), expected)


@pytest.mark.parametrize("name", sorted(IN_BATCH))
def test_a_batch_with_nothing_to_compare_is_no_fault(name: str) -> None:
    for labels in (torch.zeros(1), torch.full((4,), 2.0)):
        outputs = torch.zeros(len(labels), 1, requires_grad=True)
        loss = LOSSES[name](outputs, labels)
        (gradient,) = torch.autograd.grad(loss, outputs)
        assert loss.isfinite() and gradient.isfinite().all()


@pytest.mark.parametrize("name", ["cross_entropy", "dual_objective", "binary_cross_entropy"])
def test_smoothing_gives_a_share_of_the_label_to_all_classes(name: str) -> None:
    outputs, labels = batch(name)
    classes = 2 if name in ONE_OUTPUT else 5
    plain = LOSSES[name]
    if name == "dual_objective":  # linear in each target, one of which is the label's
        targets = 0.8 * torch.eye(5)[labels.long()] + 0.2 / 5
        each = torch.nn.functional.binary_cross_entropy_with_logits(
            outputs, targets.double(), reduction="none"
        )
        expected = each.sum(-1).mean()
    else:
        others = [plain(outputs, torch.full_like(labels, float(c))) for c in range(classes)]
        expected = 0.8 * plain(outputs, labels) + 0.2 * sum(others) / classes
    torch.testing.assert_close(make_loss(name, smoothing=0.2)(outputs, labels), expected)


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {"cosent"}))  # whose sum is in a logarithm
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
