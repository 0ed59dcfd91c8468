"""One optimiser step over a round of tasks: losses, SMART, Bregman, surgery, clipping.

Every step draws its random numbers from a seed of its own, (run's seed, step), so a resumed
run repeats an uninterrupted one without any generator state having been saved.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from model.data.batches import Batch
from model.encoder import layers_of
from model.linear import weights_held
from model.losses import make_loss
from model.multitask import MultitaskModel
from model.optim import layer_scales, set_rates
from model.settings import RunConfig
from model.smart import bregman_term, smart_term, update_momentum
from model.surgery import surgery
from model.word_table import sparse_table


class TrainingDiverged(RuntimeError):
    """A loss stopped being a finite number."""


@dataclass(frozen=True)
class StepReport:
    losses: dict[str, float]  # per task, before weights and regularisers
    smart: float | None  # SMART's term, mean over the tasks it was applied to
    gradient_norm: float


def draw_seed(*key: int) -> int:
    """A seed that depends on every number of the key, and on how many there are."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_draws(seed: int, device: torch.device) -> None:
    """Seed what draws on this device.

    `torch.manual_seed` reaches every device, and where CUDA sleeps it formats a stack trace per
    call to seed it later: on a CPU that was a twelfth of a small step.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def split_batch(batch: Batch, parts: int) -> list[Batch]:
    """The batch cut into at most so many parts; a pair's two sequences stay together."""
    count = len(batch.labels)
    pieces = [piece for piece in np.array_split(np.arange(count), parts) if len(piece)]
    if len(pieces) == 1:
        return [batch]

    def take(rows: np.ndarray, tensor: Tensor) -> Tensor:
        return tensor[
            torch.from_numpy(np.concatenate([rows + n * count for n in range(batch.parts)]))
        ]

    return [
        replace(
            batch,
            input_ids=take(rows, batch.input_ids),
            attention_mask=take(rows, batch.attention_mask),
            token_type_ids=take(rows, batch.token_type_ids),
            labels=batch.labels[torch.from_numpy(rows)],
            rows=batch.rows[rows],
        )
        for rows in pieces
    ]


