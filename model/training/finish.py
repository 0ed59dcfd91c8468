"""The end of a run: its best model under its own name, and the summary."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from model.common.errors import InputError
from model.common.files import atomic_folder, write_atomic
from model.common.run_files import SUMMARY
from model.training.checkpoint import DamagedCheckpoint, verify
from model.training.inputs import Warn
from model.training.progress import Progress, Record


def publish_best(out: Path, progress: Progress, baselines: Mapping[str, float], warn: Warn) -> None:
    """`out` has the checkpoints; `baselines` are those of each task, and overall."""
    record = best_that_is_whole(out / "checkpoints", progress.history, warn)
    with atomic_folder(out / "model") as folder:
        for file in (out / "checkpoints" / record["checkpoint"] / "model").iterdir():
            link_or_copy(file, folder / file.name)
    summary = {
        "best": record,
        "best_per_task": {task: progress.best[task] for task in record["tasks"]},
        "baselines": dict(baselines),
        "evaluations": len(progress.history),
        "steps": progress.step,
        "examples": progress.examples,
        "seconds": progress.seconds,
    }
    write_atomic(out / SUMMARY, json.dumps(summary, indent=1) + "\n")


def best_that_is_whole(checkpoints: Path, history: list[Record], warn: Warn) -> Record:
    """The best evaluation whose model is as it was written."""
    for record in sorted(history, key=lambda r: -r["score"]):
        place = checkpoints / record["checkpoint"]
        if not (place / "model").is_dir():
            continue  # pruned: it was never the best of anything for long
        try:
            verify(place, "model/")
            return record
        except DamagedCheckpoint as fault:
            warn(f"checkpoint {place.name} is damaged ({fault}); taking the next best")
    remedy = "train again in a new folder"
    raise InputError(str(checkpoints), [f"no model in it is whole any more; {remedy}"])


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link costs no space; where the file system has none, a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
