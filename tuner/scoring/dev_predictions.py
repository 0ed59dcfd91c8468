"""The dev predictions of many candidates, aligned row by row, and their scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from model.common.errors import InputError
from model.common.untrusted import read_parquet
from model.evaluation.scores import METRICS, Array
from model.tasks.task_set import Task, TaskSet
from tuner.runs.folder import trial_folder
from tuner.scoring.weighted import WEIGHTED

COLUMNS = ["task", "id", "label", "prediction"]
CELLS = 4_000_000  # resampled rows held at a time, which bounds memory


@dataclass(frozen=True)
class Grid:
    """Scores of every candidate, by the overall score and by each task."""

    overall: Array  # [C, W], or [C] for one row of weights
    tasks: dict[str, Array]

    @classmethod
    def of(cls, values: dict[str, Array], tasks: TaskSet) -> Grid:
        units = [METRICS[task.metric].unit(values[task.name]) for task in tasks]
        return cls(np.average(units, axis=0, weights=[task.weight for task in tasks]), values)

    def by(self, goal: str) -> Array:
        return self.tasks[goal] if goal in self.tasks else self.overall

    def at(self, column: int) -> Grid:
        return Grid(self.overall[:, column], {n: v[:, column] for n, v in self.tasks.items()})


@dataclass(frozen=True)
class Answers:
    """One task's dev rows, and each candidate's answers: `predictions` is [candidates, rows]."""

    labels: Array
    predictions: Array

    def values(self, task: Task, weights: Array, inside: Array | None = None) -> Array:
        """The task's metric of every candidate for every row of weights: [C, W]."""
        kind = precision_of(task)
        inside = np.ones((1, len(self.labels))) if inside is None else inside
        measure = WEIGHTED[task.metric]
        return measure(self.labels, self.predictions, inside.astype(kind), weights.astype(kind))


def precision_of(task: Task) -> Any:
    """Counts of rows are exact in float32 up to 16 million; sums of products are not."""
    return np.float32 if METRICS[task.metric].on_classes else np.float64


@dataclass(frozen=True)
class DevPredictions:
    """What a list of candidates answered on the same dev rows."""

    names: list[str]
    answers: dict[str, Answers]

    @classmethod
    def load(
        cls, folder: Path, candidates: Sequence[tuple[str, Mapping[str, Any]]], tasks: TaskSet
    ) -> DevPredictions:
        """Of (trial, its evaluation) pairs of the run in `folder`. Rows may be in any order.

        Raises InputError for trials whose predictions are missing, damaged or of other rows.
        """
        reader = _Reader(Path(folder), tasks)
        for trial, evaluation in candidates:
            reader.add(trial, str(evaluation["predictions"]))
        if reader.faults:
            raise InputError(f"{folder}: dev predictions", reader.faults[:10])
        names = [f"{trial} after {entry['examples']} examples" for trial, entry in candidates]
        return cls(names, reader.answers())

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> DevPredictions:
        return self.take([index])

    def take(self, indices: Sequence[int]) -> DevPredictions:
        """These candidates alone, in this order; one may be there several times."""
        chosen = {
            name: Answers(of.labels, of.predictions[list(indices)])
            for name, of in self.answers.items()
        }
        return DevPredictions([self.names[index] for index in indices], chosen)

    def grid(self, tasks: TaskSet, weights: Mapping[str, Array] | None = None) -> Grid:
        """All scores, [C, W], for these weights of the rows; of all rows if none are given."""
        values = {}
        for task in tasks:
            of = self.answers[task.name]
            given = np.ones((1, len(of.labels))) if weights is None else weights[task.name]
            values[task.name] = of.values(task, given)
        return Grid.of(values, tasks)

    @property
    def rows(self) -> dict[str, int]:
        return {name: len(of.labels) for name, of in self.answers.items()}

    def inside(self, tasks: TaskSet, inside: Mapping[str, Array]) -> Grid:
        """Each candidate's scores, [C], on its own rows: `inside` is [C, N] by task."""
        values = {}
        for task in tasks:
            of = self.answers[task.name]
            whole = np.ones((1, len(of.labels)))
            values[task.name] = of.values(task, whole, inside[task.name])[:, 0]
        return Grid.of(values, tasks)

    def resampled(
        self,
        tasks: TaskSet,
        resamples: int,
        seed: int,
        inside: Mapping[str, Array] | None = None,
    ) -> Grid:
        """All scores in bootstrap resamples of each task's rows: [C, resamples].

        `inside` says which rows count for which candidate, [C, N]. The same seed draws the same
        rows, so two of these can be compared pair by pair.
        """
        values = {}
        for number, task in enumerate(tasks):
            of, mask = self.answers[task.name], inside[task.name] if inside else None
            drawn = resamples_of(len(of.labels), resamples, [seed, number, 1])
            blocks = [of.values(task, weights, mask) for weights in drawn]
            values[task.name] = np.concatenate(blocks, axis=1)
        return Grid.of(values, tasks)


