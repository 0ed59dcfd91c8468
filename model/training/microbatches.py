"""The microbatches of a step: what goes through the model together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from torch import Tensor

from model.data.batches import Batch


@dataclass(frozen=True)
class MicroBatch:
    """Rows of a task's batch."""

    task: str
    batch: Batch
    share: float  # of the task's rows in this step
    seed: int
    of: int  # how many rows the seed is for
    first: int = 0  # which of them is the first here
    smart: bool = False
    rdrop: bool = False
    whole: bool = False  # not to be cut: its loss compares its rows

    def __len__(self) -> int:
        return len(self.batch.labels)

    @property
    def work(self) -> float:
        """In tokens of a plain pass forth and back, roughly: SMART makes eight passes of three."""
        passes = (8 / 3 if self.smart else 1) + (1 if self.rdrop else 0)
        return self.batch.input_ids.numel() * passes

    def cut(self, rows: int) -> tuple[MicroBatch, MicroBatch]:
        """So many rows, and the others; their random numbers stay what they were."""
        count = len(self)

        def rows_from(first: int, end: int) -> MicroBatch:
            return replace(
                self,
                batch=take(self.batch, first, end),
                share=self.share * (end - first) / count,
                first=self.first + first,
            )

        return rows_from(0, rows), rows_from(rows, count)


def take(batch: Batch, first: int, end: int) -> Batch:
    """Some rows of a batch; a pair's two sequences stay together.

    Slices, not row numbers: on a GPU those would have to be sent there, and waited for.
    """

    count = len(batch.labels)

    def some(tensor: Tensor) -> Tensor:
        sides: Tensor = tensor.unflatten(0, (-1, count))  # one, but for a pair's sequences
        return sides[:, first:end].flatten(0, 1)

    return replace(batch.map(some), rows=batch.rows[first:end])


def doubled(batch: Batch) -> Batch:
    """Every row of a batch twice."""
    twice = batch.map(lambda tensor: tensor.repeat_interleave(2, dim=0))
    return replace(twice, rows=batch.rows.repeat(2))


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """The batch cut into at most so many microbatches."""
    rows = len(batch.labels)
    parts = min(parts, rows)
    if parts == 1:
        return [batch]
    size, more = divmod(rows, parts)  # the first `more` have a row more
    borders = [n * size + min(n, more) for n in range(parts + 1)]
    return [take(batch, first, end) for first, end in pairwise(borders)]


def cut_in_two(
    microbatches: Sequence[MicroBatch], share: float
) -> tuple[list[MicroBatch], list[MicroBatch]]:
    """The first microbatches, with this share of the work, and the others.

    One that lies across the border is cut, unless a row is too much or it must stay whole.
    """
    room = share * sum(microbatch.work for microbatch in microbatches)
    for number, microbatch in enumerate(microbatches):
        rows = round(room / microbatch.work * len(microbatch))
        if microbatch.whole:
            rows = len(microbatch) if 2 * rows >= len(microbatch) else 0
        if rows <= 0:  # less: what was taken last was up to half a row too much
            return [*microbatches[:number]], [*microbatches[number:]]
        if rows < len(microbatch):
            ahead, behind = microbatch.cut(rows)
            return [*microbatches[:number], ahead], [behind, *microbatches[number + 1 :]]
        room -= microbatch.work
    return [*microbatches], []
