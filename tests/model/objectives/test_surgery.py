from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from model.objectives.aggregators import CAUTION, ON_THE_HOST, WEIGHTINGS
from model.objectives.surgery import pcgrad as by_gramian
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


def as_matrix(given: list[list[Tensor | None]]) -> Tensor:
    return torch.stack([flat(gradient) for gradient in given])


def least_over_cone(gramian: Tensor, start: Tensor) -> Tensor:
    """min v'Gv over v >= start, by trying every set of places where v may rise."""
    best, value = start, start @ gramian @ start
    count = len(start)
    for mask in range(1, 2**count):
        free = [i for i in range(count) if mask >> i & 1]
        held = [i for i in range(count) if i not in free]
        v = start.clone()
        wanted = -gramian[free][:, held] @ start[held]
        v[free] = torch.linalg.solve(gramian[free][:, free], wanted)
        if (v >= start - 1e-12).all() and v @ gramian @ v < value:
            best, value = v, v @ gramian @ v
    return best


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tasks", [2, 3, 4])
def test_upgrad_projects_every_gradient_to_where_it_hurts_none(tasks: int, seed: int) -> None:
    given = gradients(tasks, seed)
    matrix = as_matrix(given)
    gramian = matrix @ matrix.T
    each = [least_over_cone(gramian, row) for row in torch.eye(tasks, dtype=torch.float64)]
    found = flat(surgery(given, WEIGHTINGS["upgrad"], seed=0))
    torch.testing.assert_close(found, torch.stack(each).sum(0) @ matrix)
    assert (matrix @ found > -1e-9).all()


@pytest.mark.parametrize("seed", range(4))
def test_mgda_takes_the_shortest_combination(seed: int) -> None:
    given = gradients(2, seed)
    a, b = as_matrix(given)
    share = ((b - a) @ b / ((a - b) @ (a - b))).clamp(0, 1)
    expected = 2 * (share * a + (1 - share) * b)
    torch.testing.assert_close(flat(surgery(given, WEIGHTINGS["mgda"], seed=0)), expected)


@pytest.mark.parametrize("seed", range(4))
def test_imtl_g_has_equal_projections_onto_all(seed: int) -> None:
    matrix = as_matrix(given := gradients(3, seed))
    found = flat(surgery(given, WEIGHTINGS["imtl_g"], seed=0))
    along = matrix @ found / matrix.norm(dim=1)
    torch.testing.assert_close(along, along.mean().expand(3))
    weights = torch.linalg.lstsq(matrix.T, found[:, None]).solution
    assert weights.sum().item() == pytest.approx(3)


@pytest.mark.parametrize("seed", range(4))
def test_aligned_mtl_makes_the_principal_directions_alike(seed: int) -> None:
    matrix = as_matrix(given := gradients(3, seed))
    u, sizes, v = torch.linalg.svd(matrix, full_matrices=False)
    expected = sizes[-1] * (u @ v).sum(0)
    torch.testing.assert_close(flat(surgery(given, WEIGHTINGS["aligned_mtl"], seed=0)), expected)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_cagrad_is_the_best_of_its_ball_for_the_worst_task(tasks: int, seed: int) -> None:
    matrix = as_matrix(given := gradients(tasks, seed))
    mean = matrix.mean(0)
    found = flat(surgery(given, WEIGHTINGS["cagrad"], seed=0)) * (1 + CAUTION) / tasks
    away, radius = found - mean, CAUTION * mean.norm()
    assert away.norm().item() == pytest.approx(radius.item())
    # Optimal: the worst task gains as much as that combination of gradients allows that lies along
    # the way from the mean. No point of the ball gives any combination more.
    combination = torch.linalg.lstsq(matrix.T, away[:, None]).solution[:, 0]
    assert (combination > -1e-6 * combination.max()).all()
    bound = (combination / combination.sum() @ matrix) @ found
    torch.testing.assert_close((matrix @ found).min(), bound, rtol=1e-5, atol=1e-6)
    draw = torch.Generator().manual_seed(seed)
    others = torch.randn(1000, len(mean), generator=draw, dtype=torch.float64)
    others = mean + radius * others / others.norm(dim=1, keepdim=True)
    assert ((others @ matrix.T).min(1).values < (matrix @ found).min()).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_nash_mtl_is_the_bargain_of_the_tasks(tasks: int, seed: int) -> None:
    matrix = as_matrix(given := gradients(tasks, seed))
    found = flat(surgery(given, WEIGHTINGS["nash_mtl"], seed=0))
    size = matrix.square().sum(1).mean()
    weights = torch.linalg.lstsq(matrix.T, found[:, None]).solution[:, 0]
    torch.testing.assert_close(matrix @ found / size, 1 / weights, rtol=1e-4, atol=1e-6)
    assert (weights > 0).all()


