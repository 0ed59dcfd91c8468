"""The one schema for text, and how rows of any source become a table of it.

A row that says nothing usable (no label where one is needed, cut short) is damage: skipped,
counted and named. A row that says something wrong (a label out of range, or not a number) is
an error, because it means that the task file and the data disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from model.errors import InputError
from model.tasks import Task

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("sentence1", pa.string()),
        ("sentence2", pa.string()),  # null throughout for single sentences
        ("label", pa.float64()),  # null where unlabelled
    ]
)
MOST_NAMED = 10  # faults of one kind that are told one by one


class Record(NamedTuple):
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
    records: Iterable[Record],
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


def _missing(record: Record, label: float | None, labelled: bool) -> str:
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
    """The labels that contradict the task, told a few by one and then by number."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.faults: list[str] = []
        self.names: list[str] = []  # labels that are words
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def label(self, record: Record) -> float | None:
        value = record.label
        if isinstance(value, str):
            value = value.strip()
        if record.damage or value is None or value == "":
            return None
        try:
            if isinstance(value, str) and "_" in value:
                raise ValueError  # Python reads 1_0 as ten
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            text = str(value)[:30]
            if text not in self.names and len(self.names) < 8:
                self.names.append(text)
            self._note(f"row {record.number}: label '{text}' is not a number")
            return 0.0  # told already; the row must not count as damaged too
        return None if math.isnan(number) else number

    def check_range(self, record: Record, label: float) -> None:
        task, what = self.task, f"row {record.number}: label {label:g}"
        if not task.low <= label <= task.high:
            self._note(f"{what} is outside {task.low:g} to {task.high:g}, the range of {task.name}")
        elif task.kind != "regression" and label != int(label):
            self._note(f"{what} is not a whole number, as {task.name} ({task.kind}) needs")

    def _note(self, fault: str) -> None:
        self.count += 1
        if self.count <= MOST_NAMED:
            self.faults.append(fault)

    def told(self) -> list[str]:
        told = list(self.faults)
        if self.count > MOST_NAMED:
            told.append(f"and {self.count - MOST_NAMED:,} more rows")
        if self.names:
            found = ", ".join(f"'{name}'" for name in self.names)
            told.append(
                f"labels must be numbers, class names are not supported (found {found}); "
                "number the classes from 0, or check which column is the label"
            )
        else:
            kind = {"classes": f"classes: {self.task.classes}", "binary": "binary: true"}.get(
                self.task.kind, f"regression: [{self.task.low:g}, {self.task.high:g}]"
            )
            told.append(f"the task says '{kind}'; correct it, the label column or the rows")
        return told
