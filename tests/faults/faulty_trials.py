"""Trials of a search in which real things go wrong: files damaged, workers killed, disks filled."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model.training.checkpoint import TENSORS, checkpoints_in
from tuner.ray_backend.trainable import SearchTrial

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYzEXAMPLEKEY"  # as an environment has one
URL = "s3://bob:hunter2-hunter2@bucket/runs"
FILLER = "filler"


class FaultyTrial(SearchTrial):
    """Each trial has its own way to go wrong."""

    faults: dict[str, str] = {}

    def _start(self) -> Iterator[dict[str, Any]]:
        fault = self.faults.get(self.job.trial, "")
        out = Path(self.job.out)
        if fault == "tells a secret":
            raise ConnectionError(f"{URL} refused the key {SECRET}")
        if fault == "its disk fails for a moment" and self.job.known == 0:
            mark = out.parents[1] / "failed-once"
            if not mark.exists():
                mark.touch()
                raise OSError(errno.EIO, "Input/output error")
        if fault in ("fills the disk", "frees the disk"):
            fill(out.parents[2]) if fault == "fills the disk" else free(out.parents[2])
        first = not (out / "config.yaml").exists()
        records = super()._start()
        if fault in DAMAGES and first:
            return dying(records, out, fault)
        return changed(records, fault) if fault in CHANGES else records


def dying(records: Iterator[dict[str, Any]], out: Path, fault: str) -> Iterator[dict[str, Any]]:
    """Dies after its second evaluation, and what it saved last is not as it was."""
    for number, record in enumerate(r for r in records if not r.get("heartbeat")):
        if number == 1:
            newest = checkpoints_in(out / "checkpoints")[-1]
            DAMAGES[fault](newest / TENSORS)
            os.kill(os.getpid(), signal.SIGKILL)
        yield record


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def changed(records: Iterator[dict[str, Any]], fault: str) -> Iterator[dict[str, Any]]:
    for record in records:
        yield record if record.get("heartbeat") else CHANGES[fault](record)


def without_score(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "score"}


DAMAGES = {"a byte flips": flip, "a file is cut": truncate}
CHANGES = {
    "no score": without_score,
    "a score of words": lambda record: {**record, "score": "very good"},
}


class DamagedTrial(FaultyTrial):
    faults = {
        "t0001": "a byte flips",
        "t0002": "a file is cut",
        "t0003": "no score",
        "t0004": "a score of words",
        "t0005": "tells a secret",
    }


class UnfitTrial(FaultyTrial):
    faults = {"t0001": "its disk fails for a moment"}


class DiskTrial(FaultyTrial):
    faults = {"t0001": "fills the disk", "t0002": "frees the disk"}


def fill(place: Path, leave: int = 400_000) -> None:
    """Take all room there but a little: enough for lines, too little for a checkpoint."""
    with open(place / FILLER, "ab", buffering=0) as file:
        while (left := os.statvfs(place).f_bavail * os.statvfs(place).f_frsize - leave) > 0:
            file.write(bytes(min(left, 1 << 20)))


def free(place: Path) -> None:
    (place / FILLER).unlink()
