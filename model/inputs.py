"""A run's own text: every task's rows, its augmentation, and the sentences for SimCSE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from model.data.rows import Split
from model.data.sources import load_augmentation, load_split, read_sentences, require_data
from model.errors import InputError
from model.settings import RunConfig
from model.tasks import TaskSet

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Tables:
    train: pa.Table
    real: int  # rows of `train` that are not augmentation
    dev: pa.Table


def load_tables(
    config: RunConfig, tasks: TaskSet, data: Path | None, warn: Warn
) -> dict[str, Tables]:
    """The text of every task; the faults of all files are gathered before any is raised."""
    require_data(tasks, data, ("train", "dev"))
    tables: dict[str, Tables] = {}
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
            tables[task.name] = Tables(train, real, dev)
    if faults:
        raise InputError("data", faults)
    return tables


def sample_rows(table: pa.Table, limit: int | None) -> pa.Table:
    """At most so many rows: the same draw for every run, whatever its seed."""
    if limit is None or limit >= len(table):
        return table
    drawn = np.random.default_rng(0).choice(len(table), size=limit, replace=False)
    return table.take(pa.array(np.sort(drawn)))


def simcse_sentences(text: str | None, tables: Mapping[str, Tables]) -> pa.Table:
    """From the text file, or all training sentences of the run, each once."""
    if text is not None:
        sentences = read_sentences(Path(text))
    else:
        columns = ("sentence1", "sentence2")
        found = (row for t in tables.values() for c in columns for row in t.train[c].to_pylist())
        sentences = list(dict.fromkeys(row for row in found if row))
    return pa.table({"sentence1": sentences, "sentence2": pa.nulls(len(sentences), pa.string())})
