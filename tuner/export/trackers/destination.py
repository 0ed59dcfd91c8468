"""What every tool that takes a run has in common."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from model.common.errors import InputError, install
from tuner.export.trackers.records import Record, Snapshot

Files: TypeAlias = "dict[str, bytes | Path]"  # by their paths in the run's folder


class Destination(ABC):
    """Where a run goes. `write` may be called again and again with later snapshots of one run, in
    this process or another, and what is there in the end is the last one: nothing twice."""

    takes_files = False  # the report and the like, beside the trials

    @abstractmethod
    def write(self, now: Snapshot, changed: Iterable[Record]) -> None:
        """`changed`: the trials that differ from the last call's; the first time, all."""

    @abstractmethod
    def place(self) -> str:
        """Where to look, for a person."""


def needed(module: str, extra: str) -> Any:
    """A package that a plain installation lacks."""
    try:
        return import_module(module)
    except ImportError as error:
        if error.name and error.name.split(".")[0] != module.split(".")[0]:
            fault = f"the package {module} lacks {error.name}"
        else:
            fault = f"the package {module} is not installed"
        raise InputError(f"--to {extra}", [f"{fault}; {install(extra)}"]) from None


def digest_of(value: Any) -> str:
    """By which a tool's copy is known to be complete."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
