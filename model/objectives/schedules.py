"""Which task, or tasks, each optimiser step trains.

A schedule names tasks and touches no data. It is a finite iterator of rounds, a
round being the tasks that share one step, and its n-th round depends on the plan
alone: resuming a run is skipping the rounds that are done. Each task draws its
batches from its own endless stream, so a task that comes up again goes on where
it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

Round = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """What a schedule has to know. Tasks are numbers, as listed in the task set."""

    rows: tuple[int, ...]  # real training rows per task (augmentation not counted)
    batches: tuple[int, ...]  # batches in one pass over each task
    epochs: float  # passes; may be fractional when the budget is given in examples
    parts: int | None = None  # epochs that these passes are divided into; None: each pass is one
    seed: int = 0
    order: tuple[int, ...] = ()  # sequential and epoch round robin; a task may come twice
    first: int | None = None  # the task trained alone at first; default: the one with most rows
    first_epochs: float = 1.0
    anchor: int | None = None  # simultaneous: its pass is an epoch; default: the largest but one
    anneal: float = 0.8
    epoch_steps: int | None = None  # uniform, annealed: steps per epoch; default: sum(batches)
    numbers: tuple[int, ...] = ()  # of these tasks in the task set, where they are not all of it

    def __post_init__(self) -> None:
        tasks = len(self.rows)
        if not tasks or len(self.batches) != tasks:
            raise ValueError(
                f"a plan needs rows and batches of every task, but got {self.rows}, {self.batches}"
            )
        if min(self.rows) < 1 or min(self.batches) < 1:
            raise ValueError(f"no task may be empty, but got {self.rows} rows, {self.batches}")
        if not 0 < self.epochs < math.inf:
            raise ValueError(f"epochs must be above 0, but got {self.epochs}")
        if self.parts is not None and self.parts < 1:
            raise ValueError(f"parts must be 1 or more, but got {self.parts}")
        if not 0 <= self.first_epochs < math.inf:
            raise ValueError(f"first_epochs must be 0 or more, but got {self.first_epochs}")
        if self.order and set(self.order) != set(range(tasks)):
            raise ValueError(f"order must name each of {tasks} tasks, but got {self.order}")
        for name, task in (("first", self.first), ("anchor", self.anchor)):
            if task is not None and not 0 <= task < tasks:
                raise ValueError(f"{name} must be one of {tasks} tasks, but got {task}")
        if self.epoch_steps is not None and self.epoch_steps < 1:
            raise ValueError(f"epoch_steps must be 1 or more, but got {self.epoch_steps}")

    @property
    def by_size(self) -> tuple[int, ...]:
        """The tasks from the most rows to the fewest; equals stay as listed."""
        return tuple(sorted(range(len(self.rows)), key=lambda task: -self.rows[task]))


def sequential(plan: RoundPlan) -> Iterator[Round]:
    """All passes over one task, then all over the next."""
    for task in plan.order or range(len(plan.rows)):
        yield from repeat((task,), _part(plan.epochs, plan.batches[task]))


def epoch_round_robin(plan: RoundPlan) -> Iterator[Round]:
    """In each epoch one pass over each task, or its share of one, one task after the other."""
    for _, share in _epochs(plan):
        for task in plan.order or range(len(plan.rows)):
            yield from repeat((task,), _part(share, plan.batches[task]))


def batch_round_robin(plan: RoundPlan) -> Iterator[Round]:
    """One step on a batch of every task; an epoch ends with the shortest task."""
    return repeat(_all(plan), _part(plan.epochs, min(plan.batches)))


def sampled_round_robin(plan: RoundPlan) -> Iterator[Round]:
    """Tasks in turn until all but the largest are used up.

    A smaller task drops out of the turns once it is used up; the largest stays in.
    """
    largest, *others = plan.by_size
    turns = max((plan.batches[task] for task in others), default=plan.batches[largest])
    for _, share in _epochs(plan):
        whole = share if plan.parts else 1.0  # an epoch that is cut begins as a whole one does
        for turn in range(_part(share, turns)):
            for task in _all(plan):
                if task == largest or turn < _part(whole, plan.batches[task]):
                    yield (task,)


def max_size_cycle(plan: RoundPlan) -> Iterator[Round]:
    """Tasks in turn until the longest is used up, the others cycling."""
    for _ in range(_part(plan.epochs, max(plan.batches))):
        for task in _all(plan):
            yield (task,)


def staggered(plan: RoundPlan) -> Iterator[Round]:
    """One task alone, then the sampled round robin."""
    return chain(_alone(plan), sampled_round_robin(plan))


def uniform(plan: RoundPlan) -> Iterator[Round]:
    """Each step a task by lot, all equally likely."""
    return _drawn(plan, anneal=None)


def annealed(plan: RoundPlan) -> Iterator[Round]:
    """Each step a task by lot: by size at first, more and more equally later."""
    return _drawn(plan, anneal=plan.anneal)


def simultaneous(plan: RoundPlan) -> Iterator[Round]:
    """One step on a batch of every task; an epoch is one pass over the anchor."""
    anchor = plan.by_size[:2][-1] if plan.anchor is None else plan.anchor
    return repeat(_all(plan), _part(plan.epochs, plan.batches[anchor]))


def pretrain_then_simultaneous(plan: RoundPlan) -> Iterator[Round]:
    """One task alone, then all of them in every step."""
    return chain(_alone(plan), simultaneous(plan))


SCHEDULES: dict[str, Callable[[RoundPlan], Iterator[Round]]] = {
    "sequential": sequential,
    "epoch_round_robin": epoch_round_robin,
    "batch_round_robin": batch_round_robin,
    "sampled_round_robin": sampled_round_robin,
    "max_size_cycle": max_size_cycle,
    "staggered": staggered,
    "uniform": uniform,
    "annealed": annealed,
    "simultaneous": simultaneous,
    "pretrain_then_simultaneous": pretrain_then_simultaneous,
}


def rounds_of(name: str, plan: RoundPlan) -> Iterator[Round]:
    """The schedule's rounds, with the tasks by their numbers in the task set."""
    rounds = SCHEDULES[name](plan)
    if not plan.numbers:
        return rounds
    return (tuple(plan.numbers[task] for task in round_) for round_ in rounds)


