"""Dev predictions with their probabilities: read, brought into one order of rows, written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.evaluate import PREDICTIONS
from model.scores import Array
from model.tasks import TaskSet
from tuner.blend import Served, Shares
from tuner.dev_predictions import aligned, check_tasks, read_rows

COLUMNS = PREDICTIONS.names


class DevRows:
    """The dev rows of the first file that was read; all others are brought into its order."""

    def __init__(self, tasks: TaskSet) -> None:
        self.tasks = tasks
        self.name = ""
        self.tables: dict[str, pa.Table] = {}

    def read(self, name: str, path: Path) -> dict[str, Served]:
        """A checkpoint's answers to every task; ValueError for what cannot be compared."""
        try:
            table = read_rows(path, COLUMNS)
        except (OSError, pa.ArrowException) as error:
            raise ValueError(f"its dev predictions cannot be read: {error}") from None
        check_tasks(table, self.tasks)
        if not self.tables:
            self.name = name
            self.tables = {task: _of(table, task) for task in self.tasks.names}
        return {task: self.serve(task, table) for task in self.tasks.names}

    def serve(self, task: str, table: pa.Table) -> Served:
        own = aligned(_of(table, task), self.tables[task], self.name)
        return Served(
            np.asarray(own["prediction"].to_numpy(), dtype=np.float64),
            _shares(own["probabilities"]),
        )

    @property
    def labels(self) -> dict[str, Array]:
        return {
            task: np.asarray(table["label"].to_numpy(), dtype=np.float64)
            for task, table in self.tables.items()
        }

    def table(self, served: Mapping[str, Served]) -> pa.Table:
        """Answers in the schema of the trainer's own."""
        parts = []
        for task, of in served.items():
            rows = self.tables[task]
            parts.append(predictions_table(task, rows["id"], rows["label"], of))
        return pa.concat_tables(parts).unify_dictionaries()


def predictions_table(task: str, ids: Iterable[str], labels: pa.Array, served: Served) -> pa.Table:
    count = len(served.values)
    names = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [task])
    shares = pa.nulls(count, pa.list_(pa.float32()))
    if served.shares is not None:
        width = served.shares.shape[1]
        offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
        shares = pa.ListArray.from_arrays(offsets, served.shares.astype(np.float32).ravel())
    columns = [names, ids, labels, pa.array(served.values), shares]
    flat = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return pa.Table.from_arrays(flat, schema=PREDICTIONS)


def _of(table: pa.Table, task: str) -> pa.Table:
    return table.filter(pc.equal(table["task"], task))


def _shares(column: pa.ChunkedArray) -> Shares | None:
    if column.null_count:
        return None
    flat = pc.list_flatten(column).to_numpy()
    return np.asarray(flat, dtype=np.float32).reshape(len(column), -1)
