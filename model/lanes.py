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
from torch import nn

from model.draws import own_draws
from model.encoder import layers_of
from model.multitask import MultitaskModel
from model.parts import Part, deal, take

# More threads than lanes go to each: every lane has a whole gradient to keep and to add up.
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
        self._weights = sum(w.numel() for w in layers_of(own.model.encoder).parameters())
        self._parameters = [list(side.model.parameters()) for side in self.sides]
        self._pool = ThreadPoolExecutor(LANES, thread_name_prefix="lane")

    def run(
        self, parts: Sequence[Part], work: Callable[[Side, Part], Outcome]
    ) -> list[Outcome] | None:
        """What the work makes of each part; gradients are added to those of the model itself.

        None, and nothing done, where that would be no gain: a single batch, cut in two, is
        as fast by all threads together.
        """
        tokens = sum(part.batch.input_ids.numel() for part in parts)
        if len(parts) < LANES or self._weights * tokens < WORTH:
            return None
        dealt = deal(parts, self.shares)
        if not all(dealt):
            return None

        def follow(side: Side, threads: int, mine: list[Part]) -> list[Outcome]:
            torch.set_num_threads(threads)
            side.model.train(self.sides[0].model.training)
            return [work_alone(work, side, part) for part in mine]

        try:
            lanes = [
                self._pool.submit(follow, *lane)
                for lane in zip(self.sides, self.shares, dealt, strict=True)
            ]
            wait(lanes)
            outcomes = [outcome for lane in lanes for outcome in lane.result()]
            self._gather()
        finally:
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


def work_alone(work: Callable[[Side, Part], Outcome], side: Side, part: Part) -> Outcome:
    """The work with random numbers that no other thread draws from."""
    with own_draws(part.first, len(part), part.of):
        return work(side, part)


def twin(module: AnyModule) -> AnyModule:
    """A copy with the very same weights and gradients of its own."""
    same: dict[int, object] = {
        id(weights): nn.Parameter(weights.detach(), requires_grad=weights.requires_grad)
        for weights in module.parameters()
    }
    return copy.deepcopy(module, same)


@torch.no_grad()
def draws_by_itself(model: MultitaskModel, part: Part) -> bool:
    """Whether it draws from torch's generator, where lanes would meet; tried on a row.

    Encoders may have dropout that is none of ours.
    """
    row = take(part.batch, np.arange(1))
    before = torch.default_generator.get_state()
    with own_draws(0, 1, 1):
        model(part.task, row)
    after = torch.default_generator.get_state()
    torch.default_generator.set_state(before)
    return not torch.equal(before, after)
