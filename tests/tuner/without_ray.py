"""Searches without Ray, for tests of what Ray has no part in: no start, and no worker's imports.

The engine hands out trials as always, and the same trainable trains them, here and one by one.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from model.common.files import sha256_of
from tuner.engine.engine import Engine
from tuner.export.tensorboard.pictures import Picture
from tuner.ray_backend import trainable
from tuner.ray_backend.session import Session
from tuner.runs.scratch import scratch_folder


@contextmanager
def without_ray() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuner.search.driver.ray_session", session)
        patch.setattr("tuner.search.driver.run_trials", run_trials)
        patch.setattr("tuner.export.tensorboard.extras.pictures_of", undrawn)
        yield


def undrawn(path: Path, tasks: Any, title: str) -> dict[str, Picture]:
    """What would be drawn: drawing it takes longer than a small trial."""
    return {"undrawn": Picture(f"{title} {sha256_of(path)}".encode(), 1, 1)}


@contextmanager
def session(address: str | None, phase: Any = None, lost: Any = None) -> Iterator[Session]:
    assert address is None
    with scratch_folder() as scratch:
        yield Session(2, 0, scratch, ((2, 0),))


def run_trials(
    engine: Engine, console: Any, resources: Any, scratch: Path, storage: Any = None, *_: Any
) -> None:
    """As many as there are slots are under way, so the sampler knows of them; one trains."""
    waiting: list[Any] = []
    while True:
        while job := engine.next_job():
            worker = trainable.SearchTrial.__new__(trainable.SearchTrial)
            worker.setup(job.as_config(), storage)
            worker._check_device = lambda: None  # which asks Ray
            waiting.append(worker)
            engine.started(job.trial, socket.gethostname(), os.getpid())
        if not waiting:
            return
        train(engine, waiting.pop(0))


def train(engine: Engine, worker: Any) -> None:
    name, going = worker.job.trial, True
    while going:
        result = worker.step()
        for note in json.loads(result[trainable.NOTES]):
            engine.note(name, note)
        if trainable.OUTCOME in result:
            outcome, going = json.loads(result[trainable.OUTCOME]), False
            engine.finished(name) if outcome.get("finished") else engine.failed(name, outcome)
            continue
        record = json.loads(result[trainable.RECORD])
        if record.get("heartbeat"):
            engine.heartbeat(name, int(record["examples"]), record["doing"])
        else:
            going = engine.evaluated(name, record)
        engine.tick()
    worker.records = None
    worker.cleanup()
