"""Dev predictions with their probabilities: read, brought into one order of rows, written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.evaluation.predictions import (
    PREDICTIONS,
    Predictions,
    Probabilities,
    join_tables,
    predictions_table,
)
from model.evaluation.scores import Array
from model.tasks.task_set import TaskSet
from tuner.scoring.dev_predictions import aligned, check_tasks, read_rows

COLUMNS = PREDICTIONS.names


@dataclass(frozen=True)
class LabelledPredictions(Predictions):
    """Answers with the rows they are for."""

    ids: list[str]
    labels: Array


def read_predictions(path: Path, tasks: TaskSet) -> dict[str, LabelledPredictions]:
    """A file of dev predictions by task, the tasks that it has; ValueError for an unfit one."""
    table = read_rows(path, COLUMNS)
    parts = {task: _of(table, task) for task in tasks.names}
    return {task: _labelled(rows) for task, rows in parts.items() if len(rows)}


def _labelled(rows: pa.Table) -> LabelledPredictions:
    labels = np.asarray(rows["label"].to_numpy(), dtype=np.float64)
    return LabelledPredictions(**vars(_answers(rows)), ids=rows["id"].to_pylist(), labels=labels)


def _answers(rows: pa.Table) -> Predictions:
    values = np.asarray(rows["prediction"].to_numpy(), dtype=np.float64)
    return Predictions(values, _probabilities(rows["probabilities"]))


class LostPredictions(ValueError):
    """A file of dev predictions that is gone or cannot be read."""


class DevRows:
    """The dev rows of the first file that was read; all others are brought into its order."""

    def __init__(self, tasks: TaskSet) -> None:
        self.tasks = tasks
        self.name = ""
        self.tables: dict[str, pa.Table] = {}

    def read(self, name: str, path: Path) -> dict[str, Predictions]:
        """A checkpoint's answers to every task; ValueError for what cannot be compared."""
        return self.read_some(name, path, self.tasks)

    def read_some(self, name: str, path: Path, tasks: TaskSet) -> dict[str, Predictions]:
        """Of a model with these tasks; the first that has one decides on the order of its rows."""
        try:
            table = read_rows(path, COLUMNS)
        except (OSError, pa.ArrowException) as error:
            raise LostPredictions(f"its dev predictions cannot be read: {error}") from None
        check_tasks(table, tasks)
        return {task: self.answer(task, table, name) for task in tasks.names}

    def answer(self, task: str, table: pa.Table, name: str = "") -> Predictions:
        rows = _of(table, task)
        if task not in self.tables:
            self.name, self.tables[task] = self.name or name, rows
        return _answers(aligned(rows, self.tables[task], self.name))

    @property
    def labels(self) -> dict[str, Array]:
        return {
            task: np.asarray(table["label"].to_numpy(), dtype=np.float64)
            for task, table in self.tables.items()
        }

    def table(self, predictions: Mapping[str, Predictions]) -> pa.Table:
        """Answers in the schema of the trainer's own."""
        parts = []
        for task, of in predictions.items():
            rows = self.tables[task]
            parts.append(predictions_table(task, rows["id"], rows["label"], of))
        return join_tables(parts)


def _of(table: pa.Table, task: str) -> pa.Table:
    return table.filter(pc.equal(table["task"], task))


def _probabilities(column: pa.ChunkedArray) -> Probabilities | None:
    if column.null_count:
        return None
    flat = pc.list_flatten(column).to_numpy()
    return np.asarray(flat, dtype=np.float32).reshape(len(column), -1)
