"""Rows that no arm of outcome.py ever sees, and what a model scores on them.

Of files, they are cut from the training set before anything starts, the same rows every time. What
is left is written into a folder of its own, from which all arms train. Of the sample corpus, they
are further rows by the same recipes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from model.common.errors import InputError
from model.common.files import write_atomic
from model.data.clean import CLEAN
from model.data.delimited import read_cs224n
from model.data.rows import SCHEMA, RawRow, labels_of
from model.data.sample import further_rows
from model.data.sources import load_split, require_data
from model.evaluation.predictions import Predictions
from model.evaluation.scores import Scored, Scores, score
from model.tasks.task_set import Task, TaskSet, load_task_set
from model.training.inputs import sample_rows
from tuner.predict.predictor import load_predictor

HELD_OUT = 1000  # rows of each task
SEED = 20_261_118
SEEN = ("train", "dev")  # what arms read

Tables = Mapping[str, pa.Table]  # by task, in the schema of all data


@dataclass(frozen=True)
class Material:
    """What all arms are given, and what they are judged by."""

    tasks: TaskSet
    data: Path | None  # the files without the rows that are held out; None for the sample corpus
    dev: Tables  # the rows by which an arm chooses
    held_out: Tables


def get_material(
    name: str, files: Path | None, work: Path, dev_rows: int, held_out: int = HELD_OUT
) -> Material:
    tasks = load_task_set(name)
    data, held = None, None
    if name != "sample":
        require_data(tasks, files, SEEN, imported=False)
        assert files is not None  # or its absence would have been told
        data, held = work / "data", work / "held-out"
        for task in tasks:
            cut(task, files, data, held, held_out)
    tables = {
        task.name: further(task).slice(0, held_out)
        if held is None
        else load_split(task, "train", held).table
        for task in tasks
    }
    dev = {t.name: sample_rows(load_split(t, "dev", data).table, dev_rows) for t in tasks}
    return Material(tasks, data, dev, tables)


def further(task: Task) -> pa.Table:
    return pa.Table.from_pylist([row._asdict() for row in further_rows(task.name)], schema=SCHEMA)


def cut(task: Task, files: Path, data: Path, held: Path, count: int) -> None:
    """Write the task's files without `count` of their training rows, and those by themselves."""
    for folder in (data, held):
        folder.mkdir(parents=True, exist_ok=True)
    name, dev = (task.source.files[split] for split in SEEN)
    write_atomic(data / dev, (files / dev).read_bytes())
    lines = (files / name).read_bytes().split(b"\n")  # the first is the header, row 0
    chosen = set(choose(task, files, count))
    kept = [line for row, line in enumerate(lines) if row not in chosen]
    alone = [lines[0], *(lines[row] for row in sorted(chosen))]
    write_atomic(data / name, b"\n".join(kept))
    write_atomic(held / name, b"\n".join(alone) + b"\n")


def choose(task: Task, files: Path, count: int) -> list[int]:
    """Rows of the training file whose sentences stand, as a pair, nowhere else in train or dev."""
    train = {row.number: key_of(task, row) for row in usable(task, files, "train")}
    times = Counter(train.values())
    times.update(key_of(task, row) for row in usable(task, files, "dev"))
    free = [number for number, key in train.items() if times[key] == 1]
    if len(free) <= count:
        fault = f"has {len(free):,} rows that stand there once; {count:,} cannot be held out"
        raise InputError(str(files / task.source.files["train"]), [fault])
    drawn = np.random.default_rng(SEED).choice(len(free), size=count, replace=False)
    return [free[place] for place in drawn]


def usable(task: Task, files: Path, split: str) -> Iterator[RawRow]:
    rows = read_cs224n(files / task.source.files[split], task.source, True)
    for row in rows:
        if not row.damage and all((text or "").strip() for text in (row.label, *row.texts)):
            yield row


def key_of(task: Task, row: RawRow) -> frozenset[str]:
    """A sentence, or a pair in either order, as a model would see it."""
    return frozenset(CLEAN[task.source.clean](text or "") for text in row.texts)


def score_model(model: Path, tasks: TaskSet, rows: Tables) -> Scores:
    """A model, soup or ensemble on these rows, scored as a run scores its dev set."""
    texts = {task.name: texts_of(task, rows[task.name]) for task in tasks}
    return score_answers(tasks, rows, load_predictor(model).answer_texts(texts))


def score_answers(tasks: TaskSet, rows: Tables, answers: Mapping[str, Predictions]) -> Scores:
    return score(
        {
            task.name: Scored(
                task.metric,
                task.weight,
                task.classes,
                labels_of(rows[task.name]),
                answers[task.name].values,
            )
            for task in tasks
        }
    )


def texts_of(task: Task, table: pa.Table) -> list[str] | list[tuple[str, str]]:
    first = table["sentence1"].to_pylist()
    return list(zip(first, table["sentence2"].to_pylist(), strict=True)) if task.pair else first
