"""The parts of a step side by side on the CPU, each lane of them on threads of its own.

Threads that share an operation wait for each other at its end, and a step has thousands of
operations. Lanes meet at the end of the step. Each has a twin of the model, with the same
weights and gradients of its own, which are added up in the order of the lanes: the same step
gives the same sums.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from model.draws import own_draws, seed_draws
from model.encoder import layers_of
from model.multitask import MultitaskModel
from model.parts import Part, deal, take

# Further threads are shared out among the lanes: each has a whole gradient to keep and to add.
LANES = 2
# Multiplications in a pass (weights of the layers x tokens) from which on lanes are the faster.
WORTH = 1_000_000_000

Outcome = TypeVar("Outcome")
AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Side(NamedTuple):
    """What a lane works with."""

    model: MultitaskModel
    copy: MultitaskModel | None  # Bregman's, where there is one


class Lanes:
    def __init__(self, own: Side, threads: int) -> None:
        self.threads = threads
        self.shares = [threads // LANES + (n < threads % LANES) for n in range(LANES)]
        twins = (
            Side(twin(own.model), None if own.copy is None else twin(own.copy))
            for _ in range(LANES - 1)
        )
        self.sides = [own, *twins]
        self._parameters = [list(side.model.parameters()) for side in self.sides]
        # A thread takes the number of threads from the process when it first asks for it, even
        # if it was told another one before; so let it ask first.
        self._pool = ThreadPoolExecutor(LANES, "lane", initializer=torch.get_num_threads)

    def run(self, parts: Sequence[Part], work: Callable[[Side, Part], Outcome]) -> list[Outcome]:
        """What the work makes of each part; gradients are added to those of the model itself."""

        def follow(side: Side, threads: int, mine: list[Part]) -> list[Outcome]:
            torch.set_num_threads(threads)
            outcomes = []
            for part in mine:
                with own_draws(part.first, len(part), part.of, sides=part.batch.parts):
                    outcomes.append(work(side, part))
            return outcomes

        for side in self.sides[1:]:
            for mine, same in zip(self.sides[0].model.modules(), side.model.modules(), strict=True):
                same.training = mine.training
        dealt = deal(parts, self.shares)
        lanes = [
            self._pool.submit(follow, *lane)
            for lane in zip(self.sides, self.shares, dealt, strict=True)
        ]
        try:
            outcomes = [outcome for lane in lanes for outcome in lane.result()]
            self._gather()
        finally:
            wait(lanes)  # whatever happened: one still at work would go on adding gradients
            torch.set_num_threads(self.threads)  # of threads that are yet to come
            for parameters in self._parameters[1:]:
                for parameter in parameters:
                    parameter.grad = None
        return outcomes

    @torch.no_grad()
    def _gather(self) -> None:
        own, *others = self._parameters
        for parameters in others:
            sums, more = [], []
            for parameter, same in zip(own, parameters, strict=True):
                if parameter.grad is None:
                    parameter.grad = same.grad
                elif same.grad is not None and same.grad.is_sparse:
                    parameter.grad = parameter.grad + same.grad
                elif same.grad is not None:
                    sums.append(parameter.grad)
                    more.append(same.grad)
            if sums:
                torch._foreach_add_(sums, more)


def worth_lanes(model: MultitaskModel, parts: Sequence[Part]) -> bool:
    """Whether lanes are the faster; a single batch, cut in two, is not."""
    tokens = sum(part.batch.input_ids.numel() for part in parts)
    weights = sum(weights.numel() for weights in layers_of(model.encoder).parameters())
    return len(parts) >= LANES and weights * tokens >= WORTH


def twin(module: AnyModule) -> AnyModule:
    """A copy, as the module is now, with the very same weights and gradients of its own."""
    same: dict[int, object] = {
        id(weights): nn.Parameter(weights.detach(), requires_grad=weights.requires_grad)
        for weights in module.parameters()
    }
    return copy.deepcopy(module, same)


@torch.no_grad()
def suits_lanes(model: MultitaskModel, part: Part) -> bool:
    """Whether a row has the same answer wherever it was cut off, tried on two.

    Encoders may have dropout that is none of ours and draws from torch's generator, which lanes
    would have to share; or dropout of tensors that do not begin with the batch's rows.
    """
    rows = np.arange(2) % len(part)

    def answers(count: int) -> Tensor:
        batch = take(part.batch, rows[:count])
        with own_draws(0, count, 2, sides=batch.parts):
            seed_draws(0, batch.labels.device)
            found: Tensor = model(part.task, batch)
        return found

    before = torch.default_generator.get_state()
    try:
        alike = torch.allclose(answers(2)[:1], answers(1), rtol=1e-3, atol=1e-5)
        return alike and torch.equal(torch.default_generator.get_state(), before)
    finally:
        torch.default_generator.set_state(before)
