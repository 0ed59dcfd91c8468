"""What a run has done so far: all of its state that is not a tensor."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from model.common.run_files import OVERALL
from model.common.typed import show
from model.evaluation.scores import Score, Scores
from model.training.readings import StepReport

Record = dict[str, Any]


@dataclass
class Meter:
    """Sums since the last evaluation."""

    losses: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    smart: float = 0.0
    smart_steps: int = 0
    norm: float = 0.0
    steps: int = 0
    examples: int = 0
    seconds: float = 0.0  # of training, evaluations not counted
    data_seconds: float = 0.0

    def add(self, report: StepReport) -> None:
        for task, loss in report.losses.items():
            self.losses[task] = self.losses.get(task, 0.0) + loss
            self.counts[task] = self.counts.get(task, 0) + 1
        if report.smart is not None:
            self.smart += report.smart
            self.smart_steps += 1
        self.norm += report.gradient_norm
        self.steps += 1


@dataclass
class Progress:
    """Where a run stands; written into every checkpoint."""

    stage: str
    step: int = 0  # optimiser steps done in this stage
    examples: int = 0  # training examples seen, SimCSE's not counted
    seconds: float = 0.0
    drawn: dict[str, int] = field(default_factory=dict)  # batches taken from each stream
    best: dict[str, dict[str, Any]] = field(default_factory=dict)  # each a `SavedBest`
    history: list[Record] = field(default_factory=list)  # each a `SavedRecord`, and more
    meter: Meter = field(default_factory=Meter)
    simcse_loss: float | None = None  # of the stage before, if there was one

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Progress:
        told = data.get("meter", {})
        meter = {f.name: told[f.name] for f in fields(Meter) if f.name in told}
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        return cls(**{**known, "meter": Meter(**meter)})

    def record(
        self,
        scores: Scores,
        losses: Mapping[str, float],
        *,
        metrics: Mapping[str, str],
        steps: int,
        rates: tuple[float, float],
        name: str,
        also: Mapping[str, Mapping[str, Score]] | None = None,
        trained: Mapping[str, float] | None = None,
    ) -> Record:
        """What there is to tell of an evaluation, whose checkpoint has this name.

        `losses` are those on dev, `metrics` each task's, `steps` those of the whole run. `also` are
        further metrics on dev, and `trained` the tasks' own on training rows, where asked for.
        """
        meter = self.meter
        values = {OVERALL: scores.overall.value}
        values |= {task: score.value for task, score in scores.tasks.items()}
        best = [
            what
            for what, value in values.items()
            if what not in self.best or value > self.best[what]["value"]
        ]
        for what in best:
            self.best[what] = {"value": values[what], "checkpoint": name}
        return {
            "step": self.step,
            "examples": self.examples,
            "progress": self.step / steps,
            "score": scores.overall.value,
            "interval": [scores.overall.low, scores.overall.high],
            "tasks": {
                task: {
                    "metric": metric,
                    "value": scores.tasks[task].value,
                    "interval": [scores.tasks[task].low, scores.tasks[task].high],
                    "loss": losses[task],
                    "train_loss": mean(meter.losses.get(task), meter.counts.get(task)),
                    **({"train_value": trained[task]} if trained else {}),
                    **({"also": _told(also[task])} if also and also[task] else {}),
                }
                for task, metric in metrics.items()
            },
            "smart": mean(meter.smart, meter.smart_steps),
            "simcse_loss": self.simcse_loss,
            "gradient_norm": mean(meter.norm, meter.steps),
            "learning_rates": [*rates],
            "examples_per_second": mean(meter.examples, meter.seconds),
            "data_share": mean(meter.data_seconds, meter.seconds),
            "seconds": self.seconds,
            "best": best,
            "checkpoint": name,
            "predictions": f"predictions/{name}.parquet",
        }


def _told(scores: Mapping[str, Score]) -> dict[str, Any]:
    return {name: {"value": s.value, "interval": [s.low, s.high]} for name, s in scores.items()}


def mean(total: float | None, count: float | None) -> float | None:
    return total / count if total is not None and count else None


class Heartbeat:
    """Says when the next heartbeat, or look at the device, is due."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.last = time.monotonic()

    def due(self) -> bool:
        if self.seconds is None or time.monotonic() - self.last < self.seconds:
            return False
        self.last = time.monotonic()
        return True


# --- read again ---------------------------------------------------------------------------------


@dataclass
class SavedModel:
    checkpoint: str


@dataclass
class SavedBest(SavedModel):
    value: float


@dataclass
class SavedRecord(SavedModel):
    examples: int
    step: int


@dataclass
class SavedState:
    """What is beside the tensors of a checkpoint, which may be a stranger's."""

    fingerprint: str
    progress: Progress
    tasks: dict[str, Any] = field(default_factory=dict)
    machine: str = ""
    scaler: dict[str, Any] = field(default_factory=dict)


def state_fault(state: Any) -> str | None:
    if fault := misfit(state, SavedState):
        return fault
    progress = state["progress"]
    best, history = progress.get("best", {}), progress.get("history", [])
    told = misfit(best, dict[str, SavedBest], "best")
    return told or misfit(history, list[SavedRecord], "history")


def misfit(value: Any, kind: Any, where: str = "it") -> str | None:
    """Where a value that was read is not of its kind. What a dataclass lacks is left aside."""
    fits, parts = True, list[tuple[Any, Any, str]]()
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        needed = {f.name for f in fields(kind) if MISSING is f.default is f.default_factory}
        fits = isinstance(value, dict) and needed <= value.keys()
        parts = [(value[n], hints[n], n) for n in hints if n in value] if fits else []
    elif get_origin(kind) is dict:
        fits = isinstance(value, dict)
        parts = (
            [(each, get_args(kind)[1], f"{where}.{n}") for n, each in value.items()] if fits else []
        )
    elif get_origin(kind) is list:
        fits = isinstance(value, list)
        parts = [(each, get_args(kind)[0], where) for each in value] if fits else []
    elif isinstance(kind, UnionType):
        fits = any(misfit(value, each) is None for each in get_args(kind))
    elif kind is int:
        fits = type(value) is int and 0 <= value < 1 << 53
    elif kind is float:
        fits = type(value) in (int, float)
    elif kind is not Any:
        fits = isinstance(value, kind)
    if not fits:
        return f"'{where}' is {show(value)}, which no run writes"
    return next(filter(None, (misfit(*part) for part in parts)), None)
