"""A search that never ran: a folder with a ledger and dev predictions, for measuring readers.

The space, the points and the curves follow one rule, so the pictures of it look like a search's:
the score rises with training, has its best learning rate in the middle, and is noisy.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from model import __version__
from model.common.files import to_yaml, write_atomic
from model.evaluation.predictions import PREDICTIONS, write_predictions
from model.evaluation.scores import Scored, score
from model.tasks.task_set import TaskSet
from tuner.runs.folder import LEDGER, SPACE, fingerprints, write_run
from tuner.runs.ledger import encode
from tuner.runs.request import SearchRequest
from tuner.space.space import Space, load_space

HERE = Path(__file__).parent
MOST = 12_000
STEPS = (3_000, 6_000, 9_000, 12_000)
SLOTS = 8


def make_search(folder: Path, trials: int, *, rows: int = 400, seed: int = 0) -> Path:
    """Write the folder of a search of so many trials, some stopped and some failed."""
    folder.mkdir(parents=True, exist_ok=True)
    space = load_space(str(HERE / "made_up_space.yaml"))
    writer = _Writer(folder, space, rows, np.random.default_rng(seed))
    request = SearchRequest(num_samples=trials, max_examples=MOST, seed=seed)
    write_atomic(folder / SPACE, to_yaml(space.to_dict()))
    write_run(folder, request.to_dict(), fingerprints("made up", space.task_set, "tiny"))
    writer.run(trials, folder.name, seed)
    write_atomic(folder / LEDGER, b"".join(encode(event) for event in writer.events))
    return folder


class _Writer:
    def __init__(self, folder: Path, space: Space, rows: int, rng: np.random.Generator) -> None:
        self.folder, self.space, self.rng = folder, space, rng
        self.tasks = space.task_set
        self.labels = dev_labels(self.tasks, rows)
        self.events: list[dict[str, Any]] = []
        self.free = [1_700_000_000.0 + slot for slot in range(SLOTS)]  # when each slot is

    def add(self, event: str, time: float, **fields: Any) -> None:
        self.events.append({"event": event, "time": round(time, 3), **fields})

    def run(self, trials: int, name: str, seed: int) -> None:
        began = {"version": __version__, "name": name, "objectives": ["overall"]}
        more = {"num_samples": trials, "seed": seed, "sampler": "random", "resumed": False}
        self.add("run", self.free[0] - 5, **began, **more)
        for number in range(trials):
            self.trial(number)
        self.events[1:] = sorted(self.events[1:], key=lambda event: event["time"])
        self.add("end", max(self.free), reason="complete")

    def trial(self, number: int) -> None:
        name, slot = f"t{number:04d}", int(np.argmin(self.free))
        settings = self.space.default_point() if number == 0 else self.space.draw(self.rng)
        params = {} if number == 0 else self.space.params(settings)
        now = self.free[slot]
        point = {"params": params, "settings": settings, "seed": 0}
        origin = {"number": None, "origin": "default"} if number == 0 else {"origin": "sampler"}
        self.add("created", now, trial=name, **({"number": number - 1} | origin), **point)
        self.add("started", now + 0.2, trial=name, attempt=0, node="made-up", pid=1000 + slot)
        fate = self.rng.random()
        quality = self.quality(settings)
        lasts = len(STEPS) if number == 0 or quality > 0.72 else int(self.rng.integers(1, 4))
        for examples in STEPS[:lasts]:
            now += float(self.rng.uniform(20, 40))
            grown = quality * (1 - 0.5 * math.exp(-examples / 4000))
            self.evaluate(name, now, examples, grown)
        now += 1
        if number and fate < 0.05:
            reason = "RuntimeError: the loss <is> not a number after 1,234 steps"
            self.add("failed", now, trial=name, kind="diverged", reason=reason, traceback="")
        elif lasts < len(STEPS):
            said = {"rung": STEPS[lasts - 1], "reason": "too low for its rung"}
            self.add("stopped", now, trial=name, examples=STEPS[lasts - 1], **said)
        else:
            self.add("finished", now, trial=name)
        self.free[slot] = now + 0.3

    def quality(self, settings: dict[str, Any]) -> float:
        """How often it will be right, by its settings and luck."""
        rate = math.log10(settings.get("optim.learning_rate", 2e-4))
        off = abs(rate - math.log10(2e-4))
        weight = 0.05 if settings.get("loss.weights") == [2, 1, 0.2] else 0.0
        return float(np.clip(0.78 - 0.2 * off + weight + self.rng.normal(0, 0.02), 0.3, 0.95))

    def evaluate(self, trial: str, time: float, examples: int, right: float) -> None:
        answers = {task.name: self.answers(task.name, right) for task in self.tasks}
        scores = score(
            {
                task.name: Scored(
                    task.metric,
                    task.weight,
                    task.classes,
                    self.labels[task.name],
                    answers[task.name][0],
                )
                for task in self.tasks
            }
        )
        name = f"step-{examples:08d}"
        file = f"predictions/{name}.parquet"
        place = self.folder / "trials" / trial
        place.mkdir(parents=True, exist_ok=True)
        write_predictions(place / file, self.table(answers))
        self.add(
            "evaluated",
            time,
            trial=trial,
            examples=examples,
            score=scores.overall.value,
            interval=[scores.overall.low, scores.overall.high],
            values={},
            tasks={
                task.name: {
                    "metric": task.metric,
                    "value": scores.tasks[task.name].value,
                    "interval": [scores.tasks[task.name].low, scores.tasks[task.name].high],
                }
                for task in self.tasks
            },
            checkpoint=name,
            predictions=file,
            seconds=30.0,
        )

    def answers(self, name: str, right: float) -> tuple[np.ndarray, np.ndarray | None]:
        """Answers that are right this often, and how sure of each."""
        task, labels = self.tasks[name], self.labels[name]
        if task.kind == "regression":
            noise = self.rng.normal(0, 4 * (1 - right), len(labels))
            return np.clip(labels + noise, task.low, task.high), None
        hit = self.rng.random(len(labels)) < right
        other = (labels + self.rng.integers(1, task.classes, len(labels))) % task.classes
        said = np.where(hit, labels, other)
        sure = self.rng.uniform(1.05 / task.classes, 1, len(labels))
        probabilities = np.repeat(((1 - sure) / (task.classes - 1))[:, None], task.classes, axis=1)
        probabilities[np.arange(len(labels)), said.astype(int)] = sure
        return said, probabilities

    def table(self, answers: dict[str, tuple[np.ndarray, np.ndarray | None]]) -> pa.Table:
        parts = []
        for name, (said, probabilities) in answers.items():
            count = len(said)
            likely = (
                [None] * count if probabilities is None else list(probabilities.astype(np.float32))
            )
            columns = [
                pa.array([name] * count).dictionary_encode(),
                pa.array([f"{name}-{row}" for row in range(count)]),
                pa.array(self.labels[name]),
                pa.array(said.astype(np.float64)),
                pa.array(likely, pa.list_(pa.float32())),
            ]
            parts.append(pa.table(dict(zip(PREDICTIONS.names, columns, strict=True))))
        return pa.concat_tables([part.cast(PREDICTIONS) for part in parts]).unify_dictionaries()


def dev_labels(tasks: TaskSet, rows: int) -> dict[str, np.ndarray]:
    found = {}
    for task in tasks:
        if task.kind == "regression":
            found[task.name] = np.linspace(task.low, task.high, rows).round(2)
        else:
            found[task.name] = (np.arange(rows) % task.classes).astype(np.float64)
    return found