@pytest.mark.parametrize("method", ["cagrad", "nash_mtl"])
@pytest.mark.parametrize(
    "rows", [[[1, 0], [-1, 0]], [[0, 0], [0, 0]], [[1, 2], [0, 0]], [[1, 1], [1, 1]]]
)
def test_opposed_equal_and_missing_gradients_give_numbers(rows: Any, method: str) -> None:
    matrix = torch.tensor(rows, dtype=torch.float64)
    (found,) = surgery([[row] for row in matrix], WEIGHTINGS[method], seed=0)
    assert found is not None and found.isfinite().all()
    assert found.norm() <= 3 * matrix.norm() and (matrix @ found > -1e-6).all()


@pytest.mark.parametrize("method", WEIGHTINGS)
def test_gradients_at_right_angles_and_alike_in_size_are_summed(method: str) -> None:
    given: list[list[Tensor | None]] = [[row] for row in torch.eye(3, dtype=torch.float64)]
    (found,) = surgery(given, WEIGHTINGS[method], seed=0)
    torch.testing.assert_close(found, torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ON_THE_HOST)
def test_gradients_that_are_no_numbers_stay_none(method: str) -> None:
    """The run looks at the norm and ends as diverged; or float16 leaves the step out."""
    given = gradients(2, 0)
    given[0][0] = torch.full(SHAPES[0], torch.inf, dtype=torch.float64)
    assert not flat(surgery(given, WEIGHTINGS[method], seed=0)).isfinite().all()


@pytest.mark.parametrize("at_once", [1, 13, 2**24])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("tasks", [2, 3, 5])
def test_surgery_is_pcgrad(
    tasks: int, seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.objectives.surgery.AT_ONCE_ON_CPU", at_once)
    given = gradients(tasks, seed)
    given[0][1] = None  # the others' are not
    expected = pcgrad([flat(gradient) for gradient in given], seed + 100)
    torch.testing.assert_close(flat(surgery(given, by_gramian, seed=seed + 100)), expected)


def test_pcgrad_takes_a_conflict_out() -> None:
    given: list[list[Tensor | None]] = [[torch.tensor([1.0, 0.0])], [torch.tensor([-1.0, 1.0])]]
    (result,) = surgery(given, by_gramian, seed=0)
    # (1, 0) becomes (.5, .5) and (-1, 1) becomes (0, 1).
    assert result is not None and result.tolist() == pytest.approx([0.5, 1.5])


def test_pcgrad_leaves_agreeing_gradients_alone() -> None:
    given: list[list[Tensor | None]] = [[torch.rand(50), torch.rand(3)] for _ in range(3)]
    totals = [a + b + c for a, b, c in zip(*given, strict=True)]  # type: ignore[operator]
    for total, result in zip(totals, surgery(given, by_gramian, seed=1), strict=True):
        assert result is not None and torch.equal(result, total)


def test_one_task_is_left_as_it_is() -> None:
    (given,) = gradients(1, 0)
    result = surgery([given], by_gramian, seed=0)
    assert all(a is b for a, b in zip(result, given, strict=True))


def test_a_zero_gradient_changes_nothing() -> None:
    zero: list[Tensor | None] = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    none: list[Tensor | None] = [None] * len(SHAPES)
    plain = flat(surgery(gradients(2, 4), by_gramian, seed=0))
    for empty in (zero, none):
        found = surgery([*gradients(2, 4), empty], by_gramian, seed=0)
        torch.testing.assert_close(flat(found), plain)


def test_a_parameter_without_gradients_stays_without() -> None:
    one, two = gradients(2, 5)
    one[2] = two[2] = None
    assert surgery([one, two], by_gramian, seed=0)[2] is None


def test_the_order_depends_on_the_seed_alone() -> None:
    def found(seed: int) -> Tensor:
        return flat(surgery(gradients(5, 9), by_gramian, seed=seed))

    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = found(3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(found(3), first)
    seeds = random.Random(0).sample(range(1000), 20)
    assert any(not torch.equal(found(seed), first) for seed in seeds)


def test_faults_are_named() -> None:
    with pytest.raises(ValueError, match="at least one task"):
        surgery([], by_gramian, seed=0)
    with pytest.raises(ValueError, match="one gradient"):
        surgery([[None], [None, None]], by_gramian, seed=0)
