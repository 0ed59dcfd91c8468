"""How much disk a search needs at its peak, said and checked before it starts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from model.checkpoint import KEPT_STATES
from model.encoder import load_encoder
from model.errors import InputError
from model.prepare import build_model, fill_in
from tuner.space import Space

OTHER_FILES = 2 << 20  # bytes of a tokenizer and the rest beside the weights of each model


@dataclass(frozen=True)
class Weight:
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


def weigh(space: Space) -> Weight:
    config = fill_in(space.config(space.most_expensive()))
    parts = build_model(config, space.task_set, load_encoder(config.encoder.name))
    weights = sum(tensor.numel() * tensor.element_size() for tensor in parts.state_dict().values())
    # Two moments of the optimiser, and the slow copy of the weights where there is one.
    return Weight(weights + OTHER_FILES, weights * (3 if config.smart.bregman else 2))


def disk_need(weight: Weight, *, tasks: int, slots: int, keep: int, soup: bool = False) -> Need:
    model, state = weight.model, weight.state
    best = tasks + 1  # the best overall and of each task
    # The states that are kept and, for a moment, the one that is being written.
    running = slots * ((KEPT_STATES + 1) * (model + state) + best * model)
    cooked = 2 if soup else 0  # soup/ and the one of soups/ that holds weights of its own
    return Need(model, running, (keep + best + cooked) * model)


def check_disk(need: Need, folder: Path) -> None:
    """Raise InputError when it cannot fit. What the run has there already counts as free."""
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(place).free + size_of(folder / "trials")
    if need.peak > free:
        fault = f"the search needs about {human(need.peak)}, and {human(free)} are free here"
        remedy = "make room, choose another --storage-path, or lower --max-concurrent-trials"
        raise InputError(str(folder), [f"{fault}; {remedy} or --keep"])


def size_of(folder: Path) -> int:
    """Bytes of the files in it, those with several names once."""
    found = {}
    for file in folder.rglob("*"):
        try:
            if file.is_file():
                status = file.stat()
                found[status.st_dev, status.st_ino] = status.st_size
        except OSError:
            continue  # gone meanwhile
    return sum(found.values())


def human(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
