from __future__ import annotations

import math

import pytest
import torch

from model.objectives.simcse import simcse_loss


def by_hand(first: list[list[float]], second: list[list[float]], temperature: float) -> float:
    def cosine(a: list[float], b: list[float]) -> float:
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return dot / math.hypot(*a) / math.hypot(*b)

    total = 0.0
    for i, a in enumerate(first):
        scores = [math.exp(cosine(a, b) / temperature) for b in second]
        total -= math.log(scores[i] / sum(scores))
    return total / len(first)


@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_the_loss_is_its_formula(temperature: float) -> None:
    first, second = torch.randn(2, 5, 7, dtype=torch.float64)
    expected = by_hand(first.tolist(), second.tolist(), temperature)
    assert simcse_loss(first, second, temperature).item() == pytest.approx(expected, rel=1e-9)


def test_the_length_of_an_embedding_does_not_matter() -> None:
    first, second = torch.randn(2, 5, 7)
    torch.testing.assert_close(simcse_loss(3 * first, second), simcse_loss(first, second))


def test_rows_in_the_wrong_order_cost_more() -> None:
    rows = torch.eye(4)
    assert simcse_loss(rows, rows) < 1e-6 < simcse_loss(rows, rows.flip(0))


def test_autocast_does_not_round_the_similarities() -> None:
    first, second = torch.randn(2, 16, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = simcse_loss(first, second)
    assert torch.equal(rounded, simcse_loss(first, second))


def test_faults_are_named() -> None:
    with pytest.raises(ValueError, match="above 0, but got 0"):
        simcse_loss(torch.eye(2), torch.eye(2), 0.0)
    with pytest.raises(ValueError, match="one shape"):
        simcse_loss(torch.eye(2), torch.eye(3))


@pytest.mark.parametrize("negatives", ["both", "all"])
def test_negatives_of_the_same_view_are_as_the_sum_has_them(negatives: str) -> None:
    first, second = torch.randn(2, 5, 7, dtype=torch.float64)
    a = [row / row.norm() for row in first]
    b = [row / row.norm() for row in second]
    total = 0.0
    for i in range(5):
        others = sum(math.exp(float(a[i] @ row) / 0.3) for row in b)
        same = sum(
            math.exp(float(a[i] @ a[j]) / 0.3) for j in range(5) if negatives == "all" or j != i
        )
        total -= math.log(math.exp(float(a[i] @ b[i]) / 0.3) / (others + same))
    found = simcse_loss(first, second, 0.3, negatives)
    assert found.item() == pytest.approx(total / 5, rel=1e-9)


def test_unknown_negatives_are_told() -> None:
    with pytest.raises(ValueError, match="'none' are no negatives; known: other, both, all"):
        simcse_loss(torch.eye(2), torch.eye(2), negatives="none")
