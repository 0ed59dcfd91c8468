"""Answers to a task's rows: the one type for them, and the one table that they are kept in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from torch import Tensor

from model.common.files import write_atomic
from model.evaluation.scores import Array
from model.modules.multitask import TaskSpec, decide

PREDICTIONS = pa.schema(
    [
        ("task", pa.dictionary(pa.int32(), pa.string())),
        ("id", pa.string()),
        ("label", pa.float64()),
        ("prediction", pa.float64()),
        ("probabilities", pa.list_(pa.float32())),
    ]
)
Probabilities = NDArray[np.floating[Any]]  # [N, C], as precise as they were kept


@dataclass(frozen=True)
class Predictions:
    """Answers to one task's rows: classes or values [N], and probabilities [N, C] of classes."""

    values: Array
    probabilities: Probabilities | None
    class_names: tuple[str, ...] = field(default=(), kw_only=True)  # where the task file has them

    @property
    def names(self) -> list[str] | None:
        """The classes that were answered, by name; None where they have none."""
        return [self.class_names[int(value)] for value in self.values] if self.class_names else None

    @classmethod
    def of_outputs(cls, task: TaskSpec, outputs: Tensor) -> Predictions:
        values, likely = decide(task, outputs)
        return cls(values.double().numpy(), None if likely is None else likely.numpy())


def join_predictions(parts: Sequence[Predictions]) -> Predictions:
    """Of parts of one task's rows, in order."""
    likely = [part.probabilities for part in parts if part.probabilities is not None]
    values = np.concatenate([part.values for part in parts])
    names = parts[0].class_names
    return Predictions(values, np.concatenate(likely) if likely else None, class_names=names)


def predictions_table(
    task: str, ids: Sequence[str] | pa.Array, labels: Array | pa.Array, of: Predictions
) -> pa.Table:
    """One task's part of the table. A label may be null."""
    count = len(of.values)
    probabilities = pa.nulls(count, pa.list_(pa.float32()))
    if of.probabilities is not None:
        width = of.probabilities.shape[1]
        offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
        flat = of.probabilities.astype(np.float32).ravel()
        probabilities = pa.ListArray.from_arrays(offsets, flat)
    names = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [task])
    given = [pa.array(ids, pa.string()), pa.array(labels, pa.float64())]
    columns = [names, *given, pa.array(of.values), probabilities]
    return pa.Table.from_arrays(columns, schema=PREDICTIONS)


def join_tables(parts: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts).unify_dictionaries()


def write_predictions(path: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    path.parent.mkdir(exist_ok=True)  # but not a run's folder that went away
    write_atomic(path, sink.getvalue().to_pybytes())
