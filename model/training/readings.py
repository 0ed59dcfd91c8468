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


def read_steps(steps: Sequence[UnreadStep]) -> Iterator[StepReport]:
    """One wait for all of these steps; then what each told, until one that diverged."""
    if not steps:
        return
    numbers = iter(torch.cat([step.values for step in steps]).tolist())
    for step in steps:
        losses = {task: next(numbers) for task in step.tasks}
        objectives = {task: next(numbers) for task in step.tasks}
        smart = next(numbers) if step.smart else None
        norm = next(numbers)
        _check(step.number, losses, objectives, norm)
        yield StepReport(losses, smart, norm)


def _check(
    number: int, losses: dict[str, float], objectives: dict[str, float], norm: float
) -> None:
    remedy = "try a smaller optim.learning_rate"
    for task, value in objectives.items():
        if not math.isfinite(value):
            raise TrainingDiverged(
                f"step {number}: the loss of '{task}' is {value} "
                f"(plain loss {losses[task]}); {remedy}"
            )
    if not math.isfinite(norm):
        raise TrainingDiverged(f"step {number}: the gradient's norm is {norm}; {remedy}")
