"""A run as tables: csv and parquet, which any program reads."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.common.files import write_atomic
from model.common.secrets import redact
from tuner.export.trackers.destination import Destination
from tuner.export.trackers.records import Record, Snapshot
from tuner.runs.trial_table import trial_table

if TYPE_CHECKING:
    import pyarrow as pa

CURVES = ("trial", "examples", "time", "name", "value")


class TableFiles(Destination):
    """`trials`, a row per trial, and `curves`, a row per evaluation and value."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind

    def write(self, now: Snapshot, changed: Iterable[Record]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, table in (("trials", clean(trial_table(now.state))), ("curves", curves(now))):
            content = as_csv(table) if self.kind == "csv" else as_parquet(table)
            write_atomic(self.folder / f"{name}.{self.kind}", content)

    def place(self) -> str:
        return " and ".join(f"{self.folder}/{name}.{self.kind}" for name in ("trials", "curves"))


def curves(now: Snapshot) -> pa.Table:
    import pyarrow as pa

    rows = list(_rows(now))
    kinds = ("string", "int64", "float64", "string", "float64")
    columns = zip(*rows, strict=True) if rows else [()] * len(CURVES)
    arrays = [pa.array(list(c), kind) for c, kind in zip(columns, kinds, strict=True)]
    return pa.table(dict(zip(CURVES, arrays, strict=True)))


def _rows(now: Snapshot) -> Iterator[tuple[Any, ...]]:
    for trial, record in now.trials.items():
        for point in record.points:
            for name, value in point.values.items():
                yield trial, point.step, point.time, name, value


def clean(table: pa.Table) -> pa.Table:
    """The table without secrets: a failure's reason may have quoted one."""
    import pyarrow as pa

    for index, column in enumerate(table.columns):
        if pa.types.is_string(column.type):
            texts = [text and redact(text) for text in column.to_pylist()]
            table = table.set_column(index, table.column_names[index], pa.array(texts, "string"))
    return table


def as_csv(table: pa.Table) -> bytes:
    from pyarrow import csv

    buffer = io.BytesIO()
    csv.write_csv(table, buffer)
    return buffer.getvalue()


def as_parquet(table: pa.Table) -> bytes:
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()
