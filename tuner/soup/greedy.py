"""Greedy selection, apart from what is selected: it knows numbers of candidates and their scores.

As Wortsman et al. (2022) describe the greedy soup: candidates come best first, the first is taken,
and each further one is kept only if what is chosen scores strictly better with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GreedyStep:
    candidate: int
    score: float  # of what was chosen before, and this one
    best: float | None  # the mark it had to beat; None for the first, which is always taken
    accepted: bool


def ranked(scores: Sequence[float]) -> list[int]:
    """Candidates best first; of equals, the one that was named first."""
    return sorted(range(len(scores)), key=lambda candidate: -scores[candidate])


def greedy(order: Sequence[int], score: Callable[[tuple[int, ...]], float]) -> list[GreedyStep]:
    """One step per candidate, in `order`. A score that is no number is never better."""
    steps: list[GreedyStep] = []
    chosen: tuple[int, ...] = ()
    best: float | None = None
    for candidate in order:
        value = score((*chosen, candidate))
        accepted = best is None or value > best
        steps.append(GreedyStep(candidate, value, best, accepted))
        if accepted:
            chosen, best = (*chosen, candidate), value
    return steps


def chosen_by(steps: Sequence[GreedyStep]) -> tuple[int, ...]:
    return tuple(step.candidate for step in steps if step.accepted)