def resamples_of(rows: int, resamples: int, seed: Sequence[int]) -> Iterator[Array]:
    """Blocks of [resamples, rows]: how often each row was drawn."""
    rng = np.random.default_rng(seed)
    block = max(1, CELLS // rows)
    for start in range(0, resamples, block):
        count = min(block, resamples - start)
        drawn = rng.integers(rows, size=(count, rows)) + rows * np.arange(count)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=count * rows)
        yield counts.reshape(count, rows).astype(np.float64)


def read_rows(path: Path, columns: Sequence[str]) -> pa.Table:
    """A file of dev predictions; ValueError for an unfit one."""
    table = read_parquet(path, columns)
    if missing := set(columns) - set(table.column_names):
        raise ValueError(f"has no column '{min(missing)}'; run the trial again")
    if not np.isfinite(table["prediction"].to_numpy()).all():
        raise ValueError("has predictions that are no numbers; leave the trial out")
    return with_plain_names(table)


def with_plain_names(table: pa.Table) -> pa.Table:
    """The tasks' names as text, which a file has as a dictionary."""
    place = table.column_names.index("task")
    return table.set_column(place, "task", pc.cast(table["task"], pa.string()))


def check_tasks(table: pa.Table, tasks: TaskSet) -> None:
    found = set(pc.unique(table["task"]).to_pylist())
    if missing := [name for name in tasks.names if name not in found]:
        raise ValueError(f"has no rows of {', '.join(missing)}; is this the run's task set?")


def aligned(table: pa.Table, first: pa.Table, name: str) -> pa.Table:
    """Its rows in the order of the first's, which is trial `name`'s; ValueError if they differ."""
    if not (table["task"].equals(first["task"]) and table["id"].equals(first["id"])):
        here, there = _keys(table), _keys(first)
        a, b = np.argsort(here, kind="stable"), np.argsort(there, kind="stable")
        if not np.array_equal(here[a], there[b]):
            odd = sorted(set(here) ^ set(there))
            such = f", such as {odd[0].replace(chr(0), ' ')}" if odd else ""
            fault = f"its dev rows are not those of trial {name} ({len(odd)} differ{such})"
            raise ValueError(f"{fault}; leave it out, or run it again on the same data")
        order = np.empty_like(a)
        order[b] = a
        table = table.take(pa.array(order))
    if not np.array_equal(table["label"].to_numpy(), first["label"].to_numpy()):
        raise ValueError(f"its dev labels are not those of trial {name}; run it again")
    return table


class _Reader:
    """Takes in one file after the other and brings its rows into the order of the first."""

    def __init__(self, folder: Path, tasks: TaskSet) -> None:
        self.folder, self.tasks = folder, tasks
        self.first: tuple[str, pa.Table] | None = None
        self.predictions: list[Array] = []
        self.faults: list[str] = []

    def add(self, trial: str, file: str) -> None:
        try:
            table = read_rows(trial_folder(self.folder, trial) / file, COLUMNS)
            if self.first is None:
                check_tasks(table, self.tasks)
                self.first = (trial, table)
            self.predictions.append(self._aligned(table))
        except (OSError, ValueError, pa.ArrowException) as error:
            self.faults.append(f"trial {trial}: {' '.join(str(error).split())} ({file})")

    def _aligned(self, table: pa.Table) -> Array:
        assert self.first is not None
        table = aligned(table, self.first[1], self.first[0])
        return np.asarray(table["prediction"].to_numpy(), dtype=np.float64)

    def answers(self) -> dict[str, Answers]:
        if self.first is None:
            raise InputError("dev predictions", ["there are no candidates to compare"])
        of_row = self.first[1]["task"].to_numpy()
        labels = self.first[1]["label"].to_numpy()
        found = {}
        for task in self.tasks:
            rows = np.flatnonzero(of_row == task.name)
            chosen = np.stack([each[rows].astype(precision_of(task)) for each in self.predictions])
            found[task.name] = Answers(labels[rows].astype(precision_of(task)), chosen)
        return found


def _keys(table: pa.Table) -> NDArray[Any]:
    pairs = zip(table["task"].to_pylist(), table["id"].to_pylist(), strict=True)
    return np.array([f"{task}\0{identity}" for task, identity in pairs], dtype=object)
