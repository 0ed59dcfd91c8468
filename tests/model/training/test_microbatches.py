"""Cutting the rows of a step, for two replicas of the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.data.batches import Batch
from model.training.microbatches import MicroBatch, cut_in_two


def part(task: str, rows: int, length: int, sides: int = 1) -> MicroBatch:
    ids = torch.arange(sides * rows * length).view(sides * rows, length)
    batch = Batch(ids, ids, ids, torch.arange(rows).float(), np.arange(rows), sides)
    return MicroBatch(task, batch, share=1.0, seed=1, of=rows)


def test_a_part_is_cut_with_its_share_and_its_place() -> None:
    ahead, behind = part("near", 5, 3, sides=2).cut(2)
    assert (ahead.first, behind.first) == (0, 2) and ahead.of == behind.of == 5
    assert (ahead.share, behind.share) == (pytest.approx(0.4), pytest.approx(0.6))
    assert behind.batch.labels.tolist() == [2, 3, 4]
    assert behind.batch.input_ids[:, 0].tolist() == [6, 9, 12, 21, 24, 27]  # both sides of each
    again, last = behind.cut(2)
    assert (again.first, last.first, last.of) == (2, 4, 5) and last.share == pytest.approx(0.2)


@pytest.mark.parametrize(("share", "taken"), [(0.5, 0), (0.6, 0), (0.8, 1)])
def test_a_batch_whose_rows_are_compared_stays_whole(share: float, taken: int) -> None:
    parts = [replace(part("near", 6, 2), whole=True), part("mood", 2, 2)]
    first, second = cut_in_two(parts, share if taken else share / 2)
    assert [p.task for p in first] == ["near"] * taken
    assert sum(len(p) for p in first + second) == 8


sizes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=6)


@given(sizes, st.sampled_from([0.5, 2 / 3, 0.6]))
def test_every_row_is_in_one_of_two_and_in_order(rows: Any, share: float) -> None:
    parts = [part(str(n), count, length) for n, (count, length) in enumerate(rows)]
    first, second = cut_in_two(parts, share)

    def all_rows(of: list[MicroBatch]) -> list[tuple[str, float]]:
        return [(p.task, label) for p in of for label in p.batch.labels.tolist()]

    assert all_rows(first + second) == all_rows(parts)
    wanted = share * sum(p.work for p in parts)
    half_a_row = max(length for _, length in rows) / 2
    assert abs(sum(p.work for p in first) - wanted) <= half_a_row + 1e-6


def test_three_batches_in_two() -> None:
    first, second = cut_in_two([part("a", 16, 24), part("b", 16, 27), part("c", 16, 23)], 0.5)
    assert [(p.task, len(p)) for p in first] == [("a", 16), ("b", 8)]
    assert [(p.task, len(p)) for p in second] == [("b", 8), ("c", 16)]


def test_work_with_smart_counts_for_more() -> None:
    heavy = replace(part("a", 16, 24), smart=True)
    first, second = cut_in_two([heavy, part("b", 16, 24), part("c", 16, 24)], 0.5)
    assert [(p.task, len(p)) for p in first] == [("a", 14)]
    assert [(p.task, len(p)) for p in second] == [("a", 2), ("b", 16), ("c", 16)]


def test_a_row_cannot_be_cut() -> None:
    assert [len(side) for side in cut_in_two([part("a", 1, 5)], 1 / 3)] == [0, 1]
    assert [len(side) for side in cut_in_two([part("a", 1, 5)], 2 / 3)] == [1, 0]
