"""A teacher's answers, as `stockpot predict` writes them: Parquet with task, id, prediction and
probabilities. Of texts without labels it has the sentences too, and what the teacher answers is
their label.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from model.common.errors import InputError
from model.common.untrusted import read_parquet
from model.data.clean import CLEAN
from model.data.columnar import first_line
from model.data.rows import SCHEMA
from model.tasks.task_set import Task, TaskSet

ANSWERS = ("task", "id", "prediction", "probabilities")
TEXTS = ("task", "sentence1", "sentence2", "prediction", "probabilities")
Answers = NDArray[np.float32]  # [rows, classes], or [rows, 1] of values


def read_answers(path: Path, columns: Sequence[str], tasks: TaskSet) -> dict[str, pa.Table]:
    """By task; a task of which the file knows nothing has no rows."""
    try:
        table = read_parquet(path, columns, links=True)
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(str(path), [f"cannot be read as Parquet: {first_line(error)}"]) from None
    if missing := [name for name in columns if name not in table.column_names]:
        remedy = "make the file with stockpot predict"
        raise InputError(str(path), [f"has no column '{name}'; {remedy}" for name in missing])
    of_row = pc.cast(table["task"], pa.string())
    if not set(pc.unique(of_row).to_pylist()) & set(tasks.names):
        fault = f"answers none of the tasks {', '.join(tasks.names)}; was it made for others?"
        raise InputError(str(path), [fault])
    return {name: table.filter(pc.equal(of_row, name)) for name in tasks.names}


def soft_labels(task: Task, table: pa.Table, where: Path) -> Answers:
    """The answers as numbers: probabilities with a sum of 1, or values."""
    values = np.asarray(table["prediction"].to_numpy(), dtype=np.float64)
    faults = [] if np.isfinite(values).all() else ["has predictions that are no numbers"]
    given: Answers = values[:, None].astype(np.float32)
    if task.kind != "regression":
        lists = table["probabilities"].to_pylist()
        width = max(2, task.classes)
        if any(row is None or len(row) != width for row in lists):
            fault = f"must have {width} probabilities for each row of {task.name}"
            raise InputError(str(where), [f"{fault}; is it of the same task?"])
        given = np.asarray(lists, dtype=np.float32).reshape(-1, width)
        total = given.sum(-1, keepdims=True)
        if not np.isfinite(given).all() or (given < 0).any() or (total <= 0).any():
            faults.append(f"has probabilities of {task.name} that are none")
        else:
            given = given / total
    # In float32, as they are used: a mean of values at the border may be a digit beyond it.
    elif ((given < np.float32(task.low)) | (given > np.float32(task.high))).any():
        faults.append(f"has values of {task.name} outside {task.low:g} to {task.high:g}")
    if faults:
        raise InputError(str(where), faults)
    return given


def hard_labels(task: Task, labels: NDArray[np.floating[Any]]) -> Answers:
    """True labels in the form of answers, for rows that the teacher has not seen."""
    if task.kind == "regression":
        return labels[:, None].astype(np.float32)
    return np.eye(max(2, task.classes), dtype=np.float32)[labels.astype(np.int64)]


def in_order(task: Task, table: pa.Table, ids: Sequence[str], where: Path) -> pa.Table:
    """The answers to the rows of these ids."""
    known: dict[str, int] = {}
    for number, name in enumerate(table["id"].to_pylist()):
        known.setdefault(name, number)
    if missing := [name for name in ids if name not in known]:
        fault = f"does not answer {len(missing)} of the {len(ids)} training rows of {task.name}"
        remedy = "make it with stockpot predict --split train"
        raise InputError(str(where), [f"{fault}, such as '{missing[0]}'; {remedy}"])
    return table.take(pa.array([known[name] for name in ids], pa.int64()))


def as_rows(task: Task, table: pa.Table, where: Path) -> pa.Table:
    """Texts in the schema of training rows, labelled by the teacher."""
    sides = ("sentence1", "sentence2")[: 2 if task.pair else 1]
    if empty := [side for side in sides if table[side].null_count]:
        raise InputError(str(where), [f"has rows of {task.name} without '{empty[0]}'"])
    clean = CLEAN[task.source.clean]
    texts = [[clean(text) for text in table[side].to_pylist()] for side in sides]
    second = texts[1] if task.pair else pa.nulls(len(table), pa.string())
    names = [f"text-{number}" for number in range(len(table))]
    columns = [names, texts[0], second, table["prediction"]]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), SCHEMA)
