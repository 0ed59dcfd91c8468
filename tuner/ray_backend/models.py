"""Models on a worker's machine: seen there, sent by the driver, or fetched from storage.

Each comes when it is first read. A worker holds what it has fetched in a folder of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.ray_backend.staging import StagedInput, unpack
from tuner.runs.storage.remote import fetch_model
from tuner.runs.storage.storage import Storage

Bring = Callable[[Path], Path]  # a model into a folder; where it then is


@dataclass(frozen=True)
class Sent:
    content: Callable[[], StagedInput]

    def __call__(self, store: Path) -> Path:
        return unpack(self.content(), store)


@dataclass(frozen=True)
class InStorage:
    storage: Callable[[], Storage]  # by Ray's object store, as its URL may hold a secret
    checkpoint: str  # from the run's folder

    def __call__(self, store: Path) -> Path:
        return fetch_model(self.storage(), self.checkpoint, store)


class FetchedModels(Sequence[Path]):
    """Folders of models by number."""

    def __init__(self, models: Sequence[Bring], store: Path) -> None:
        self.models, self.store = models, store
        self.here: dict[int, Path] = {}

    def __len__(self) -> int:
        return len(self.models)

    def __getitem__(self, number: Any) -> Any:
        if number not in self.here:
            self.here[number] = self.models[number](self.store)
        return self.here[number]
