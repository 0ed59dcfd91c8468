"""Parts of the batches of a step: what goes through the model together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from model.data.batches import Batch, RowNumbers


@dataclass(frozen=True)
class Part:
    """Rows of a task's batch."""

    task: str
    batch: Batch
    share: float  # of the task's rows in this step
    seed: int
    of: int  # how many rows the seed is for
    first: int = 0  # which of them is the first here
    smart: bool = False

    def __len__(self) -> int:
        return len(self.batch.labels)

    @property
    def work(self) -> float:
        """In tokens of a plain pass forth and back, roughly: SMART makes eight passes of three."""
        return self.batch.input_ids.numel() * (8 / 3 if self.smart else 1)

    def cut(self, rows: int) -> tuple[Part, Part]:
        """So many rows, and the others; their random numbers stay what they were."""
        count = len(self)

        def rows_from(first: int, end: int) -> Part:
            return replace(
                self,
                batch=take(self.batch, np.arange(first, end)),
                share=self.share * (end - first) / count,
                first=self.first + first,
            )

        return rows_from(0, rows), rows_from(rows, count)


def take(batch: Batch, rows: RowNumbers) -> Batch:
    """Some rows of a batch; a pair's two sequences stay together."""
    count = len(batch.labels)
    sequences = torch.from_numpy(np.concatenate([rows + n * count for n in range(batch.parts)]))

    def of(tensor: Tensor) -> Tensor:
        return tensor[sequences]

    return replace(
        batch,
        input_ids=of(batch.input_ids),
        attention_mask=of(batch.attention_mask),
        token_type_ids=of(batch.token_type_ids),
        labels=batch.labels[torch.from_numpy(rows)],
        rows=batch.rows[rows],
    )


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """The batch cut into at most so many parts."""
    pieces = [piece for piece in np.array_split(np.arange(len(batch.labels)), parts) if len(piece)]
    return [batch] if len(pieces) == 1 else [take(batch, rows) for rows in pieces]


def deal(parts: Sequence[Part], shares: Sequence[int]) -> list[list[Part]]:
    """The parts in their order, the work in proportion to the shares.

    A part that lies across a border is cut, unless a row is too much.
    """
    left = list(parts)
    total = sum(part.work for part in parts)
    dealt: list[list[Part]] = []
    for share in shares[:-1]:
        mine: list[Part] = []
        room = total * share / sum(shares)
        while left:
            work = left[0].work
            rows = round(room / work * len(left[0]))
            if 0 < rows < len(left[0]):
                mine_too, left[0] = left[0].cut(rows)
                mine.append(mine_too)
            elif rows > 0:
                mine.append(left.pop(0))
                room -= work
                continue
            break
        dealt.append(mine)
    return [*dealt, left]
