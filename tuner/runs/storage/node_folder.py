"""A trial at work in a folder of its node, with storage following it.

Everything is in storage before it is told, so a node that is lost takes nothing with it. A trial
always starts from what storage has, never from what an earlier attempt left on the node.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from model.common.run_files import CONFIG, METRICS, SUMMARY
from model.common.untrusted import inside
from model.training.checkpoint import MANIFEST, checkpoints_in
from tuner.runs.folder import CHECKPOINTS, TRIALS
from tuner.runs.scratch import scratch_folder
from tuner.runs.storage.mirror import check_driver
from tuner.runs.storage.storage import Storage

FIRST, LAST = CONFIG, METRICS
Print = tuple[int, int]  # size and time of a file, by which a change is seen


class NodeFolder:
    """One per actor: its trials come one after the other, each in a fresh folder."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._stack = ExitStack()
        self._scratch: Path | None = None
        self._sent: dict[str, Print] = {}

    def close(self) -> None:
        self._stack.close()
        self._scratch = None

    def fetch(self, trial: str) -> Path:
        """The trial's folder on this node, with what is needed to go on."""
        if self._scratch is None:
            self._scratch = self._stack.enter_context(scratch_folder())
        for before in self._scratch.glob("t*"):
            shutil.rmtree(before, ignore_errors=True)
        out = self._scratch / trial
        self.prefix = f"{TRIALS}/{trial}"
        self.out = out
        self._sent = {}
        for path in wanted_to_go_on(self.storage.files(self.prefix), self.prefix):
            name = path[len(self.prefix) + 1 :]
            self.storage.get(path, inside(out, name))
            self._sent[name] = print_of(out / name)
        return out

    def follow(self, records: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The run's records, each handed on when storage has what it speaks of."""
        for record in records:
            self.send()
            yield record
        self.send()

    def send(self) -> None:
        """Bring storage up to the folder: new files, a checkpoint's manifest after the rest of it,
        the list of evaluations last. Only then goes what the run has deleted.

        The run may become another driver's at any moment of it, so that is asked before each file:
        at most the one that is under way comes too late."""
        check_driver(self.storage)
        there = {name: print_of(self.out / name) for name in own_files(self.out)}
        new = [name for name in there if self._sent.get(name) != there[name]]
        for name in sorted(new, key=order):
            check_driver(self.storage)
            self.storage.put(self.out / name, f"{self.prefix}/{name}")
            self._sent[name] = there[name]
        gone = [name for name in self._sent if name not in there]
        for name in sorted(gone, key=order, reverse=True):  # a manifest before what it signs
            check_driver(self.storage)
            self.storage.remove([f"{self.prefix}/{name}"])
            del self._sent[name]


def own_files(out: Path) -> list[str]:
    """What storage keeps of a trial: all but its lock, and the model that is linked to the best
    checkpoint's."""
    found = [out / name for name in (FIRST, LAST, SUMMARY)]
    found += (out / "predictions").glob("[!.]*")
    for place in checkpoints_in(out / CHECKPOINTS):
        found += place.rglob("*")
    return [file.relative_to(out).as_posix() for file in found if file.is_file()]


def order(name: str) -> tuple[int, str]:
    stages = {FIRST: 0, LAST: 3}
    return stages.get(name, 2 if name.endswith(MANIFEST) else 1), name


def print_of(file: Path) -> Print:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def wanted_to_go_on(there: dict[str, int], prefix: str) -> list[str]:
    """Of a trial's files in storage: its settings and its checkpoints that are signed."""
    checkpoints = f"{prefix}/checkpoints/"
    signed = {path.removesuffix(MANIFEST) for path in there if path.endswith(f"/{MANIFEST}")}
    return [
        path
        for path in there
        if path in (f"{prefix}/{FIRST}", f"{prefix}/{LAST}")
        or (path.startswith(checkpoints) and folder_of(path, checkpoints) in signed)
    ]


def folder_of(path: str, checkpoints: str) -> str:
    return checkpoints + path[len(checkpoints) :].split("/", 1)[0] + "/"
