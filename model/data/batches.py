"""Batches of tensors, and which rows come when.

The order is a pure function of the seed and the number of the pass, so resuming a run is
asking for a later batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from model.data.layout import Layout as Layout  # part of the signatures here
from model.data.layout import Template, assemble, template_of
from model.data.tokens import Tokens

# Off the CPU, padding goes up to a multiple of so many tokens: fused attention would copy any other
# mask in every layer, and a remainder is one more thing for torch.compile to tell apart.
ALIGNMENT = 8
WINDOW = 50  # batches sorted by length together: little padding, and still well shuffled
RowNumbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Batch:
    input_ids: torch.Tensor  # [R, L], as are the next two; R = parts * B
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor
    labels: torch.Tensor  # [B], float32; NaN where unlabelled
    rows: RowNumbers  # [B], which examples these are
    parts: int  # 2: the first B rows are sentence 1, the next B sentence 2
    padded: bool = True  # False: the mask is all ones, known without asking the device
    answers: torch.Tensor | None = None  # of a teacher, [B, classes] or [B, 1]

    def map(self, of: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        """The same with this done to each tensor."""
        return replace(
            self,
            input_ids=of(self.input_ids),
            attention_mask=of(self.attention_mask),
            token_type_ids=of(self.token_type_ids),
            labels=of(self.labels),
            answers=None if self.answers is None else of(self.answers),
        )


@dataclass(frozen=True)
class Assembler:
    """How one run lays its rows out, whatever the task."""

    template: Template
    max_length: int
    pad_id: int
    aligned: bool = False

    @classmethod
    def of(cls, tokenizer: Any, max_length: int) -> Assembler:
        return cls(template_of(tokenizer), max_length, int(tokenizer.pad_token_id or 0))

    def on(self, device: torch.device) -> Assembler:
        return replace(self, aligned=device.type != "cpu")

    def batch(
        self,
        tokens: Tokens,
        rows: RowNumbers,
        *,
        layout: Layout,
        labels: NDArray[np.floating[Any]] | None = None,
        answers: NDArray[np.float32] | None = None,
    ) -> Batch:
        """These rows as tensors; without `labels` (of all rows) the labels are NaN."""
        ids, mask, kinds = assemble(
            tokens,
            rows,
            layout=layout,
            template=self.template,
            max_length=self.max_length,
            pad_id=self.pad_id,
        )
        padded, width = not mask.all(), ids.shape[1]
        if padded and self.aligned and (more := upward(width, self.max_length) - width):
            ids, mask, kinds = (
                np.pad(array, ((0, 0), (0, more)), constant_values=value)
                for array, value in ((ids, self.pad_id), (mask, 0), (kinds, 0))
            )
        known = np.full(len(rows), np.nan) if labels is None else labels[rows]
        return Batch(
            torch.from_numpy(ids),
            torch.from_numpy(mask),
            torch.from_numpy(kinds),
            labels=torch.from_numpy(known.astype(np.float32)),
            rows=rows,
            parts=2 if layout == "bi" else 1,
            padded=padded,
            answers=None if answers is None else torch.from_numpy(answers[rows]),
        )


def upward(length: int, most: int) -> int:
    """The next multiple, but no more tokens than the encoder has positions for."""
    return max(length, min(-(-length // ALIGNMENT) * ALIGNMENT, most))


def join(batches: Sequence[Batch], pad_id: int, most: int) -> Batch:
    """The sequences of all of them in one batch, padded to the longest; labels in the same order.

    Sentences 1 and 2 of a pair stay where their own batch had them.
    """
    longest = max(batch.input_ids.shape[1] for batch in batches)
    is_padded = any(b.padded or b.input_ids.shape[1] < longest for b in batches)
    if is_padded and batches[0].input_ids.device.type != "cpu":
        longest = upward(longest, most)

    def padded(tensor: torch.Tensor, value: int) -> torch.Tensor:
        return F.pad(tensor, (0, longest - tensor.shape[1]), value=value)

    return Batch(
        torch.cat([padded(batch.input_ids, pad_id) for batch in batches]),
        torch.cat([padded(batch.attention_mask, 0) for batch in batches]),
        torch.cat([padded(batch.token_type_ids, 0) for batch in batches]),
        labels=torch.cat([batch.labels for batch in batches]),
        rows=np.concatenate([batch.rows for batch in batches]),
        parts=1,
        padded=is_padded,
    )


def batches_per_pass(rows: int, size: int) -> int:
    return -(-rows // size)


def pass_order(
    lengths: NDArray[np.int64], size: int, seed_key: tuple[int, ...], number: int
) -> list[RowNumbers]:
    """The batches of pass `number`: every row once, rows of like length together.

    Only the last batch may be short; its rows are drawn before the sorting, or it would always
    get the longest.
    """
    generator = _generator((*seed_key, number))
    rows = generator.permutation(len(lengths))
    whole = len(rows) // size * size
    batches: list[RowNumbers] = []
    for start in range(0, whole, WINDOW * size):
        window = rows[start : min(start + WINDOW * size, whole)]
        window = window[np.argsort(lengths[window], kind="stable")]
        batches += np.split(window, len(window) // size)
    order = generator.permutation(len(batches))
    rest = [rows[whole:]] if whole < len(rows) else []
    return [batches[place] for place in order] + rest


def _generator(key: tuple[int, ...]) -> np.random.Generator:
    # numpy's own seeding takes (1, 0) for (1,) and refuses negative numbers.
    digest = hashlib.sha256(repr(tuple(int(part) for part in key)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))


class TaskStream:
    """The endless training batches of one task, by number."""

    def __init__(
        self,
        tokens: Tokens,
        labels: NDArray[np.floating[Any]],
        size: int,
        *,
        seed_key: tuple[int, ...],
        layout: Layout,
        assembler: Assembler,
        answers: NDArray[np.float32] | None = None,
    ) -> None:
        if len(tokens) == 0 or len(tokens) != len(labels) or size < 1:
            raise ValueError(f"{len(tokens)} rows, {len(labels)} labels, batches of {size}")
        self.tokens, self.labels, self.size, self.seed_key = tokens, labels, size, seed_key
        self.layout, self.assembler, self.answers = layout, assembler, answers
        self.per_pass = batches_per_pass(len(tokens), size)
        self._pass: tuple[int, list[RowNumbers]] = (-1, [])

    def size_of(self, k: int) -> int:
        """How many rows the k-th batch has; nothing needs to be drawn for that."""
        last = k % self.per_pass == self.per_pass - 1
        return len(self.tokens) - (self.per_pass - 1) * self.size if last else self.size

    def rows(self, k: int) -> RowNumbers:
        """The rows of the k-th batch of the run."""
        number, place = divmod(k, self.per_pass)
        if self._pass[0] != number:
            order = pass_order(self.tokens.lengths, self.size, self.seed_key, number)
            self._pass = (number, order)
        return self._pass[1][place]

    def batch(self, k: int) -> Batch:
        """The k-th batch of the run: of pass k // per_pass the k % per_pass-th."""
        rows = self.rows(k)
        return self.assembler.batch(
            self.tokens, rows, layout=self.layout, labels=self.labels, answers=self.answers
        )


def eval_batches(tokens: Tokens, size: int, some: RowNumbers | None = None) -> list[RowNumbers]:
    """The rows of each batch of an evaluation: every row once, shortest first, unshuffled."""
    rows = np.argsort(tokens.lengths if some is None else tokens.lengths[some], kind="stable")
    rows = rows if some is None else some[rows]
    return [rows[start : start + size] for start in range(0, len(rows), size)]
