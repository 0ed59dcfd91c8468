"""Steps on small models, and what they left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from model.config.settings import BatchSettings, LayerScaleSettings, OptimSettings, RunConfig
from model.data.batches import Batch
from model.modules.multitask import MultitaskModel
from model.training.optim import make_optimizer
from model.training.readings import Reader, StepReport
from model.training.step import Stepper

RATE = 1e-3
Round = Sequence[tuple[str, Batch]]


def stepper(
    model: MultitaskModel,
    *,
    weights: dict[str, float] | None = None,
    clip: float = 0.0,
    layer_scale: LayerScaleSettings | None = None,
    accumulate: int = 1,
    batch: BatchSettings | None = None,
    precision: torch.dtype = torch.float32,
    **settings: Any,
) -> ReadAtOnce:
    config = RunConfig(
        optim=OptimSettings(clip=clip, layer_scale=layer_scale or LayerScaleSettings()),
        batch=batch or BatchSettings(accumulate=accumulate),
        **settings,
    )
    optimizer = make_optimizer(model.named_parameters(), layers=2, learning_rate=RATE)
    ones = dict.fromkeys(model.tasks, 1.0)
    return ReadAtOnce(
        model,
        optimizer,
        config,
        weights={**ones, **(weights or {})},
        bregman=config.smart.bregman,
        precision=precision,
    )


class ReadAtOnce(Stepper):
    """A step and what it told.

    Every task has had a batch in every step before, unless told otherwise.
    """

    def take(self, number: int, batches: Round, rate: float, turns: Any = None) -> StepReport:
        turns = turns or dict.fromkeys(self.model.tasks, number)
        (report,) = Reader().read([self.step(number, batches, rate, turns)])
        return report


def gradients(model: MultitaskModel) -> dict[str, Tensor]:
    """What the last step left; nothing for what it did not touch."""
    return {
        name: weights.grad.clone()
        for name, weights in model.named_parameters()
        if weights.grad is not None
    }


def close(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float = 1e-6) -> bool:
    return a.keys() == b.keys() and all(
        torch.allclose(a[n], b[n], rtol=1e-4, atol=tolerance) for n in a
    )