class Stepper:
    """Trains a model by rounds. The momentum copy exists only where Bregman needs it."""

    def __init__(
        self,
        model: MultitaskModel,
        optimizer: torch.optim.Optimizer,
        config: RunConfig,
        *,
        weights: dict[str, float],
        bregman: float = 0.0,
        bfloat16: bool = False,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.config = config
        self.weights = weights
        self.bfloat16 = bfloat16
        self.losses = {
            name: make_loss(task.loss, alpha=config.loss.alpha)
            for name, task in model.tasks.items()
        }
        self.bregman = bregman
        self.smart_tasks = set(model.tasks if config.smart.tasks is None else config.smart.tasks)
        self.copy: MultitaskModel | None = None
        if bregman > 0:
            self.copy = copy.deepcopy(model).eval().requires_grad_(False)
        # Surgery compares whole gradients, so there it stays dense.
        self.table = None if config.surgery == "pcgrad" else sparse_table(model.encoder)

    def step(
        self,
        number: int,
        batches: Sequence[tuple[str, Batch]],
        rate: float,
        turns: Mapping[str, int],
    ) -> StepReport:
        """One optimiser step; `rate` scales every learning rate (warm-up and decay).

        `turns` says how many batches each task has had before: `smart.every` counts these, as a
        schedule that goes round the tasks would let a count of steps always meet the same one.
        """
        self.optimizer.zero_grad(set_to_none=True)
        losses: dict[str, float] = {}
        terms: list[float] = []
        separate: list[list[Tensor | None]] = []
        shared = self.model.shared_parameters()
        operate = self.config.surgery == "pcgrad" and len(batches) > 1
        for position, (task, batch) in enumerate(batches):
            regularise = turns[task] % self.config.smart.every == 0
            losses[task] = self._accumulate(task, batch, (number, position), regularise, terms)
            if operate:
                separate.append([parameter.grad for parameter in shared])
                for parameter in shared:
                    parameter.grad = None
        if operate:
            merged = surgery(separate, seed=draw_seed(self.config.seed, number, len(batches)))
            for parameter, gradient in zip(shared, merged, strict=True):
                parameter.grad = gradient
        norm = self._gradients(number)
        set_rates(self.optimizer, rate, self._layer_scales([task for task, _ in batches]))
        self.optimizer.step()
        if self.copy is not None:
            kept = dict(self.copy.named_parameters())
            update_momentum(kept, self.model.named_parameters(), self.config.smart.momentum)
        return StepReport(losses, sum(terms) / len(terms) if terms else None, norm)

    def step_on(self, number: int, objective: Callable[[], Tensor], rate: float) -> float:
        """One optimiser step on a single objective; its value."""
        self.optimizer.zero_grad(set_to_none=True)
        with self._precision():
            loss = objective()
        loss.backward()
        if not math.isfinite(value := float(loss.detach())):
            raise TrainingDiverged(f"step {number}: the loss is {value}")
        self._gradients(number)
        set_rates(self.optimizer, rate)
        self.optimizer.step()
        return value

    def _accumulate(
        self,
        task: str,
        batch: Batch,
        key: tuple[int, int],
        smart_now: bool,
        terms: list[float],
    ) -> float:
        """Add the gradient of one task's batch, part by part; its plain loss."""
        total_loss = total_term = 0.0
        use_smart = smart_now and self.config.smart.weight > 0 and task in self.smart_tasks
        for number, part in enumerate(split_batch(batch, self.config.batch.accumulate)):
            share = len(part.labels) / len(batch.labels)
            seed = draw_seed(self.config.seed, *key, number)
            seed_draws(seed, part.labels.device)
            with self._precision():
                outputs = self.model(task, part)
                loss = self.losses[task](outputs, part.labels)
                objective = loss
                if use_smart:
                    term = self._smart(task, part, outputs, seed)
                    # Scaled by k, every k-th step has the same expectation as every step.
                    weight = self.config.smart.weight * self.config.smart.every
                    objective = objective + weight * term
                    total_term += share * float(term.detach())
                if self.copy is not None and task in self.smart_tasks:
                    objective = objective + self.bregman * self._bregman(task, part, outputs)
            (objective * (share * self.weights[task])).backward()
            value = float(loss.detach())
            if not math.isfinite(float(objective.detach())):
                raise TrainingDiverged(
                    f"step {key[0]}: the loss of '{task}' is {float(objective.detach())} "
                    f"(plain loss {value}); try a smaller optim.learning_rate"
                )
            total_loss += share * value
        if use_smart:
            terms.append(total_term)
        return total_loss

    def _smart(self, task: str, batch: Batch, outputs: Tensor, seed: int) -> Tensor:
        smart = self.config.smart
        published = smart.variant == "published"

        def perturbed(embeds: Tensor) -> Tensor:
            if smart.shared_masks:
                seed_draws(seed, batch.labels.device)  # the dropout masks of the clean pass again
            result: Tensor = self.model(task, batch, embeds)
            return result

        def seeking(embeds: Tensor) -> Tensor:
            with weights_held():
                return perturbed(embeds)

        return smart_term(
            perturbed,
            self.model.embed(batch),
            outputs,
            kind=self.model.tasks[task].kind,
            seek=seeking,
            variant=smart.variant,
            radius=smart.radius,
            epsilon=smart.epsilon,
            noise=smart.noise if published else smart.start,
            step_size=smart.step_size if published else smart.stride,
            steps=smart.steps,
            norm=smart.norm,
            generator=torch.Generator(outputs.device).manual_seed(draw_seed(seed, 1)),
        )

    def _bregman(self, task: str, batch: Batch, outputs: Tensor) -> Tensor:
        assert self.copy is not None
        with torch.no_grad():
            before = self.copy(task, batch)
        return bregman_term(self.model.tasks[task].kind, outputs, before)

    def _layer_scales(self, tasks: Sequence[str]) -> list[float] | None:
        scale = self.config.optim.layer_scale
        if not scale.layers:
            return None
        layers = len(layers_of(self.model.encoder))
        return layer_scales(tasks, scale.layers, layers=layers, alpha=scale.alpha, beta=scale.beta)

    def _gradients(self, number: int) -> float:
        """Clip what has been accumulated and get it ready for the optimiser; its norm."""
        parameters = (p for group in self.optimizer.param_groups for p in group["params"])
        found = {p: p.grad for p in parameters if p.grad is not None}
        if self.table is not None and self.table.weight in found:
            found[self.table.weight] = self.table.gather()
        gradients = list(found.values())
        norm = float(nn.utils.get_total_norm(gradients))
        if not math.isfinite(norm):
            raise TrainingDiverged(
                f"step {number}: the gradient's norm is {norm}; try a smaller optim.learning_rate"
            )
        scale = self.config.optim.clip / (norm + 1e-6)
        if 0 < scale < 1:
            torch._foreach_mul_(gradients, scale)
        if self.table is not None:
            self.table.spread()
        return norm

    def _precision(self) -> AbstractContextManager[object]:
        if not self.bfloat16:
            return nullcontext()
        device = next(self.model.parameters()).device
        return torch.autocast(device.type, dtype=torch.bfloat16)
