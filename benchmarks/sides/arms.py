"""The arms of outcome.py: ways to spend the same number of training examples.

An arm takes a cell and hands out models, most often one, each under the name of its row. Adding an
arm is a function here and its line in `ARMS`.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from model.config.parse import RunConfig, flatten, load_preset, parse_settings, preset_names
from model.modules.encoder_defaults import encoder_defaults
from model.tasks.task_set import TaskSet, load_task_set
from model.train import train
from model.training.prepare import ProcessCache
from model.training.progress import Progress
from model.training.step import TrainingDiverged
from tuner.space.space import Space, load_space

from .held_out import Material

TRIALS = 8  # in a search's budget, if they are trained in full
LONG, SHORT = 5, 3  # evaluations of a run that has the whole budget, and of one that has a part


@dataclass(frozen=True)
class Cell:
    """One arm's work: what it is given."""

    material: Material
    budget: int
    seed: int
    encoder: str
    dev_rows: int  # of each task, at every evaluation
    work: Path  # empty, and gone when the model is scored
    search_flags: Sequence[str] = ()
    search_name: str = "ours"
    cache: ProcessCache = field(default_factory=ProcessCache)

    @property
    def rows(self) -> int:
        """Dev rows that one evaluation takes."""
        return sum(len(table) for table in self.material.dev.values())

    def settings(self, examples: int, evaluations: int) -> dict[str, Any]:
        """What every run of the benchmark has, whatever else it is."""
        return {
            "encoder.name": self.encoder,
            "budget.epochs": None,
            "budget.examples": examples,
            "budget.eval_every": -(-examples // evaluations),
            "budget.eval_rows": self.dev_rows,
            "seed": self.seed,
        }

    def space(self) -> Space:
        """The space of every search."""
        held = {"encoder.name": self.encoder}
        return load_space("default", self.material.tasks.origin, held)


@dataclass(frozen=True)
class Handed:
    """What an arm hands out, and what it took."""

    model: Path
    examples: int  # trained on
    evaluated: int  # dev rows


Arm = Callable[[Cell], Mapping[str, Handed]]


def default(cell: Cell) -> dict[str, Handed]:
    """One run of the default configuration."""
    settings = cell.settings(cell.budget, LONG)
    return {"default": best_of(cell, [parse_settings(settings, cell.material.tasks)])}


def presets(cell: Cell) -> dict[str, Handed]:
    """Each preset on its share of the budget."""
    names = preset_names()
    runs = [preset(cell, name, cell.budget // len(names), SHORT) for name in names]
    return {"presets": best_of(cell, runs)}


def preset_in_full(name: str, cell: Cell) -> dict[str, Handed]:
    """One preset on the whole budget, as if it had been known to be the best."""
    return {f"preset-full:{name}": best_of(cell, [preset(cell, name, cell.budget, LONG)])}


def random_search(cell: Cell) -> dict[str, Handed]:
    """Trials in full, drawn from the space without its start points."""
    space, settings = cell.space(), cell.settings(cell.budget // TRIALS, SHORT)
    rng = np.random.default_rng(cell.seed)
    runs = [space.config(space.draw(rng), None, settings) for _ in range(TRIALS)]
    return {"random": best_of(cell, runs)}


def preset(cell: Cell, name: str, examples: int, evaluations: int) -> RunConfig:
    """A preset with this benchmark's encoder, at the rate that suits it.

    Without SimCSE, whose passes over the sentences would be many times the budget.
    """
    layer, tasks = load_preset(name), cell.material.tasks
    settings = renamed(flatten(layer.settings), load_task_set(layer.tasks or tasks.origin), tasks)
    settings["optim.learning_rate"] = encoder_defaults(cell.encoder).learning_rate
    settings["pretrain.simcse.epochs"] = 0
    return parse_settings(settings | cell.settings(examples, evaluations), tasks)


def renamed(settings: Mapping[str, Any], old: TaskSet, new: TaskSet) -> dict[str, Any]:
    """Settings that name the tasks of one set, for those in the same places of another."""
    names = dict(zip(old.names, new.names, strict=True))

    def value(given: Any) -> Any:
        if isinstance(given, list):
            return [value(each) for each in given]
        return names.get(given, given) if isinstance(given, str) else given

    def key(given: str) -> str:
        *section, last = given.split(".")
        return ".".join([*section, names.get(last, last)])

    return {key(name): value(given) for name, given in settings.items()}


@dataclass(frozen=True)
class Trained:
    """A run, as far as it came."""

    out: Path
    records: Sequence[dict[str, Any]]  # of its evaluations
    examples: int

    @property
    def best(self) -> dict[str, Any] | None:
        return max(self.records, key=lambda record: float(record["score"]), default=None)

    @property
    def score(self) -> float:
        return -math.inf if self.best is None else float(self.best["score"])

    @property
    def model(self) -> Path:
        """The best by dev, which a run always keeps."""
        if self.best is None:
            fault = "no run came to its first evaluation: all diverged; try another seed or budget"
            raise RuntimeError(fault)
        return self.out / "checkpoints" / self.best["checkpoint"] / "model"


def train_run(cell: Cell, config: RunConfig, out: Path) -> Trained:
    records, examples = [], 0

    def watch(progress: Progress, steps: int) -> None:
        nonlocal examples
        examples = progress.examples

    tasks, data = cell.material.tasks, cell.material.data
    with suppress(TrainingDiverged):  # what came before that still counts
        for record in train(config, tasks, out=out, data=data, watch=watch, cache=cell.cache):
            records.append(record)
    return Trained(out, records, examples)


def best_of(cell: Cell, configs: Sequence[RunConfig]) -> Handed:
    """Train each, one after the other, and hand out the best model by dev."""
    best = Trained(cell.work / "none", (), 0)
    examples = evaluations = 0
    for number, config in enumerate(configs):
        run = train_run(cell, config, cell.work / f"run-{number}")
        examples, evaluations = examples + run.examples, evaluations + len(run.records)
        best, other = (run, best) if run.score > best.score else (best, run)
        shutil.rmtree(other.out, ignore_errors=True)  # a run's checkpoints take up to a gigabyte
    return Handed(best.model, examples, evaluations * cell.rows)


ARMS: dict[str, Arm] = {
    "default": default,
    "presets": presets,
    "random": random_search,
}
GENEROUS: dict[str, Arm] = {
    f"preset-full:{name}": partial(preset_in_full, name) for name in preset_names()
}
