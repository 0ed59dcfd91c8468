"""The word embeddings' gradient by rows is the dense one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.word_table import WordTable, sparse_table


def gradient(table: nn.Embedding, *batches: Tensor) -> None:
    table.weight.grad = None
    for batch in batches:
        words = table(batch)
        (words * torch.arange(words.numel()).view_as(words)).sum().backward()


def test_the_gradient_is_that_of_an_ordinary_table() -> None:
    plain = nn.Embedding(20, 3, padding_idx=0)
    ours = nn.Embedding(20, 3, padding_idx=0)
    rows = WordTable(ours)
    for batches in (
        [torch.tensor([[4, 4, 0], [7, 1, 4]]), torch.tensor([[7, 2]])],  # added up over batches
        [torch.tensor([[5, 7]])],  # rows of the step before are zero again
        [torch.tensor([[0, 0]])],  # nothing but padding
    ):
        gradient(plain, *batches)
        gradient(ours, *batches)
        rows.gather().mul_(0.5)
        rows.spread()
        assert plain.weight.grad is not None and ours.weight.grad is not None
        assert torch.equal(ours.weight.grad, 0.5 * plain.weight.grad)


def test_a_step_without_words_leaves_no_gradient() -> None:
    table = nn.Embedding(5, 2)
    rows = WordTable(table)
    gradient(table, torch.tensor([1]))
    rows.gather()
    rows.spread()
    table.weight.grad = None
    rows.spread()
    assert table.weight.grad is None


def test_a_frozen_table_is_left_alone() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 2)

        def get_input_embeddings(self) -> nn.Module:
            return self.table

    encoder = Encoder()
    assert sparse_table(encoder) is not None and encoder.table.sparse
    frozen = Encoder().requires_grad_(False)
    assert sparse_table(frozen) is None and not frozen.table.sparse
