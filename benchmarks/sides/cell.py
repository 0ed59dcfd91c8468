"""A cell of outcome.py: what an arm is given, and what it hands out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.training.prepare import ProcessCache
from tuner.space.space import Space, load_space

from .held_out import Material


@dataclass(frozen=True)
class Cell:
    """One arm's work: what it is given."""

    material: Material
    budget: int
    seed: int
    encoder: str
    dev_rows: int  # of each task, at every evaluation
    trials: int  # for which a search's budget is enough, if all are trained in full
    work: Path  # empty, and gone when the model is scored
    search_flags: Sequence[str] = ()
    search_name: str = "ours"
    without: str = ""  # a part that our search does without
    cache: ProcessCache = field(default_factory=ProcessCache)

    @property
    def part(self) -> int:
        """Examples of one of these trials."""
        return self.budget // self.trials

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
    seconds: float | None = None  # if the arm took longer, for what is no part of its work
    scores: Mapping[str, Any] | None = None  # of its row, if it is scored already
    more: Mapping[str, Any] = field(default_factory=dict)  # for its row


Arm = Callable[[Cell], Mapping[str, Handed]]


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
