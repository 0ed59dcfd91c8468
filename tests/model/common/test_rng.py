"""Random numbers for rows that are cut off a batch, and for threads side by side."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from model.common.rng import generator, of_rows, own_rng, seed_rng
from model.cpu.dropout import Dropout, PlainDropout

CPU = torch.device("cpu")
SHAPES = [(6, 5), (6, 3, 5), (12, 2, 3, 3)]  # the last: both sentences of six pairs


def masked(module: nn.Module, shape: tuple[int, ...], first: int, rows: int) -> Tensor:
    with own_rng(first, rows, 6, sides=shape[0] // 6):
        seed_rng(4, CPU)
        mask: Tensor = module(torch.ones(shape[0] // 6 * rows, *shape[1:]))
    return mask.view(shape[0] // 6, rows, *shape[1:])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("module", [Dropout(0.4), PlainDropout(0.4)])
def test_rows_have_the_masks_that_they_have_in_the_whole(
    module: nn.Module, shape: tuple[int, ...]
) -> None:
    seed_rng(4, CPU)
    whole = module(torch.ones(shape)).view(shape[0] // 6, 6, *shape[1:])
    assert 0 < float((whole == 0).float().mean()) < 1
    for first, rows in ((0, 6), (0, 2), (2, 4), (5, 1)):
        assert torch.equal(masked(module, shape, first, rows), whole[:, first : first + rows])


def test_what_has_no_rows_is_drawn_as_it_is() -> None:
    asked: list[Sequence[int]] = []

    def draw(shape: Sequence[int]) -> Tensor:
        asked.append(shape)
        return torch.zeros(tuple(shape))

    with own_rng(1, 4, 8, sides=2):
        for shape in [(7, 2), (512, 2), (4, 2), (8, 2)]:  # the first two have no rows of the batch
            assert of_rows(shape, draw).shape == shape
    assert asked == [(7, 2), (512, 2), (8, 2), (16, 2)]


def test_torchs_own_generator_is_left_alone() -> None:
    before = torch.default_generator.get_state()
    with own_rng(0, 3, 3):
        seed_rng(1, CPU)
        Dropout(0.5)(torch.ones(3, 4))
        PlainDropout(0.5)(torch.ones(3, 4))
        assert generator() is not None
    assert generator() is None
    assert torch.equal(torch.default_generator.get_state(), before)


def test_threads_draw_each_for_itself() -> None:
    def draw(seed: int) -> Tensor:
        with own_rng(0, 9, 9):
            seed_rng(seed, CPU)
            return torch.cat([Dropout(0.5)(torch.ones(9, 300)) for _ in range(50)])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(draw, [1, 2, 3, 4] * 3))
    assert all(torch.equal(mask, found[n % 4]) for n, mask in enumerate(found))
    assert not torch.equal(found[0], found[1])
