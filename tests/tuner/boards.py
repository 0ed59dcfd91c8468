"""Runs for TensorBoard that never ran, the real TensorBoard on them, and its files read back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from model.common.files import to_yaml
from model.evaluation.predictions import (
    Predictions,
    join_tables,
    predictions_table,
    write_predictions,
)
from model.tasks.task_set import TaskSet
from tuner.export.tensorboard.board import Board
from tuner.runs.ledger import Ledger
from tuner.space.space import Space, load_space

SPACE = """
about: Something of each kind.
tasks: sample
base: {encoder.name: tiny, smart.variant: ball}
parameters:
  optim.learning_rate: {float: [1.0e-5, 1.0e-3], log: true}
  encoder.dropout:     {float: [0, 0.3], step: 0.05}
  smart.weight:        {choice: [0, 0.1, 1]}
  smart.radius:        {float: [0.001, 0.3], log: true, when: {smart.weight: "> 0"}}
  smart.steps:         {int: [1, 3], when: {smart.weight: "> 0"}}
  head.hidden:         {choice: [0, 40, width]}
  batch.sizes:         {choice: [[8, 8, 8], [16, 8, 4]]}
  loss.weights:        {choice: [[1, 1, 1], [2, 1, 0.5]]}
"""
POINT = {
    "optim.learning_rate": 1e-4,
    "encoder.dropout": 0.1,
    "smart.weight": 0,
    "head.hidden": 40,
    "batch.sizes": [16, 8, 4],
    "loss.weights": [2, 1, 0.5],
}
SMART = {**POINT, "smart.weight": 0.1, "smart.radius": 0.01, "smart.steps": 2, "head.hidden": 0}


@dataclass
class MadeUp:
    """A run's folder, its ledger and the board that follows it."""

    folder: Path
    space: Space
    ledger: Ledger
    board: Board

    @property
    def tasks(self) -> TaskSet:
        return self.space.task_set

    def create(self, settings: Mapping[str, Any], origin: str = "sampler", **more: Any) -> str:
        name = self.ledger.state.next_id
        number = self.ledger.state.next_number if origin == "sampler" else None
        fields = {"number": number, "params": {}, "origin": origin, "of": None, "seed": 3, **more}
        self.ledger.append("created", trial=name, settings=dict(settings), **fields)
        self.ledger.append("started", trial=name, attempt=0)
        return name

    def evaluate(self, trial: str, examples: int, score: float, **more: Any) -> dict[str, Any]:
        event = self.ledger.append("evaluated", trial=trial, **record(self.tasks, examples, score))
        assert event is not None
        return event

    def finish(self, trial: str) -> None:
        self.ledger.append("finished", trial=trial)

    def stop(self, trial: str) -> None:
        said = "among the lower half of 4 at 100 examples"
        self.ledger.append("stopped", trial=trial, examples=100, rung=100, reason=said)

    def fail(self, trial: str) -> None:
        self.ledger.append("failed", trial=trial, kind="memory", reason="no room", traceback="")


def record(tasks: TaskSet, examples: int, score: float) -> dict[str, Any]:
    """As `model.training.run` makes one."""
    of_task = {"interval": [score - 0.1, score + 0.1], "loss": 1 - score, "train_loss": 0.9 - score}
    return {
        "examples": examples,
        "score": score,
        "interval": [score - 0.05, score + 0.05],
        "tasks": {t.name: {"metric": t.metric, "value": score, **of_task} for t in tasks},
        "smart": 0.125,
        "gradient_norm": 1.5,
        "learning_rates": [1e-5, 1e-4],
        "examples_per_second": 80.0,
        "data_share": 0.02,
        "seconds": examples / 80,
        "checkpoint": f"step-{examples:08d}",
        "predictions": f"predictions/step-{examples:08d}.parquet",
    }


