"""The gradient of the word embeddings, on the CPU.

The table is half of a small encoder, and a batch touches under one percent of its rows. A dense
gradient is a new table of zeros for every batch, whose pages the system has to find, and which
is then added up, measured and scaled. Here the rows alone go through all that; in the end they
are written into one table that stays, where the rows of the step before are set back to zero.
The optimiser gets the same dense gradient as ever.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WordTable:
    def __init__(self, table: nn.Embedding) -> None:
        table.sparse = True
        self.weight = table.weight
        self._dense: Tensor | None = None
        self._rows = torch.empty(0, dtype=torch.long)  # of the dense table, that are not zero
        self._next: tuple[Tensor, Tensor] | None = None  # rows and their values

    def gather(self) -> Tensor:
        """The gradient's rows, each once; whoever scales them scales the gradient."""
        assert self.weight.grad is not None
        gradient = self.weight.grad.coalesce()
        self._next = gradient.indices()[0], gradient.values()
        return self._next[1]

    @torch.no_grad()
    def spread(self) -> None:
        """Make the dense gradient of the rows that were gathered, if any were."""
        if self._next is None:
            return
        if self._dense is None:
            self._dense = torch.zeros_like(self.weight)
        else:
            self._dense.index_fill_(0, self._rows, 0)
        self._rows, values = self._next
        self._next = None
        self._dense.index_copy_(0, self._rows, values)
        self.weight.grad = self._dense


def sparse_table(encoder: nn.Module) -> WordTable | None:
    """The encoder's word embeddings, if they are trained and on the CPU."""
    table = encoder.get_input_embeddings()  # type: ignore[operator]
    if type(table) is not nn.Embedding or table.weight.device.type != "cpu":
        return None
    return WordTable(table) if table.weight.requires_grad else None
