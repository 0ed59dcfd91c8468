"""What steps have to tell, left on the device until somebody reads it.

Reading a number makes the host wait for the device, which then has nothing queued up. So a step
reads nothing: it leaves one small tensor, and a run looks at those of many steps at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_SKIPS = 20  # halvings of the scale that gradients start with, 65536: below .1 it is no help


class TrainingDiverged(RuntimeError):
    """A loss stopped being a finite number."""


@dataclass(frozen=True)
class StepReport:
    losses: dict[str, float]  # per task, before weights and regularisers
    smart: float | None  # SMART's term, mean over the tasks it was applied to
    gradient_norm: float


@dataclass(frozen=True, eq=False)
class UnreadStep:
    """A step's numbers in one tensor: each task's loss and objective, SMART's term, the norm."""

    number: int
    tasks: tuple[str, ...]
    smart: bool
    values: Tensor

    @classmethod
    def of(
        cls,
        number: int,
        losses: dict[str, Tensor],
        objectives: Sequence[Tensor],
        smart: Tensor | None,
        norm: Tensor,
    ) -> UnreadStep:
        terms = [] if smart is None else [smart]
        each = [*losses.values(), *objectives, *terms, norm]
        values = torch.stack([value.detach().float() for value in each])
        return cls(number, tuple(losses), smart is not None, values)


class Reader:
    """Reads steps in their order, and notices where training diverged.

    With float16 a step whose gradients overflowed was left out on the device, and the next ones
    are scaled down until they fit. That is part of it now and then, and not for long.
    """

    def __init__(self, *, float16: bool = False) -> None:
        self.skips_allowed = MOST_SKIPS if float16 else 0
        self.skipped = 0  # in a row

    def read(self, steps: Sequence[UnreadStep]) -> Iterator[StepReport]:
        """One wait for all of these steps; then what each told, until one that diverged."""
        if not steps:
            return
        numbers = iter(torch.cat([step.values for step in steps]).tolist())
        for step in steps:
            losses = {task: next(numbers) for task in step.tasks}
            objectives = {task: next(numbers) for task in step.tasks}
            smart = next(numbers) if step.smart else None
            report = StepReport(losses, smart, next(numbers))
            fault = self._fault(report, objectives)
            if fault is None:
                self.skipped = 0
                yield report
                continue
            self.skipped += 1
            if self.skipped > self.skips_allowed or not _finite(losses):
                remedy = "try a smaller optim.learning_rate"
                raise TrainingDiverged(f"step {step.number}: {fault}; {remedy}")

    def _fault(self, report: StepReport, objectives: dict[str, float]) -> str | None:
        for task, value in objectives.items():
            if not math.isfinite(value):
                return f"the loss of '{task}' is {value} (plain loss {report.losses[task]})"
        norm = report.gradient_norm
        return None if math.isfinite(norm) else f"the gradient's norm is {norm}"


def _finite(losses: dict[str, float]) -> bool:
    return all(math.isfinite(value) for value in losses.values())
