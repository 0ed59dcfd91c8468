"""Whole splits answered, and written: Parquet with probabilities, and what a task file asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from model.common.errors import InputError
from model.common.files import write_atomic
from model.data.sources import load_split, require_data
from model.data.tokens import Tokens, tokenise
from model.evaluation.predictions import (
    Predictions,
    join_tables,
    predictions_table,
    write_predictions,
)
from model.modules.multitask import TaskSpec
from model.tasks.task_set import Task, TaskSet
from model.training.inputs import Warn
from tuner.predict.predictor import AnswerModels, Predictor


@dataclass(frozen=True)
class Answered:
    ids: list[str]
    labels: pa.Array  # null where the split has none
    predictions: Predictions


def answer_splits(
    predictor: Predictor,
    tasks: TaskSet,
    names: Sequence[str],
    splits: Sequence[str],
    data: Path | None,
    warn: Warn,
    models: AnswerModels | None = None,
) -> dict[str, dict[str, Answered]]:
    """By split and task. Splits that a task file does not have are left out, and named."""
    chosen = [tasks[name] for name in names]
    check_fit(predictor, chosen)
    require_data(chosen, data, splits)
    tables: dict[tuple[str, str], pa.Table] = {}
    for task in chosen:
        for split in splits:
            if split not in task.source.files:
                warn(f"{task.name} has no {split} set; left out")
                continue
            loaded = load_split(task, split, data)
            if loaded.damaged:
                told = f"{len(loaded.damaged)} damaged rows, such as {loaded.damaged[0]}"
                warn(f"{task.name} {split}: skipped {told}")
            tables[task.name, split] = loaded.table
    predictions = predictor.answer(tables, _tokens, models)
    found: dict[str, dict[str, Answered]] = {}
    for (name, split), of in predictions.items():
        table = tables[name, split]
        answered = Answered(table["id"].to_pylist(), table["label"].combine_chunks(), of)
        found.setdefault(split, {})[name] = answered
    return found


def _tokens(spec: TaskSpec, table: Any, tokenizer: Any) -> Tokens:
    return tokenise(table, tokenizer)


def check_fit(predictor: Predictor, chosen: Sequence[Task]) -> None:
    """The task set must be one that the model's tasks can answer."""
    faults = []
    for task in chosen:
        spec = predictor.tasks.get(task.name)
        if spec is None:
            faults.append(
                f"the model has no task '{task.name}'; it has {', '.join(predictor.tasks)}"
            )
            continue
        pairs: list[tuple[str, Any, Any]] = [
            ("kind", task.kind, spec.kind),
            ("classes", task.classes, spec.classes),
            ("pair", task.pair, spec.pair),
            ("clean", task.source.clean, spec.clean),
        ]
        if task.source.labels and (names := predictor.class_names.get(task.name)):
            pairs.append(("classes", ", ".join(task.source.labels), ", ".join(names)))
        for what, here, there in pairs:
            if here != there:
                faults.append(f"{task.name}: {what} is {here} here and {there} in the model")
    if faults:
        raise InputError("task set", faults)


def write_split(
    tasks: TaskSet, split: str, answers: Mapping[str, Answered], out: Path
) -> list[Path]:
    """The files written: one Parquet of all tasks, and each task's own if it asks for one."""
    parts = [_table(name, of) for name, of in answers.items()]
    written = [out / f"{split}.parquet"]
    write_predictions(written[0], join_tables(parts))
    for name, of in answers.items():
        if (wish := tasks[name].predictions) is not None:
            path = out / wish.name(split)
            write_atomic(path, wish.text(of.ids, of.predictions.values, tasks[name].kind))
            written.append(path)
    return written


def _table(task: str, of: Answered) -> pa.Table:
    """As a run keeps them, with the classes' names beside their numbers."""
    table = predictions_table(task, of.ids, of.labels, of.predictions)
    names = of.predictions.class_names
    for column in ("label", "prediction"):
        values = table[column].to_pylist()
        named = [None if value is None or not names else names[int(value)] for value in values]
        table = table.append_column(f"{column}_name", pa.array(named, pa.string()))
    return table
