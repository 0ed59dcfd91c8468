"""What is asked: which rows, which of their sentences, and how many paraphrases a request."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pyarrow as pa

from model.data.paraphrase.near import normalised

# Of a pair one sentence is rewritten and the other stays, so an error is never doubled. `either`
# divides the paraphrases of a row between its two sentences.
RewrittenSide = Literal["either", "first", "second"]


class SourceRow(NamedTuple):
    """A training row."""

    number: int
    id: str
    sentences: tuple[str, ...]
    label: float


@dataclass(frozen=True)
class ParaphraseJob:
    """One request: so many paraphrases of one sentence of a row."""

    row: SourceRow
    side: int
    part: int  # where a row's paraphrases take several requests
    count: int

    @property
    def sentence(self) -> str:
        return self.row.sentences[self.side]

    @property
    def key(self) -> str:
        """The same whenever the same is asked, wherever the row stands."""
        identity = [*self.row.sentences, self.side, self.part, self.count]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:20]


class JobPlan(NamedTuple):
    jobs: list[ParaphraseJob]
    left_alone: Counter[str]  # rows that are not paraphrased, by reason


def rows_of(table: pa.Table) -> Iterator[SourceRow]:
    columns = (table[name].to_pylist() for name in ("id", "sentence1", "sentence2", "label"))
    for number, (name, first, second, label) in enumerate(zip(*columns, strict=True)):
        yield SourceRow(number, name, (first,) if second is None else (first, second), label)


def row_key(sentences: Iterable[str]) -> tuple[str, ...]:
    """Equal for the same text; pairs in either order."""
    return tuple(sorted(map(normalised, sentences)))


def plan_jobs(
    train: Iterable[SourceRow],
    held_out: Mapping[str, Iterable[SourceRow]],
    *,
    per_row: int,
    per_request: int,
    side: RewrittenSide = "either",
    most_rows: int | None = None,
) -> JobPlan:
    """The requests for these rows, in their order.

    Rows that stand in dev or test as well are left alone: their paraphrases would give them away.
    """
    seen = {
        row_key(row.sentences): f"also in {name}" for name in held_out for row in held_out[name]
    }
    jobs: list[ParaphraseJob] = []
    left_alone: Counter[str] = Counter()
    for row in train:
        if most_rows is not None and row.number >= most_rows:
            break
        key = row_key(row.sentences)
        sides = [(at, count) for at, count in _sides(row, per_row, side) if count]
        worded = [(at, count) for at, count in sides if normalised(row.sentences[at])]
        if key in seen:
            left_alone[seen[key]] += 1
        elif not worded:
            left_alone["without words"] += 1
        else:
            seen[key] = "the same as an earlier row"
            for at, count in worded:
                jobs += _parts(row, at, count, per_request)
    return JobPlan(jobs, left_alone)


def _sides(row: SourceRow, per_row: int, side: RewrittenSide) -> list[tuple[int, int]]:
    if len(row.sentences) == 1:
        return [(0, per_row)]
    if side != "either":
        return [(0 if side == "first" else 1, per_row)]
    more = row.number % 2  # of an odd number the first sentence has one more, then the second
    counts = {more: per_row - per_row // 2, 1 - more: per_row // 2}
    return [(0, counts[0]), (1, counts[1])]


def _parts(row: SourceRow, side: int, count: int, per_request: int) -> Iterator[ParaphraseJob]:
    for part, start in enumerate(range(0, count, per_request)):
        yield ParaphraseJob(row, side, part, min(per_request, count - start))
