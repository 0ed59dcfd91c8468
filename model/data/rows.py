"""The one schema for text, and how rows of any source become a table of it.

A row that says nothing usable (no label where one is needed, cut short) is damage: skipped,
counted and named. A row that says something wrong (a label out of range, or not a number) is
an error, because it means that the task file and the data disagree. Where the task file lists
the classes' names, a name becomes its place in that list; numbers stay as they are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from model.common.errors import InputError
from model.tasks.task_set import Task

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("sentence1", pa.string()),
        ("sentence2", pa.string()),  # null throughout for single sentences
        ("label", pa.float64()),  # null where unlabelled
    ]
)
MOST_NAMED = 10  # faults that are told one by one
ROWS_NAMED = 5  # of one fault
NAMES_SHOWN = 8  # labels in one line of an error


class RawRow(NamedTuple):
    """A row as its source gives it; `damage` says what makes it unreadable, if anything does."""

    number: int  # from 1, the header not counted
    id: str | None
    texts: tuple[str | None, ...]
    label: Any
    damage: str = ""


@dataclass(frozen=True)
class Split:
    """Rows of one task and split in `SCHEMA`, and the damaged ones that were left out."""

    table: pa.Table
    damaged: tuple[str, ...] = ()


def labels_of(table: pa.Table) -> NDArray[np.float64]:
    """The labels as numbers; NaN where unlabelled."""
    labels: NDArray[np.float64] = table["label"].to_numpy().astype(np.float64)
    return labels


def build_split(
    records: Iterable[RawRow],
    task: Task,
    *,
    where: str,
    name: str,
    labelled: bool,
    clean: Callable[[str], str],
    minus_one_unlabelled: bool = False,
) -> Split:
    """Check and clean every record. `where` heads the errors, `name` the damaged rows."""
    columns: dict[str, list[Any]] = {key: [] for key in SCHEMA.names}
    damaged: list[str] = []
    wrong = _Wrong(task)
    for record in records:
        label = wrong.label(record)
        if minus_one_unlabelled and label == -1 and task.low > -1:
            label = None
        damage = record.damage or _missing(record, label, labelled)
        if damage:
            damaged.append(f"{name} row {record.number}: {damage}")
            continue
        if label is not None:
            wrong.check_range(record, label)
        texts = [clean(text or "") for text in record.texts]
        columns["id"].append(str(record.number) if record.id is None else record.id)
        columns["sentence1"].append(texts[0])
        columns["sentence2"].append(texts[1] if len(texts) > 1 else None)
        columns["label"].append(label)
    if wrong:
        raise InputError(where, wrong.told())
    if not columns["id"]:
        raise InputError(where, _nothing(damaged))
    return Split(pa.table(columns, schema=SCHEMA), tuple(damaged))


def _missing(record: RawRow, label: float | None, labelled: bool) -> str:
    if None in record.texts:
        return f"no sentence {record.texts.index(None) + 1}"
    if not labelled:  # a row to predict is predicted, even one without words
        return ""
    if label is None:
        return "no label"
    blank = [number for number, text in enumerate(record.texts, 1) if not (text or "").strip()]
    return f"sentence {blank[0]} is empty" if blank else ""


def _nothing(damaged: list[str]) -> list[str]:
    if not damaged:
        return ["has no rows; is this the right file?"]
    first = [f"{fault}" for fault in damaged[:3]]
    return [f"has no usable row: all {len(damaged):,} are damaged, such as", *first]


class _Wrong:
    """The labels that contradict the task: a few faults, each once with its first rows."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.places = {name: float(place) for place, name in enumerate(task.source.labels)}
        self.rows: dict[str, list[int]] = {}  # the first ones of each fault that is told
        self.counts: Counter[str] = Counter()
        self.names: list[str] = []  # labels that are words, and not ones the task knows
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def label(self, record: RawRow) -> float | None:
        value = record.label
        if isinstance(value, str):
            value = value.strip()
        if record.damage or value is None or value == "":
            return None
        if isinstance(value, str) and value in self.places:
            return self.places[value]
        number = _number(value)
        if number is None:
            self._unknown(record, str(value)[:30])
            return 0.0  # told already; the row must not count as damaged too
        return None if math.isnan(number) else number

    def check_range(self, record: RawRow, label: float) -> None:
        task, what = self.task, f"label {label:g}"
        if not task.low <= label <= task.high:
            ends = f"{task.low:g} to {task.high:g}"
            self._note(record, f"{what} is outside {ends}, the range of {task.name}")
        elif task.kind != "regression" and label != int(label):
            self._note(record, f"{what} is not a whole number, as {task.name} ({task.kind}) needs")

    def _unknown(self, record: RawRow, text: str) -> None:
        if text not in self.names and len(self.names) < NAMES_SHOWN:
            self.names.append(text)
        what = "neither a class of the task nor a number" if self.places else "not a number"
        self._note(record, f"label '{text}' is {what}")

    def _note(self, record: RawRow, fault: str) -> None:
        self.count += 1
        if fault not in self.rows and len(self.rows) == MOST_NAMED:
            return
        self.counts[fault] += 1
        rows = self.rows.setdefault(fault, [])
        if len(rows) < ROWS_NAMED:
            rows.append(record.number)

    def told(self) -> list[str]:
        told = [f"{self._at(fault)}: {fault}" for fault in self.rows]
        if more := self.count - self.counts.total():
            told.append(f"and {more:,} more row{'s' if more > 1 else ''}")
        return [*told, self._remedy()]

    def _at(self, fault: str) -> str:
        rows, count = self.rows[fault], self.counts[fault]
        more = f" and {count - len(rows):,} more" if count > len(rows) else ""
        return f"row{'s' if count > 1 else ''} {', '.join(map(str, rows))}{more}"

    def _remedy(self) -> str:
        task = self.task
        if not self.names:
            kind = {"classes": f"classes: {task.classes}", "binary": "binary: true"}.get(
                task.kind, f"regression: [{task.low:g}, {task.high:g}]"
            )
            return f"the task says '{kind}'; correct it, the label column or the rows"
        found = _listed(sorted(self.names))
        if self.places:
            known = _listed(task.source.labels)
            return f"the task file says that the classes are {known}; correct it, or the rows"
        if task.kind == "regression":
            return f"a regression needs numbers (found {found}); check which column is the label"
        more = ", ..." if len(self.names) < task.classes else ""
        key = "labels" if task.kind == "binary" else "classes"
        return (
            "if these are the names of the classes, list them in the task file in the order of "
            f"their numbers, as in '{key}: [{found}{more}]'; else check which column is the label"
        )


def _number(value: Any) -> float | None:
    try:
        # Python reads 1_0 as ten.
        return None if isinstance(value, str) and "_" in value else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
