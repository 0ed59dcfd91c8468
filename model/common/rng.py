"""Where the random numbers of a step come from.

Every microbatch has a seed of its own. Its numbers come out of torch's generator, of which a
process has one; where two replicas of the model are at work (`model.training.replicas`) each
microbatch has its own. Rows that were cut off a batch take theirs out of the numbers of all its
rows, so that a step is the same one however it was cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Own:
    """A generator for some rows out of those that the seed is for."""

    first: int
    rows: int
    of: int
    sides: int
    generator: torch.Generator = field(default_factory=torch.Generator)


_own: ContextVar[_Own | None] = ContextVar("own", default=None)


def rng_seed(*key: int) -> int:
    """A seed that depends on every number of the key, and on how many there are."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_rng(seed: int, device: torch.device) -> None:
    """Seed what draws on this device.

    `torch.manual_seed` reaches every device, and where CUDA sleeps it formats a stack trace per
    call to seed it later: on a CPU that was a twelfth of a small step.
    """
    if own := _own.get():
        own.generator.manual_seed(seed)
    elif device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


@contextmanager
def own_rng(first: int, rows: int, of: int, *, sides: int = 1) -> Iterator[None]:
    """Within, this thread draws from a generator of its own, on the CPU: for these rows of all.

    Each row has so many `sides`, sequences of its own.
    """
    before = _own.set(_Own(first, rows, of, sides))
    try:
        yield
    finally:
        _own.reset(before)


def generator() -> torch.Generator | None:
    """What to draw from on the CPU; None stands for torch's own."""
    own = _own.get()
    return None if own is None else own.generator


def of_rows(shape: Sequence[int], draw: Callable[[Sequence[int]], Tensor]) -> Tensor:
    """A tensor of this shape, whose rows are those that `draw` gives them among all rows.

    What has a row for every sequence has all first sentences before all second ones; what has
    neither as many rows as that nor as the batch is drawn as it is.
    """
    own = _own.get()
    if own is None or own.rows == own.of or shape[0] not in (own.rows, own.sides * own.rows):
        return draw(shape)
    sides = shape[0] // own.rows
    by_side: Tensor = draw((sides * own.of, *shape[1:])).unflatten(0, (sides, own.of))
    return by_side[:, own.first : own.first + own.rows].flatten(0, 1)
