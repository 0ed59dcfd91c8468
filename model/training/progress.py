"""What a run has done so far: all of its state that is not a tensor."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.evaluation.scores import Score, Scores
from model.training.readings import StepReport

Record = dict[str, Any]
OVERALL = "overall"


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
    best: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[Record] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)
    simcse_loss: float | None = None  # of the stage before, if there was one

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Progress:
        return cls(**{**data, "meter": Meter(**data["meter"])})

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