ANNEALED_PARTS = 10  # of a run shorter than two epochs, unless the plan says how many

# The schedules whose rounds hold several tasks.
JOINT = frozenset({"batch_round_robin", "simultaneous", "pretrain_then_simultaneous"})

# The schedules that begin with one task alone, and what they go on with.
STAGED = {"staggered": "sampled_round_robin", "pretrain_then_simultaneous": "simultaneous"}

# The schedules to which it matters where an epoch ends.
BY_EPOCH = frozenset({"epoch_round_robin", "sampled_round_robin", "staggered", "annealed"})


def annealed_probabilities(
    rows: Sequence[int], epoch: int, epochs: int, anneal: float = 0.8
) -> NDArray[np.float64]:
    """p_i proportional to rows_i^(1 - anneal (e - 1) / (E - 1)), e counting from 1 to E."""
    exponent = 1.0 if epochs <= 1 else 1.0 - anneal * (epoch - 1) / (epochs - 1)
    weights = np.asarray(rows, dtype=np.float64) ** exponent
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


def plan_for_examples(
    name: str, plan: RoundPlan, batch_sizes: Sequence[int], examples: int
) -> RoundPlan:
    """The plan with as many passes as it takes to see at least `examples`, or a little more."""
    if examples < 1:
        raise ValueError(f"the budget must be at least one example, but got {examples}")
    per_batch = _examples_per_batch(plan, batch_sizes)
    if name in STAGED:
        first = plan.by_size[0] if plan.first is None else plan.first
        one_pass = per_batch[first] * plan.batches[first]
        if plan.parts:
            # Its epochs, and those after it, are all shorter or longer alike.
            later = _seen(STAGED[name], replace(plan, epochs=plan.parts), per_batch)
            first_epochs = plan.first_epochs * examples / (plan.first_epochs * one_pass + later)
        else:
            # A pass over a large first task can be longer than the whole budget. Half is left
            # for the rest, or a short trial would never see the tasks that it is judged by.
            first_epochs = min(plan.first_epochs, examples / 2 / one_pass)
        left = max(1, math.ceil(examples - first_epochs * one_pass))
        rest = plan_for_examples(STAGED[name], plan, batch_sizes, left)
        return replace(rest, first_epochs=first_epochs)
    # The last batch of a pass is short and may come at any place: aim one round higher.
    slack = sum(batch_sizes)
    target = examples + slack
    epochs, enough = 1.0, math.inf
    for _ in range(20):
        seen = _seen(name, replace(plan, epochs=epochs), per_batch)
        if seen >= target:
            enough = min(enough, epochs)
            if seen <= 1.02 * target + slack:
                break
        # Nearly linear, so this settles in two or three tries. Only `annealed` jumps, where
        # one epoch more changes all its chances; it may end on the nearest that is enough.
        epochs *= (target + slack / 2) / seen
    return replace(plan, epochs=epochs if math.isinf(enough) else enough)


