from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from model.objectives.surgery import surgery

SHAPES = [(3, 4), (5,), (2, 2, 2)]


def gradients(tasks: int, seed: int) -> list[list[Tensor | None]]:
    draw = torch.Generator().manual_seed(seed)
    return [
        [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in SHAPES]
        for _ in range(tasks)
    ]


def flat(gradient: list[Tensor | None]) -> Tensor:
    zeros = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    parts = [z if g is None else g for g, z in zip(gradient, zeros, strict=True)]
    return torch.cat([part.flatten() for part in parts])


def pcgrad(vectors: list[Tensor], seed: int) -> Tensor:
    """PCGrad on whole vectors, with the same order of tasks."""
    draw = torch.Generator().manual_seed(seed)
    total = torch.zeros_like(vectors[0])
    for i, own in enumerate(vectors):
        projected = own.clone()
        for j in torch.randperm(len(vectors), generator=draw).tolist():
            conflict = projected @ vectors[j]
            if j != i and conflict < 0:
                projected = projected - conflict / (vectors[j] @ vectors[j]) * vectors[j]
        total = total + projected
    return total


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_surgery_is_pcgrad(tasks: int, seed: int) -> None:
    given = gradients(tasks, seed)
    given[0][1] = None
    expected = pcgrad([flat(gradient) for gradient in given], seed + 100)
    torch.testing.assert_close(flat(surgery(given, seed=seed + 100)), expected)


def test_pcgrad_takes_a_conflict_out() -> None:
    given: list[list[Tensor | None]] = [[torch.tensor([1.0, 0.0])], [torch.tensor([-1.0, 1.0])]]
    (result,) = surgery(given, seed=0)
    # (1, 0) becomes (.5, .5) and (-1, 1) becomes (0, 1).
    assert result is not None and result.tolist() == pytest.approx([0.5, 1.5])


def test_pcgrad_leaves_agreeing_gradients_alone() -> None:
    given: list[list[Tensor | None]] = [[torch.rand(50), torch.rand(3)] for _ in range(3)]
    for index, result in enumerate(surgery(given, seed=1)):
        parts = [gradient[index] for gradient in given]
        total = parts[0] + parts[1] + parts[2]  # type: ignore[operator]
        assert result is not None and torch.equal(result, total)


def test_one_task_is_left_as_it_is() -> None:
    (given,) = gradients(1, 0)
    result = surgery([given], seed=0)
    assert all(a is b for a, b in zip(result, given, strict=True))


def test_a_zero_gradient_changes_nothing() -> None:
    one, two = gradients(2, 4)
    zero: list[Tensor | None] = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    none: list[Tensor | None] = [None] * len(SHAPES)
    plain = flat(surgery([one, two], seed=0))
    for empty in (zero, none):
        torch.testing.assert_close(flat(surgery([one, two, empty], seed=0)), plain)


def test_a_parameter_without_gradients_stays_without() -> None:
    one, two = gradients(2, 5)
    one[2] = two[2] = None
    assert surgery([one, two], seed=0)[2] is None


def test_the_given_gradients_are_not_changed() -> None:
    given = gradients(3, 6)
    before = [flat(gradient).clone() for gradient in given]
    surgery(given, seed=0)
    assert all(torch.equal(flat(g), b) for g, b in zip(given, before, strict=True))


def test_the_order_depends_on_the_seed_alone() -> None:
    given = gradients(5, 9)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = flat(surgery(given, seed=3))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(flat(surgery(given, seed=3)), first)
    seeds = random.Random(0).sample(range(1000), 20)
    assert any(not torch.equal(flat(surgery(given, seed=seed)), first) for seed in seeds)


def test_faults_are_named() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        surgery([], seed=0)
    with pytest.raises(ValueError, match="one gradient"):
        surgery([[None], [None, None]], seed=0)
