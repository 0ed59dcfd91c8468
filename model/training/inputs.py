"""A run's data: every task's rows, its augmentation, and the sentences for SimCSE, tokenised."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from model.common.errors import Gathered, InputError
from model.config.settings import DistillSettings, RunConfig, SimcseSettings
from model.data.batches import RowNumbers
from model.data.rows import Split, labels_of
from model.data.sources import load_augmentation, load_split, read_sentences, require_data
from model.data.teacher import (
    ANSWERS,
    TEXTS,
    Answers,
    as_rows,
    hard_labels,
    in_order,
    read_answers,
    soft_labels,
)
from model.data.tokens import Tokens, tokenise
from model.evaluation.evaluate import Rows
from model.evaluation.scores import Array, majority_baseline, overall_of
from model.tasks.task_set import TaskSet

Warn = Callable[[str], None]


@dataclass(frozen=True)
class TaskInputs:
    train: Tokens
    labels: Array
    real: int  # rows of `train` that are not augmentation
    dev: Rows
    answers: Answers | None = None  # of a teacher, to the rows of `train`


@dataclass(frozen=True)
class Inputs:
    tasks: dict[str, TaskInputs]
    simcse: Tokens | None
    baselines: dict[str, float]  # always the commonest answer: per task, and 'overall'
    fingerprint: str


def inputs_key(config: RunConfig, tasks: TaskSet, data: Path | None) -> Hashable:
    """Runs with equal keys have the same inputs."""
    simcse = config.pretrain.simcse
    return (
        tasks,
        data,
        config.encoder.name,
        tuple(sorted(config.augment.items())),
        config.budget.eval_rows,
        simcse.epochs > 0,
        simcse.text,
        simcse.tasks,
        (config.distill.teacher, config.distill.text) if config.distill.weight > 0 else None,
    )


def load_inputs(
    config: RunConfig, tasks: TaskSet, data: Path | None, tokenizer: Any, warn: Warn
) -> Inputs:
    tables = load_tables(config, tasks, data, warn)
    inputs: dict[str, TaskInputs] = {}
    baselines: dict[str, float] = {}
    digest = hashlib.sha256()
    for task in tasks:
        table = tables[task.name]
        train, labels = tokenise(table.train, tokenizer), labels_of(table.train)
        dev, dev_labels = tokenise(table.dev, tokenizer), labels_of(table.dev)
        ids = table.dev["id"].to_pylist()
        rows = Rows(dev, dev_labels, ids, task.metric, task.weight, task.also)
        inputs[task.name] = TaskInputs(train, labels, table.real, rows, table.answers)
        baselines[task.name] = majority_baseline(task.metric, labels, dev_labels, task.classes)
        for tokens, of_rows in ((train, labels), (dev, dev_labels)):
            add_to(digest, tokens, of_rows)
        if table.answers is not None:
            digest.update(np.ascontiguousarray(table.answers).data)
    baselines["overall"] = overall_of(
        [task.metric for task in tasks], list(baselines.values()), [task.weight for task in tasks]
    )
    simcse = None
    if config.pretrain.simcse.epochs > 0:
        simcse = tokenise(simcse_sentences(config.pretrain.simcse, tables), tokenizer)
        add_to(digest, simcse, np.zeros(0))
    return Inputs(inputs, simcse, baselines, digest.hexdigest())


def add_to(digest: hashlib._Hash, tokens: Tokens, labels: Array) -> None:
    for array in (tokens.ids1, tokens.offsets1, tokens.ids2, tokens.offsets2, labels):
        digest.update(np.ascontiguousarray(array).data)


@dataclass(frozen=True)
class TaskTables:
    train: pa.Table
    real: int  # rows of `train` that are not augmentation
    dev: pa.Table
    answers: Answers | None = None


def load_tables(
    config: RunConfig, tasks: TaskSet, data: Path | None, warn: Warn
) -> dict[str, TaskTables]:
    """The text of every task; the faults of all files are gathered before any is raised."""
    require_data(tasks, data, ("train", "dev"))
    tables: dict[str, TaskTables] = {}
    faults: list[str] = []

    def attempt(load: Callable[[], Split]) -> pa.Table | None:
        try:
            split = load()
        except InputError as error:
            faults.extend(f"{error.where}: {fault}" for fault in error.faults)
            return None
        if split.damaged:
            first = "; ".join(split.damaged[:2])
            more = f" and {len(split.damaged) - 2} more" if len(split.damaged) > 2 else ""
            rows = "row" if len(split.damaged) == 1 else "rows"
            warn(f"skipped {len(split.damaged)} damaged {rows}: {first}{more}")
        return split.table

    for task in tasks:
        train = attempt(lambda task=task: load_split(task, "train", data))  # type: ignore[misc]
        dev = attempt(lambda task=task: load_split(task, "dev", data))  # type: ignore[misc]
        real = 0 if train is None else len(train)
        if path := config.augment.get(task.name):
            extra = attempt(lambda t=task, p=path: load_augmentation(t, Path(p)))  # type: ignore[misc]
            if train is not None and extra is not None:
                train = pa.concat_tables([train, extra])
        for split, table in (("train", train), ("dev", dev)):
            if table is not None and not len(table):
                faults.append(f"task {task.name}: its {split} set has no usable rows")
        if train is not None and dev is not None:
            dev = sample_rows(dev, config.budget.eval_rows)
            tables[task.name] = TaskTables(train, real, dev)
    if faults:
        raise InputError("data", faults)
    distill = config.distill
    if distill.weight > 0 and (distill.teacher or distill.text):
        return taught(distill, tasks, tables)
    return tables


def taught(
    distill: DistillSettings, tasks: TaskSet, tables: Mapping[str, TaskTables]
) -> dict[str, TaskTables]:
    """With a teacher's answers, and the texts that only a teacher has answered.

    What the teacher has not answered (augmentation) keeps its label as the answer.
    """
    gathered = Gathered("distill")
    teacher = text = None
    with gathered:
        if distill.teacher:
            teacher = read_answers(Path(distill.teacher), ANSWERS, tasks)
    with gathered:
        if distill.text:
            text = read_answers(Path(distill.text), TEXTS, tasks)
    found = {}
    for task in tasks:
        of = tables[task.name]
        with gathered:
            train, answers = of.train, hard_labels(task, labels_of(of.train))
            if teacher is not None and len(teacher[task.name]):
                where = Path(str(distill.teacher))
                ids = train["id"].to_pylist()[: of.real]
                own = in_order(task, teacher[task.name], ids, where)
                answers = np.concatenate([soft_labels(task, own, where), answers[of.real :]])
            if text is not None and len(text[task.name]):
                where = Path(str(distill.text))
                train = pa.concat_tables([train, as_rows(task, text[task.name], where)])
                answers = np.concatenate([answers, soft_labels(task, text[task.name], where)])
            found[task.name] = replace(of, train=train, answers=answers)
    gathered.tell()
    return found


def sample_rows(table: pa.Table, limit: int | None) -> pa.Table:
    """At most so many rows: the same draw for every run, whatever its seed."""
    if limit is None or limit >= len(table):
        return table
    return table.take(pa.array(sampled(len(table), limit)))


def sampled(rows: int, limit: int) -> RowNumbers:
    """At most so many of them, in order: the same draw in every run."""
    if limit >= rows:
        return np.arange(rows)
    drawn = np.random.default_rng(0).choice(rows, size=limit, replace=False)
    ordered: RowNumbers = np.sort(drawn)
    return ordered


def simcse_sentences(simcse: SimcseSettings, tables: Mapping[str, TaskTables]) -> pa.Table:
    """From the text file, or the training sentences of the chosen tasks, each once."""
    if simcse.text is not None:
        sentences = read_sentences(Path(simcse.text))
    else:
        chosen = [t.train for name, t in tables.items() if name in (simcse.tasks or tables)]
        columns = [train[side] for train in chosen for side in ("sentence1", "sentence2")]
        found = (row for column in columns for row in column.to_pylist())
        sentences = list(dict.fromkeys(row for row in found if row))
    return pa.table({"sentence1": sentences, "sentence2": pa.nulls(len(sentences), pa.string())})