def _seen(name: str, plan: RoundPlan, per_batch: Sequence[float]) -> float:
    counts = Counter(chain.from_iterable(SCHEDULES[name](plan)))
    return sum(per_batch[task] * count for task, count in counts.items())


def _examples_per_batch(plan: RoundPlan, batch_sizes: Sequence[int]) -> list[float]:
    """The mean, the short last batch counted, and never too many with augmentation."""
    if len(batch_sizes) != len(plan.rows):
        raise ValueError(f"a batch size is needed for every task, but got {batch_sizes}")
    means = []
    for rows, batches, size in zip(plan.rows, plan.batches, batch_sizes, strict=True):
        fits = (batches - 1) * size < rows <= batches * size
        means.append((rows if fits else (batches - 1) * size + 1) / batches)
    return means


def _all(plan: RoundPlan) -> Round:
    return tuple(range(len(plan.rows)))


def _part(share: float, count: int) -> int:
    """`share` times `count`, cut to a whole number: rounded up, and at least 1."""
    return max(1, math.ceil(share * count - 1e-6))


def _epochs(plan: RoundPlan) -> Iterator[tuple[int, float]]:
    """Every epoch from 1 on with its share of a pass: 1, and less for a last one that is cut.

    A cut epoch is short in every task rather than without its last ones, so that a
    budget below one epoch still trains all of them. Of a plan in parts all have the same share.
    """
    if plan.parts:
        yield from ((epoch, plan.epochs / plan.parts) for epoch in range(1, plan.parts + 1))
        return
    for epoch in range(1, math.ceil(plan.epochs) + 1):
        yield epoch, min(1.0, plan.epochs - (epoch - 1))


def _alone(plan: RoundPlan) -> Iterator[Round]:
    first = plan.by_size[0] if plan.first is None else plan.first
    count = _part(plan.first_epochs, plan.batches[first]) if plan.first_epochs else 0
    return repeat((first,), count)


def _drawn(plan: RoundPlan, anneal: float | None) -> Iterator[Round]:
    steps = plan.epoch_steps or sum(plan.batches)
    tasks = len(plan.rows)
    if anneal is None:
        plan = replace(plan, parts=None)
    elif plan.parts or plan.epochs < 2:
        # One epoch has no way to go from the first to the last: anneal over parts of it.
        total = _part(plan.epochs, steps)
        parts = min(plan.parts or ANNEALED_PARTS, total)
        steps = -(-total // parts)
        plan = replace(plan, epochs=total / steps, parts=None)
    for epoch, share in _epochs(plan):
        chances = None
        if anneal is not None:
            chances = annealed_probabilities(plan.rows, epoch, math.ceil(plan.epochs), anneal)
        # The whole epoch is drawn even if it is cut: the n-th draw is always the same.
        draws = np.random.default_rng([plan.seed, epoch]).choice(tasks, size=steps, p=chances)
        for task in draws[: _part(share, steps)].tolist():
            yield (task,)