def made_up(folder: Path, space: str = SPACE, warn: Callable[[str], None] = print) -> MadeUp:
    """A run that has begun; with a board that follows it, as in a search."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.yaml").write_text(space)
    loaded = load_space(str(folder / "own.yaml"))
    (folder / "space.yaml").write_text(to_yaml(loaded.to_dict()))
    (folder / "run.yaml").write_text("asked: {data: null}\nfingerprints: {}\n")
    ledger = Ledger(folder / "ledger.jsonl", warn)
    fields = {"name": "made-up", "objectives": ["overall"], "num_samples": 12, "seed": 3}
    ledger.append("run", version="1", sampler="tpe", resumed=False, **fields)
    board = Board(folder, loaded, warn)
    board.follow(ledger)
    return MadeUp(folder, loaded, ledger, board)


def of_every_kind(folder: Path) -> MadeUp:
    """Trials of different settings and every status, the default, and a repeat."""
    run = made_up(folder)
    default = run.create({}, "default")
    run.evaluate(default, 100, 0.6)
    run.finish(default)
    finished = run.create(POINT)
    run.evaluate(finished, 100, 0.7)
    run.evaluate(finished, 200, 0.8)
    run.evaluate(finished, 300, 0.75)
    run.finish(finished)
    stopped = run.create(SMART)
    run.evaluate(stopped, 100, 0.3)
    run.stop(stopped)
    run.fail(run.create({**SMART, "optim.learning_rate": 1e-3}))
    running = run.create({**POINT, "optim.learning_rate": 2e-4})
    run.evaluate(running, 100, 0.5)
    repeat = run.create(POINT, "confirm", of=finished, seed=4)
    run.evaluate(repeat, 100, 0.7)
    run.finish(repeat)
    return run


def write_answers(path: Path, tasks: TaskSet, rows: int = 120, seed: int = 0) -> None:
    """Dev predictions of a model that is right more often than not."""
    rng = np.random.default_rng(seed)
    tables = []
    for task in tasks:
        probabilities = None
        if task.kind == "regression":
            labels = rng.uniform(task.low, task.high, rows)
            said = np.clip(labels + rng.normal(size=rows), task.low, task.high)
        else:
            labels = rng.integers(task.classes, size=rows).astype(float)
            leaning = rng.normal(size=(rows, task.classes))
            leaning[np.arange(rows), labels.astype(int)] += 1.5
            probabilities = np.exp(leaning) / np.exp(leaning).sum(1, keepdims=True)
            said = probabilities.argmax(1).astype(float)
        ids = [f"{task.name}-{row}" for row in range(rows)]
        of = Predictions(said, probabilities)
        tables.append(predictions_table(task.name, ids, labels, of))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_predictions(path, join_tables(tables))


# --- the files ----------------------------------------------------------------------------------


def records_of(path: Path) -> list[Any]:
    """Every record of an event file."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    return [Event.FromString(raw) for raw in RawEventFileLoader(str(path)).Load()]


def tags_of(path: Path) -> dict[str, list[tuple[int, Any]]]:
    """tag -> (step, value) of all that an event file holds."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for entry in records_of(path):
        for value in entry.summary.value:
            found.setdefault(value.tag, []).append((entry.step, value))
    return found


# --- the real TensorBoard -----------------------------------------------------------------------

STATUSES = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]


@dataclass
class Server:
    address: str

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}/data/{path}", data)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read())

    def experiment(self) -> Any:
        return self.ask("plugin/hparams/experiment", {})

    def trials(self) -> dict[str, Any]:
        """The rows of the table by name. Without statuses or size the answer is empty."""
        every = {"allowedStatuses": STATUSES, "startIndex": 0, "sliceSize": 10000, "colParams": []}
        found = self.ask("plugin/hparams/session_groups", every)
        return {group["name"]: group for group in found.get("sessionGroups", [])}

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 300
        while not (found := condition()):
            assert time.monotonic() < deadline, "TensorBoard never showed it"
            time.sleep(0.1)
        return found


@contextmanager
def tensorboard_on(folder: Path, *flags: str) -> Iterator[Server]:
    """The real command, on this machine alone and on a port of its own choice."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder)]
    command += ["--host", "127.0.0.1", "--port", "0", "--reload_interval", "1", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield Server(found[0])
                return
        raise AssertionError("TensorBoard did not start: " + "".join(said))
    finally:
        process.terminate()
        process.communicate()
