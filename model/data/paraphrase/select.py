"""Which paraphrases become training rows: none twice, and none that dev or test has.

Looked at in the order of the training rows, so what is kept does not depend on the order in which
the answers came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from model.data.paraphrase.answer_file import ModelAnswer
from model.data.paraphrase.jobs import ParaphraseJob, SourceRow
from model.data.paraphrase.near import NearIndex, normalised
from model.data.rows import SCHEMA

LONGER, MORE = 3, 40  # a paraphrase has at most 3 times the characters and 40 more


class Made(NamedTuple):
    """A paraphrase, and the row that it would be."""

    row: SourceRow
    side: int
    number: int  # among those of its row, from 1
    text: str

    @property
    def sentences(self) -> tuple[str, ...]:
        given = self.row.sentences
        return (*given[: self.side], self.text, *given[self.side + 1 :])


class Selection(NamedTuple):
    kept: list[Made]
    made: int
    removed: Counter[str]  # by reason

    @property
    def table(self) -> pa.Table:
        """In the schema of training rows; each has the label of the row that it says anew."""
        columns = {
            "id": [f"{each.row.id}~{each.number}" for each in self.kept],
            "sentence1": [each.sentences[0] for each in self.kept],
            "sentence2": [(*each.sentences, None)[1] for each in self.kept],
            "label": [each.row.label for each in self.kept],
        }
        return pa.table(columns, schema=SCHEMA)


def select(
    jobs: Iterable[ParaphraseJob],
    answers: Mapping[str, ModelAnswer],
    train: Iterable[SourceRow],
    held_out: Mapping[str, Iterable[SourceRow]],
    limit: float,
) -> Selection:
    """`limit`: from this Jaccard similarity on two sentences are near; 1 takes only the same."""
    made = _made(jobs, answers)
    splits = {**held_out, "train": train}
    known = {
        name: [tuple(map(normalised, row.sentences)) for row in splits[name]] for name in splits
    }
    new = [tuple(map(normalised, each.sentences)) for each in made]
    index = NearIndex(
        (text for rows in [*known.values(), new] for row in rows for text in row), limit
    )
    sets = {name: _RowSet(index, rows) for name, rows in known.items()}
    kept, removed, before = [], Counter[str](), _RowSet(index, [])
    for each, row in zip(made, new, strict=True):
        if reason := _reason(each, row, index, sets, before):
            removed[reason] += 1
        else:
            before.add(row)
            kept.append(each)
    return Selection(kept, len(made), removed)


def _made(jobs: Iterable[ParaphraseJob], answers: Mapping[str, ModelAnswer]) -> list[Made]:
    found: list[Made] = []
    counts: Counter[int] = Counter()
    for job in jobs:
        for text in answers[job.key].texts if job.key in answers else ():
            counts[job.row.number] += 1
            found.append(Made(job.row, job.side, counts[job.row.number], text))
    return found


def _reason(
    made: Made,
    row: tuple[str, ...],
    index: NearIndex,
    splits: Mapping[str, _RowSet],
    before: _RowSet,
) -> str:
    """Why this one is removed; empty where it is kept."""
    text, source = row[made.side], made.row.sentences[made.side]
    if not text:
        return "without words"
    if len(made.text) > LONGER * len(source) + MORE:
        return "much longer than its row"
    if text == normalised(source):
        return "the same as its row"
    near = index.near(text)
    if index.places[normalised(source)] in near:
        return "near to its row"
    # Equal sentences say nothing about a pair, and of a pair that is none they say the opposite.
    if len(row) == 2 and index.places[row[1 - made.side]] in near:
        return "near to the other sentence of its pair"
    for name, rows in splits.items():
        where = f"a row of {name}" if name != "train" else "a training row"
        if found := rows.has(row):
            return f"{found} {where}"
    found = before.has(row)
    return f"{found} another paraphrase" if found else ""


class _RowSet:
    """Rows of one split, normalised, by the sentences in them."""

    def __init__(self, index: NearIndex, rows: Iterable[tuple[str, ...]]) -> None:
        self.index = index
        self.keys: set[tuple[str, ...]] = set()
        self.rows: dict[tuple[int, int], set[int]] = {}  # side and sentence -> rows
        for row in rows:
            self.add(row)

    def add(self, row: tuple[str, ...]) -> None:
        number = len(self.keys)
        key = tuple(sorted(row))
        if key in self.keys:
            return
        self.keys.add(key)
        for side, text in enumerate(row):
            self.rows.setdefault((side, self.index.places[text]), set()).add(number)

    def has(self, row: tuple[str, ...]) -> str:
        """'the same as', 'near to' or ''; a pair counts in either order, if both sentences do."""
        if tuple(sorted(row)) in self.keys:
            return "the same as"
        turned = row[::-1]
        return "near to" if self._near(row) or self._near(turned) else ""

    def _near(self, row: tuple[str, ...]) -> set[int]:
        found: list[set[int]] = []
        for side, text in enumerate(row):
            places = ((side, place) for place in self.index.near(text))
            found.append(set().union(*(self.rows.get(place, ()) for place in places)))
        return set.intersection(*found)
