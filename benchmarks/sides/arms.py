"""The arms of outcome.py: ways to spend the same number of training examples.

An arm takes a cell and hands out models, most often one, each under the name of its row. Adding an
arm is a function here and its line in `ARMS`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from model.config.parse import RunConfig, flatten, load_preset, parse_settings, preset_names
from model.modules.encoder_defaults import encoder_defaults
from model.tasks.task_set import TaskSet, load_task_set
from model.train import train
from model.training.progress import Progress
from model.training.step import TrainingDiverged

from .cell import Arm, Cell, Handed, Trained
from .our_search import ours
from .stock import stock

LONG, SHORT = 5, 3  # evaluations of a run that has the whole budget, and of one that has a part


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
    space, settings = cell.space(), cell.settings(cell.part, SHORT)
    rng = np.random.default_rng(cell.seed)
    runs = [space.config(space.draw(rng), None, settings) for _ in range(cell.trials)]
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
    "stock": stock,
    "random": random_search,
    "ours": ours,
}
GENEROUS: dict[str, Arm] = {
    f"preset-full:{name}": partial(preset_in_full, name) for name in preset_names()
}
