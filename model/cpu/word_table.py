"""The gradient of the word embeddings, by the rows that a batch touches.

The table is half of a small encoder, and a batch touches under one percent of its rows. A dense
gradient is a new table of zeros for every batch, and the tables are then added up. Here the rows
alone are; the first of a step are put into a dense table, as optimisers want it.
"""

from __future__ import annotations

from torch import Tensor, nn


def use_sparse_gradient(encoder: nn.Module) -> None:
    table: nn.Module = encoder.get_input_embeddings()  # type: ignore[operator]
    if type(table) is not nn.Embedding or not table.weight.requires_grad:
        return
    table.register_forward_pre_hook(_sparse_on_the_cpu)
    table.weight.register_post_accumulate_grad_hook(_make_dense)


def _sparse_on_the_cpu(table: nn.Embedding, _: object) -> None:
    table.sparse = table.weight.device.type == "cpu"


def _make_dense(weight: Tensor) -> None:
    assert weight.grad is not None
    if weight.grad.is_sparse:  # the next ones are added to the dense one, in place
        weight.grad = weight.grad.to_dense()
