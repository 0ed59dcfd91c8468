"""The microbatches of a step side by side on the CPU: data parallelism with threads.

Threads that share an operation wait for each other at its end, and a step has thousands of
operations. Two replicas of the model, each on threads of its own, meet at the end of the step.
They have the same weights and gradients of their own, which are added up in the same order
every time: the same step gives the same sums.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn

from model.common.rng import own_rng, seed_rng
from model.modules.compiled import is_compiled
from model.modules.encoder import layers_of
from model.modules.multitask import MultitaskModel
from model.training.microbatches import MicroBatch, cut_in_two, doubled, take

# Multiplications in a pass (weights of the layers x tokens) from which on replicas are the faster.
WORTH = 1_000_000_000

Outcome = TypeVar("Outcome")


class Replicas:
    """A model, and one more that is made when it is first worth it."""

    def __init__(self, model: MultitaskModel) -> None:
        self.model = model
        self._weights = sum(weights.numel() for weights in layers_of(model.encoder).parameters())
        self._fit: bool | None = None  # not known yet

    @cached_property
    def replica(self) -> MultitaskModel:
        return replica_of(self.model)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        # A thread takes the number of threads from the process when it first asks for it, even
        # if it was told another one before; so let it ask first.
        return ThreadPoolExecutor(2, "replica", initializer=torch.get_num_threads)

    def run(
        self,
        microbatches: Sequence[MicroBatch],
        work: Callable[[MultitaskModel, MicroBatch], Outcome],
    ) -> list[Outcome]:
        """What the work makes of each microbatch; all gradients end up in the model itself."""
        if not self._worth(microbatches):
            return [work(self.model, microbatch) for microbatch in microbatches]

        def follow(model: MultitaskModel, threads: int, mine: list[MicroBatch]) -> list[Outcome]:
            torch.set_num_threads(threads)
            outcomes = []
            for microbatch in mine:
                with own_rng(
                    microbatch.first, len(microbatch), microbatch.of, sides=microbatch.batch.parts
                ):
                    outcomes.append(work(model, microbatch))
            return outcomes

        for mine, same in zip(self.model.modules(), self.replica.modules(), strict=True):
            same.training = mine.training
        threads = torch.get_num_threads()
        half = threads // 2
        first, second = cut_in_two(microbatches, (threads - half) / threads)
        sides = [
            self._pool.submit(follow, self.model, threads - half, first),
            self._pool.submit(follow, self.replica, half, second),
        ]
        try:
            outcomes = [outcome for side in sides for outcome in side.result()]
            self._add_gradients()
        finally:
            wait(sides)  # whatever happened: one still at work would go on adding gradients
            torch.set_num_threads(threads)  # of threads that are yet to come
            self.replica.zero_grad(set_to_none=True)
        return outcomes

    def _worth(self, microbatches: Sequence[MicroBatch]) -> bool:
        """Whether replicas are the faster (a single batch, cut in two, is not) and the same."""
        tokens = sum(microbatch.batch.input_ids.numel() for microbatch in microbatches)
        if torch.get_num_threads() < 2 or len(microbatches) < 2 or self._weights * tokens < WORTH:
            return False
        if self._fit is None:
            self._fit = fits_replicas(self.model, microbatches[0])
        return self._fit

    @torch.no_grad()
    def _add_gradients(self) -> None:
        pairs = zip(self.model.parameters(), self.replica.parameters(), strict=True)
        for parameter, same in pairs:
            if parameter.grad is not None and same.grad is not None:
                parameter.grad.add_(same.grad)
            elif same.grad is not None:
                parameter.grad = same.grad.to_dense()


def replica_of(model: MultitaskModel) -> MultitaskModel:
    """A copy, as the model is now, with the very same weights and gradients of its own."""
    same: dict[int, object] = {
        id(weights): nn.Parameter(weights.detach(), requires_grad=weights.requires_grad)
        for weights in model.parameters()
    }
    return copy.deepcopy(model, same)


@torch.no_grad()
def fits_replicas(model: MultitaskModel, microbatch: MicroBatch) -> bool:
    """Whether a row has the same answer wherever it was cut off, tried on two.

    Encoders may have dropout that is none of ours and draws from torch's generator, which
    replicas would have to share; or dropout of tensors that do not begin with the batch's rows.
    PALs keep the task in one place, also in the copy of the model that Bregman's term asks.
    Gradient checkpointing repeats the draws of torch's generator alone. torch.compile is not for
    two threads at once.
    """
    if microbatch.batch.labels.device.type != "cpu" or model.pals is not None:
        return False
    if model.encoder.is_gradient_checkpointing or is_compiled(model.encoder):
        return False
    two = microbatch.batch if len(microbatch) > 1 else doubled(microbatch.batch)

    def answers(count: int) -> Tensor:
        batch = take(two, 0, count)
        with own_rng(0, count, 2, sides=batch.parts):
            seed_rng(0, batch.labels.device)
            found: Tensor = model(microbatch.task, batch)
        return found

    before = torch.default_generator.get_state()
    try:
        alike = torch.allclose(answers(2)[:1], answers(1), rtol=1e-3, atol=1e-5)
        return alike and torch.equal(torch.default_generator.get_state(), before)
    finally:
        torch.default_generator.set_state(before)
