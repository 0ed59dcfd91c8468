"""The word embeddings' gradient by rows is the dense one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from model.cpu.word_table import use_sparse_gradient


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 3, padding_idx=0)

    def get_input_embeddings(self) -> nn.Module:
        return self.table


def backward(table: nn.Embedding, *batches: Tensor) -> Tensor:
    """The gradient of a step on these batches."""
    table.weight.grad = None
    for batch in batches:
        words = table(batch)
        (words * torch.arange(words.numel()).view_as(words)).sum().backward()
    assert table.weight.grad is not None
    return table.weight.grad


@pytest.mark.parametrize(
    "batches",
    [
        [torch.tensor([[4, 4, 0], [7, 1, 4]]), torch.tensor([[7, 2]])],  # added up over batches
        [torch.tensor([[5, 7]])],
        [torch.tensor([[0, 0]])],  # nothing but padding
    ],
)
def test_the_gradient_is_that_of_an_ordinary_table(batches: list[Tensor]) -> None:
    plain, ours = Encoder().table, Encoder()
    use_sparse_gradient(ours)
    for _ in range(2):  # the second step has nothing of the first
        found, known = backward(ours.table, *batches), backward(plain, *batches)
        assert found.layout == torch.strided and torch.equal(found, known)


def test_gradients_that_are_kept_stay_as_they_were() -> None:
    ours = Encoder()
    use_sparse_gradient(ours)
    first = backward(ours.table, torch.tensor([[4, 5]]))
    before = first.clone()
    backward(ours.table, torch.tensor([[4, 6]]))
    assert torch.equal(first, before)  # as surgery needs it, which compares tasks


def test_a_frozen_table_is_left_alone() -> None:
    frozen = Encoder().requires_grad_(False)
    use_sparse_gradient(frozen)
    frozen.table(torch.tensor([1]))
    assert not frozen.table.sparse
