"""What a run has done so far: all of its state that is not a tensor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
    best: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[Record] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)
    simcse_loss: float | None = None  # of the stage before, if there was one

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Progress:
        return cls(**{**data, "meter": Meter(**data["meter"])})
