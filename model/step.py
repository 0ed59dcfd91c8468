"""One optimiser step over a round of tasks: losses, SMART, Bregman, surgery, clipping.

Every step draws its random numbers from a seed of its own, (run's seed, step), so a resumed
run repeats an uninterrupted one without any generator state having been saved.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.data.batches import Batch
from model.draws import draw_seed, of_rows, seed_draws
from model.encoder import layers_of
from model.lanes import LANES, Lanes, Side, suits_lanes, worth_lanes
from model.linear import weights_held
from model.losses import make_loss
from model.multitask import MultitaskModel
from model.optim import layer_scales, set_rates
from model.parts import Part, split_batch
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


class _Outcome(NamedTuple):
    """Of one part, both weighted by its share."""

    task: str
    loss: float
    smart: float | None


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
        self._lanes: Lanes | None = None
        self._lanes_suit: bool | None = None  # not known yet

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
        parts = [
            self._parts(task, batch, (number, position), turns[task])
            for position, (task, batch) in enumerate(batches)
        ]
        outcomes: list[_Outcome] = []
        separate: list[list[Tensor | None]] = []
        shared = self.model.shared_parameters()
        operate = self.config.surgery == "pcgrad" and len(batches) > 1
        for together in parts if operate else [sum(parts, [])]:
            outcomes += self._descend(number, together)
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
        return StepReport(
            {task: sum(o.loss for o in outcomes if o.task == task) for task, _ in batches},
            _smart_mean(outcomes),
            norm,
        )

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

    def _parts(self, task: str, batch: Batch, key: tuple[int, int], turn: int) -> list[Part]:
        smart = self.config.smart
        return [
            Part(
                task,
                rows,
                share=len(rows.labels) / len(batch.labels),
                seed=draw_seed(self.config.seed, *key, number),
                of=len(rows.labels),
                smart=smart.weight > 0 and turn % smart.every == 0 and task in self.smart_tasks,
            )
            for number, rows in enumerate(split_batch(batch, self.config.batch.accumulate))
        ]

    def _descend(self, number: int, parts: list[Part]) -> list[_Outcome]:
        """Add the gradients of these parts, side by side where that can be."""

        def work(side: Side, part: Part) -> _Outcome:
            return self._accumulate(number, side, part)

        if lanes := self._lanes_for(parts):
            return lanes.run(parts, work)
        return [work(Side(self.model, self.copy), part) for part in parts]

    def _lanes_for(self, parts: list[Part]) -> Lanes | None:
        """None where they would not be faster, or not the same to the digit."""
        threads = torch.get_num_threads()
        if threads < LANES or parts[0].batch.labels.device.type != "cpu" or self.bfloat16:
            return None  # autocast keeps what it has cast for all threads together
        if not worth_lanes(self.model, parts):
            return None
        if self._lanes_suit is None:
            self._lanes_suit = suits_lanes(self.model, parts[0])
        if self._lanes_suit and (self._lanes is None or self._lanes.threads != threads):
            self._lanes = Lanes(Side(self.model, self.copy), threads)
        return self._lanes

    def _accumulate(self, number: int, side: Side, part: Part) -> _Outcome:
        """Add the gradient of one part to those of its side."""
        task, batch, term = part.task, part.batch, None
        seed_draws(part.seed, batch.labels.device)
        with self._precision():
            outputs = side.model(task, batch)
            loss = self.losses[task](outputs, batch.labels)
            objective = loss
            if part.smart:
                term = self._smart(side.model, part, outputs)
                # Scaled by k, every k-th step has the same expectation as every step.
                weight = self.config.smart.weight * self.config.smart.every
                objective = objective + weight * term
            if side.copy is not None and task in self.smart_tasks:
                with torch.no_grad():
                    before = side.copy(task, batch)
                apart = bregman_term(self.model.tasks[task].kind, outputs, before)
                objective = objective + self.bregman * apart
        (objective * (part.share * self.weights[task])).backward()
        value = float(loss.detach())
        if not math.isfinite(float(objective.detach())):
            raise TrainingDiverged(
                f"step {number}: the loss of '{task}' is {float(objective.detach())} "
                f"(plain loss {value}); try a smaller optim.learning_rate"
            )
        return _Outcome(
            task,
            part.share * value,
            None if term is None else part.share * float(term.detach()),
        )

    def _smart(self, model: MultitaskModel, part: Part, outputs: Tensor) -> Tensor:
        smart, task, batch, seed = self.config.smart, part.task, part.batch, part.seed
        published = smart.variant == "published"

        def perturbed(embeds: Tensor) -> Tensor:
            if smart.shared_masks:
                seed_draws(seed, batch.labels.device)  # the dropout masks of the clean pass again
            result: Tensor = model(task, batch, embeds)
            return result

        def seeking(embeds: Tensor) -> Tensor:
            with weights_held():
                return perturbed(embeds)

        return smart_term(
            perturbed,
            model.embed(batch),
            outputs,
            kind=model.tasks[task].kind,
            seek=seeking,
            share=part.share,
            variant=smart.variant,
            radius=smart.radius,
            epsilon=smart.epsilon,
            noise=smart.noise if published else smart.start,
            step_size=smart.step_size if published else smart.stride,
            steps=smart.steps,
            norm=smart.norm,
            generator=torch.Generator(outputs.device).manual_seed(draw_seed(seed, 1)),
            rows=of_rows,
        )

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


def _smart_mean(outcomes: Sequence[_Outcome]) -> float | None:
    """SMART's term, the mean over its tasks."""
    terms = {outcome.task: 0.0 for outcome in outcomes if outcome.smart is not None}
    for outcome in outcomes:
        if outcome.smart is not None:
            terms[outcome.task] += outcome.smart
    return sum(terms.values()) / len(terms) if terms else None
