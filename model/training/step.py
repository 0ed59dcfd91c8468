"""One optimiser step over a round of tasks: losses, regularisers, surgery, clipping.

Every step draws its random numbers from a seed of its own, (run's seed, step), so a resumed
run repeats an uninterrupted one without any generator state having been saved.

Nothing is read back from the device in here: `model.training.readings`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from model.common.rng import of_rows, rng_seed, seed_rng
from model.config.settings import RunConfig
from model.data.batches import Batch
from model.modules.device import autocast
from model.modules.embeddings import embedding_module, kept, replaced
from model.modules.encoder import layers_of
from model.modules.multitask import MultitaskModel
from model.objectives.aggregators import WEIGHTINGS
from model.objectives.distill import distilled
from model.objectives.losses import IN_BATCH, make_loss
from model.objectives.rdrop import rdrop_term
from model.objectives.smart import bregman_term, smart_terms, update_momentum
from model.objectives.surgery import surgery
from model.objectives.uncertainty import Uncertainty
from model.training.microbatches import MicroBatch, split_batch
from model.training.optim import layer_scales, scale_gradients, set_rates
from model.training.readings import TrainingDiverged as TrainingDiverged
from model.training.readings import UnreadStep
from model.training.replicas import Replicas

MOST_PADDING = 2.0  # of one pass for all tasks, against passes of their own; a judgement


class _Outcome(NamedTuple):
    """Of one microbatch, all weighted by its share."""

    task: str
    loss: Tensor
    objective: Tensor
    smart: Tensor | None


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
        uncertainty: Uncertainty | None = None,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.config = config
        self.weights = weights
        self.precision = precision
        self.device = next(model.parameters()).device
        # float16 has no room for small gradients: they are computed large, and made small again.
        self.scaler = GradScaler(self.device.type, enabled=precision == torch.float16)
        self.losses = {
            name: make_loss(
                task.loss,
                width=task.high - task.low,
                smoothing=config.loss.smoothing,
                **config.loss.options,
            )
            for name, task in model.tasks.items()
        }
        self.uncertainty = uncertainty
        self.bregman = bregman
        self.smart_tasks = set(model.tasks if config.smart.tasks is None else config.smart.tasks)
        twice = model.tasks if config.rdrop.tasks is None else config.rdrop.tasks
        self.rdrop_tasks = set(twice if config.rdrop.weight > 0 else ())
        self.copy: MultitaskModel | None = None
        if bregman > 0:
            self.copy = copy.deepcopy(model).eval().requires_grad_(False)
        self.replicas = Replicas(model)

    def step(
        self,
        number: int,
        batches: Sequence[tuple[str, Batch]],
        rate: float,
        turns: Mapping[str, int],
    ) -> UnreadStep:
        """One optimiser step; `rate` scales every learning rate (warm-up and decay).

        `turns` says how many batches each task has had before: `smart.every` counts these, as a
        schedule that goes round the tasks would let a count of steps always meet the same one.
        """
        self.optimizer.zero_grad(set_to_none=True)
        by_task = [
            self._microbatches(task, batch, (number, position), turns[task])
            for position, (task, batch) in enumerate(batches)
        ]
        outcomes: list[_Outcome] = []
        separate: list[list[Tensor | None]] = []
        shared = self.model.shared_parameters()
        method = self.config.surgery
        operate = method != "none" and len(batches) > 1
        scaled = self._scales_gradients(len(batches))
        apart = operate or scaled
        for together in by_task if apart else [sum(by_task, [])]:
            for group in self._groups(together):
                if self._fit_together(group):
                    outcomes += self._accumulate(self.model, group)
                else:
                    outcomes += self.replicas.run(group, self._accumulate_one)
            if apart:
                own = [parameter.grad for parameter in shared]
                separate.append(self._scaled(together[0].task, own) if scaled else own)
                for parameter in shared:
                    parameter.grad = None
        if scaled and not operate:
            for parameter, each in zip(shared, zip(*separate, strict=True), strict=True):
                parameter.grad = _sum_of_some(each)
        if operate:
            seed = rng_seed(self.config.seed, number, len(batches))
            merged = surgery(separate, WEIGHTINGS[method], seed=seed)
            for parameter, gradient in zip(shared, merged, strict=True):
                parameter.grad = gradient
        names = [task for task, _ in batches]
        losses = {task: _sum(o.loss for o in outcomes if o.task == task) for task in names}
        if self.uncertainty is not None:
            for task, loss in losses.items():
                gradient = self.uncertainty.gradient(task, loss) * self.weights[task]
                self.uncertainty.log_variances[task].grad = self.scaler.scale(gradient)
        norm = self._clip()
        set_rates(self.optimizer, rate, None if scaled else self._layer_scales(names))
        self._update()
        if self.copy is not None:
            behind = dict(self.copy.named_parameters())
            update_momentum(behind, self.model.named_parameters(), self.config.smart.momentum)
        return UnreadStep.of(
            number,
            losses,
            [_sum(o.objective for o in outcomes if o.task == task) for task in names],
            _smart_mean(outcomes),
            norm,
        )

    def step_on(
        self, number: int, name: str, objective: Callable[[], Tensor], rate: float
    ) -> UnreadStep:
        """One optimiser step on a single objective."""
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.device, self.precision):
            loss = objective()
        self.scaler.scale(loss).backward()
        norm = self._clip()
        set_rates(self.optimizer, rate)
        self._update()
        return UnreadStep.of(number, {name: loss}, [loss], None, norm)

    def _microbatches(
        self, task: str, batch: Batch, key: tuple[int, int], turn: int
    ) -> list[MicroBatch]:
        smart = self.config.smart
        whole = self.model.tasks[task].loss in IN_BATCH
        return [
            MicroBatch(
                task,
                rows,
                share=len(rows.labels) / len(batch.labels),
                seed=rng_seed(self.config.seed, *key, number),
                of=len(rows.labels),
                smart=smart.weight > 0 and turn % smart.every == 0 and task in self.smart_tasks,
                rdrop=task in self.rdrop_tasks,
                whole=whole,
            )
            for number, rows in enumerate(
                split_batch(batch, 1 if whole else self.config.batch.accumulate)
            )
        ]

    def _accumulate_one(self, model: MultitaskModel, microbatch: MicroBatch) -> _Outcome:
        return self._accumulate(model, [microbatch])[0]

    def _accumulate(self, model: MultitaskModel, parts: Sequence[MicroBatch]) -> list[_Outcome]:
        """Add the gradients of what shares a pass to those of the model, or of a replica of it.

        Several are whole batches, whose shares are 1, and alike in the passes they need. Dropout
        draws other masks for them than in passes of their own.
        """
        first = parts[0]
        seed_rng(first.seed, first.batch.labels.device)
        point = embedding_module(model.encoder, self.config.smart.where) if first.smart else None
        again = terms = before = None
        with autocast(self.device, self.precision):
            with kept(point) as embeds:
                answers = _answers(model, parts)
            if first.rdrop:  # with the masks that come next
                again = _answers(model, parts)
            if point is not None:
                terms = self._smart(model, parts, point, embeds[0], answers)
            if self._has_bregman(first):
                assert self.copy is not None
                with torch.no_grad():
                    before = _answers(self.copy, parts)
            outcomes, total = [], None
            for place, (part, outputs) in enumerate(zip(parts, answers, strict=True)):
                task, kind = part.task, model.tasks[part.task].kind
                loss = self._loss(model, task, outputs, part.batch)
                if again is not None:
                    loss = (loss + self._loss(model, task, again[place], part.batch)) / 2
                objective = loss
                if self.uncertainty is not None:
                    objective = self.uncertainty.factor(task) * loss
                if again is not None:
                    apart = rdrop_term(kind, outputs, again[place])
                    objective = objective + self.config.rdrop.weight * apart
                if terms is not None:
                    # Scaled by k, every k-th step has the same expectation as every step.
                    weight = self.config.smart.weight * self.config.smart.every
                    objective = objective + weight * terms[place]
                if before is not None:
                    behind = bregman_term(kind, outputs, before[place])
                    objective = objective + self.bregman * behind
                weighted = objective * (part.share * self.weights[task])
                total = weighted if total is None else total + weighted
                smart = None if terms is None else terms[place].detach() * part.share
                shown = (loss.detach() * part.share, objective.detach() * part.share)
                outcomes.append(_Outcome(task, *shown, smart))
        assert total is not None
        self.scaler.scale(total).backward()
        return outcomes

    def _loss(self, model: MultitaskModel, task: str, outputs: Tensor, batch: Batch) -> Tensor:
        """By the labels, and by a teacher's answers where there are any."""
        loss = self.losses[task](outputs, batch.labels)
        if batch.answers is None:
            return loss
        name, distill = model.tasks[task].loss, self.config.distill
        return distilled(loss, name, outputs, batch.answers, distill.weight, distill.temperature)

    def _has_bregman(self, part: MicroBatch) -> bool:
        return self.copy is not None and part.task in self.smart_tasks

    @property
    def _joins(self) -> bool:
        """Whether tasks share their passes. PALs are of one task; parts of a batch save memory."""
        together = self.config.batch.together
        wanted = self.device.type != "cpu" if together == "auto" else together
        return wanted and self.model.pals is None and self.config.batch.accumulate == 1

    def _groups(self, microbatches: list[MicroBatch]) -> list[list[MicroBatch]]:
        """By the passes that they need, where they are to share them."""
        if not self._joins:
            return [microbatches]
        groups: dict[tuple[bool, ...], list[MicroBatch]] = {}
        for part in microbatches:
            needs = (part.smart, part.rdrop, self._has_bregman(part))
            groups.setdefault(needs, []).append(part)
        return list(groups.values())

    def _fit_together(self, group: Sequence[MicroBatch]) -> bool:
        """Whether one pass for all of them is wanted, and not mostly padding."""
        if not self._joins or len(group) < 2:
            return False
        shapes = [part.batch.input_ids.shape for part in group]
        joined = sum(rows for rows, _ in shapes) * max(length for _, length in shapes)
        return joined <= MOST_PADDING * sum(rows * length for rows, length in shapes)

    def _smart(
        self,
        model: MultitaskModel,
        parts: Sequence[MicroBatch],
        point: nn.Module,
        embeds: Tensor,
        outputs: Sequence[Tensor],
    ) -> list[Tensor]:
        smart = self.config.smart
        published = smart.variant == "published"

        def perturbed(embeds: Tensor) -> list[Tensor]:
            if smart.shared_masks:
                seed_rng(parts[0].seed, self.device)  # the dropout masks of the clean pass again
            with replaced(point, embeds):
                return _answers(model, parts)

        return smart_terms(
            perturbed,
            embeds,
            outputs,
            _normal(parts, embeds),
            kinds=[model.tasks[part.task].kind for part in parts],
            share=parts[0].share,
            variant=smart.variant,
            radius=smart.radius,
            epsilon=smart.epsilon,
            noise=smart.noise if published else smart.start,
            step_size=smart.step_size if published else smart.stride,
            steps=smart.steps,
            norm=smart.norm,
            scale=self._loss_scale(),
        )

    def _loss_scale(self) -> Tensor | None:
        if not self.scaler.is_enabled():
            return None
        return self.scaler.scale(torch.ones((), device=self.device))

    def _scales_gradients(self, tasks: int) -> bool:
        """Whether each task's gradient is scaled by itself; AdamW would not notice it alone."""
        scale = self.config.optim.layer_scale
        return scale.joint == "gradients" and bool(scale.layers) and tasks > 1

    def _scaled(self, task: str, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        names = [name for name, p in self.model.encoder.named_parameters() if p.requires_grad]
        scales = self._layer_scales([task])
        assert scales is not None  # there are layers
        return scale_gradients(list(zip(names, gradients, strict=True)), scales)

    def _layer_scales(self, tasks: Sequence[str]) -> list[float] | None:
        scale = self.config.optim.layer_scale
        if not scale.layers:
            return None
        layers = len(layers_of(self.model.encoder))
        return layer_scales(tasks, scale.layers, layers=layers, alpha=scale.alpha, beta=scale.beta)

    def _clip(self) -> Tensor:
        """Clip what has been accumulated; its norm before that."""
        self.scaler.unscale_(self.optimizer)
        parameters = (p for group in self.optimizer.param_groups for p in group["params"])
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if self.config.optim.clip > 0:
            scale = (self.config.optim.clip / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_mul_(gradients, scale)
        return norm

    def _update(self) -> None:
        """The optimiser's part; left out, on the device, where float16 has overflowed."""
        self.scaler.step(self.optimizer)
        self.scaler.update()


def _answers(model: MultitaskModel, parts: Sequence[MicroBatch]) -> list[Tensor]:
    if len(parts) == 1:
        return [model(parts[0].task, parts[0].batch)]
    return model.answer_all([(part.task, part.batch) for part in parts])


def _normal(parts: Sequence[MicroBatch], embeds: Tensor) -> Tensor:
    """Normal numbers for all embeddings, each microbatch's from its own seed: the same alone."""
    length, width = embeds.shape[1:]
    drawn = []
    for part in parts:
        generator = torch.Generator(embeds.device).manual_seed(rng_seed(part.seed, 1))
        rows, own = part.batch.input_ids.shape
        found = of_rows(
            (rows, own, width),
            lambda shape, of=generator: torch.randn(  # type: ignore[misc]
                tuple(shape), generator=of, device=embeds.device, dtype=embeds.dtype
            ),
        )
        drawn.append(F.pad(found, (0, 0, 0, length - own)) if own < length else found)
    return drawn[0] if len(drawn) == 1 else torch.cat(drawn)


def _sum(values: Iterable[Tensor]) -> Tensor:
    first, *others = values
    return sum(others, first)


def _sum_of_some(gradients: Iterable[Tensor | None]) -> Tensor | None:
    """Of one parameter, over the tasks; not every task reaches every parameter."""
    there = [gradient for gradient in gradients if gradient is not None]
    return _sum(there) if there else None


def _smart_mean(outcomes: Sequence[_Outcome]) -> Tensor | None:
    """SMART's term, the mean over its tasks."""
    terms = [outcome.smart for outcome in outcomes if outcome.smart is not None]
    tasks = {outcome.task for outcome in outcomes if outcome.smart is not None}
    return _sum(terms) / len(tasks) if terms else None
