"""Cutting and dealing out the rows of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.data.batches import Batch
from model.parts import Part, deal


def part(task: str, rows: int, length: int, sides: int = 1) -> Part:
    ids = torch.arange(sides * rows * length).view(sides * rows, length)
    batch = Batch(ids, ids, ids, torch.arange(rows).float(), np.arange(rows), sides)
    return Part(task, batch, share=1.0, seed=1, of=rows)


def test_a_part_is_cut_with_its_share_and_its_place() -> None:
    ahead, behind = part("near", 5, 3, sides=2).cut(2)
    assert (ahead.first, behind.first) == (0, 2) and ahead.of == behind.of == 5
    assert (ahead.share, behind.share) == (pytest.approx(0.4), pytest.approx(0.6))
    assert behind.batch.labels.tolist() == [2, 3, 4]
    assert behind.batch.input_ids[:, 0].tolist() == [6, 9, 12, 21, 24, 27]  # both sides of each
    again, last = behind.cut(2)
    assert (again.first, last.first, last.of) == (2, 4, 5) and last.share == pytest.approx(0.2)


sizes = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=6)


@given(sizes, st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_every_row_is_dealt_once_and_in_order(rows: Any, shares: list[int]) -> None:
    parts = [part(str(n), count, length) for n, (count, length) in enumerate(rows)]
    dealt = deal(parts, shares)
    assert len(dealt) == len(shares)

    def all_rows(of: list[Part]) -> list[tuple[str, float]]:
        return [(p.task, label) for p in of for label in p.batch.labels.tolist()]

    assert all_rows([p for lane in dealt for p in lane]) == all_rows(parts)
    row = max(length for _, length in rows)
    done = 0.0
    for number, lane in enumerate(dealt[:-1], start=1):
        done += sum(p.work for p in lane)
        wanted = sum(p.work for p in parts) * sum(shares[:number]) / sum(shares)
        assert abs(done - wanted) <= number * row / 2 + 1e-6  # half a row at every border


def test_two_lanes_share_three_batches() -> None:
    first, second = deal([part("a", 16, 24), part("b", 16, 27), part("c", 16, 23)], [1, 1])
    assert [(p.task, len(p)) for p in first] == [("a", 16), ("b", 8)]
    assert [(p.task, len(p)) for p in second] == [("b", 8), ("c", 16)]


def test_work_with_smart_counts_for_more() -> None:
    heavy = replace(part("a", 16, 24), smart=True)
    first, second = deal([heavy, part("b", 16, 24), part("c", 16, 24)], [1, 1])
    assert [(p.task, len(p)) for p in first] == [("a", 14)]
    assert [(p.task, len(p)) for p in second] == [("a", 2), ("b", 16), ("c", 16)]


def test_a_row_cannot_be_cut() -> None:
    assert [len(lane) for lane in deal([part("a", 1, 5)], [1, 2])] == [0, 1]
