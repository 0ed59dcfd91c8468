"""What a run saves, taken at one moment and written while it may train on.

A checkpoint of a large encoder takes seconds to write, check and flush, and a GPU would have
nothing to do meanwhile. So it is copied to the host and written by a thread. The evaluation's
record is told only when the checkpoint is safe, at the end of whichever step that comes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.common.files import check_room
from model.training.checkpoint import prune, save_checkpoint

OTHER_FILES = 1 << 20  # bytes of a checkpoint besides its tensors, at least


def saves_in_background(device: torch.device) -> bool:
    """On a CPU a thread would take the time from the training that it spares."""
    return device.type == "cuda"


def on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


@dataclass(frozen=True)
class SavePoint:
    """All of a checkpoint, as it was at one step."""

    folder: Path
    model_size: int  # in bytes
    write_model: Callable[[Path], None]
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    kept: frozenset[str]  # checkpoints whose models stay: the best, and the last

    def write(self) -> None:
        place = self.folder.parent
        place.mkdir(exist_ok=True)  # fails if the run's folder went away
        sizes = [t.numel() * t.element_size() for t in self.tensors.values()]
        check_room(place, self.model_size + sum(sizes) + OTHER_FILES)
        save_checkpoint(
            self.folder, write_model=self.write_model, tensors=self.tensors, state=self.state
        )
        prune(place, self.kept)


class Writer:
    """Writes one save point after the other: at once, or in a thread of its own.

    `written` is called there after each: who has to bring it elsewhere holds up nobody.
    """

    def __init__(self, background: bool, written: Callable[[], None] = lambda: None) -> None:
        self.background, self.written = background, written
        self._pool = ThreadPoolExecutor(1, "checkpoint") if background else None
        self._last: Future[None] | None = None

    def write(self, point: SavePoint) -> None:
        """Returns at once, if in the background; what goes wrong there is raised by `wait`."""
        self.wait()
        if self._pool is None:
            point.write()
        else:
            self._last = self._pool.submit(self._write, point)

    def _write(self, point: SavePoint) -> None:
        point.write()
        self.written()

    @property
    def done(self) -> bool:
        return self._last is None or self._last.done()

    def wait(self) -> None:
        """Until what was given is safe."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """However the run ends: its folder is not let go of while something is written there."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
