"""How much disk a search needs at its peak, said and checked before it starts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from model.common.errors import InputError
from model.common.files import size_of
from model.modules.encoder import load_encoder
from model.training.checkpoint import KEPT_MODELS, KEPT_STATES
from model.training.prepare import build_model, fill_in
from tuner.runs.folder import TRIALS
from tuner.space.space import Space

OTHER_FILES = 2 << 20  # bytes of a tokenizer and the rest beside the weights of each model


@dataclass(frozen=True)
class ModelSize:
    """Of the largest model that a space can make."""

    model: int  # bytes, saved
    state: int  # bytes of what resuming takes besides


@dataclass(frozen=True)
class Need:
    model: int  # bytes of one saved model
    running: int  # of all trials that run at once, at their fullest
    kept: int  # of what stays when the search is over

    @property
    def peak(self) -> int:
        return self.running + self.kept


def estimate_size(space: Space) -> ModelSize:
    config = fill_in(space.config(space.most_expensive()))
    weights = 0
    for name in space.encoders:
        parts = build_model(config, space.task_set, load_encoder(name)).state_dict().values()
        weights = max(weights, sum(tensor.numel() * tensor.element_size() for tensor in parts))
    # Two moments of the optimiser, and the copies of the weights that a run may keep.
    copies = 2 + bool(config.smart.bregman) + bool(config.average.share)
    return ModelSize(weights + OTHER_FILES, weights * copies)


def disk_need(
    weight: ModelSize,
    *,
    tasks: int,
    slots: int,
    keep: int,
    soup: bool = False,
    frozen: int = 0,
    finals: int = 0,
    distill: bool = False,
) -> Need:
    """`frozen` trials wait with their states, to be gone on with; `finals` keep a few models."""
    model, state = weight.model, weight.state
    best = tasks + 1  # the best overall and of each task
    models = best + KEPT_MODELS - 1  # of a trial, without a state
    # The states that are kept and, for a moment, the one that is being written.
    running = slots * ((KEPT_STATES + 1) * (model + state) + models * model)
    running += frozen * (KEPT_STATES * (model + state) + models * model)
    soups = 2 if soup else 0  # soup/ and the one of soups/ that holds weights of its own
    last = KEPT_MODELS * min(finals, keep)
    return Need(model, running, (keep + best + soups + last + distill) * model)


def check_disk(need: Need, folder: Path) -> None:
    """Raise InputError when it cannot fit. What the run has there already counts as free."""
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(place).free + size_of(folder / TRIALS)
    if need.peak > free:
        fault = f"the search needs about {human(need.peak)}, and {human(free)} are free here"
        remedy = "make room, choose another --storage-path, or lower --max-concurrent-trials"
        raise InputError(str(folder), [f"{fault}; {remedy} or --keep"])


def human(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
