"""Whether a worker still lives: it says so every few seconds, and a silent one is ended.

Results come only between two steps, and an evaluation or a download may take an hour. So a thread
of the worker's process counts on in Ray's own store, whatever the training is at. It is silent when
the process was stopped, its machine froze, or the network between is cut. A training that hangs
while its process counts on is known by its results, after a much longer time.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

EVERY = 5.0  # seconds between two counts
SILENT = 120.0  # seconds without one after which a worker is ended
UNBORN = 300.0  # seconds without its first, and without a result
STUCK = 3600.0  # seconds without a result, if it does count
NAMESPACE = b"stockpot"


def key_of(host: str, pid: int) -> bytes:
    return f"heartbeat {host} {pid}".encode()


@cache
def start_heartbeat() -> None:
    """Count on for as long as this process lives."""
    threading.Thread(target=_count, name="heartbeat", daemon=True).start()


def _count() -> None:
    from ray.experimental import internal_kv

    key, count = key_of(socket.gethostname(), os.getpid()), 0
    while True:
        count += 1
        with suppress(Exception):  # Ray is on its way up or down
            internal_kv._internal_kv_put(key, str(count).encode(), namespace=NAMESPACE)
        time.sleep(EVERY)


def read_heartbeat(host: str, pid: int) -> bytes | None:
    """Its count; nothing if there was none so far, and None if that cannot be told."""
    from ray.experimental import internal_kv

    try:
        return internal_kv._internal_kv_get(key_of(host, pid), namespace=NAMESPACE) or b""
    except Exception:  # nothing can be told while Ray's own store is away
        return None


@dataclass
class TrialWorker:
    """One that a trial runs in, as the driver knows it."""

    host: str
    pid: int | None  # None if nobody knows
    heartbeat: bytes | None = None
    seen: float = 0.0  # when its heartbeat last changed
    heard: float = 0.0  # when it last had a result
    has_results: bool = False

    def patience(self, *, can_tell: bool) -> float:
        """How long it may be without a heartbeat: for ever where none comes through to us, as it
        has results without one, or nobody can tell."""
        if self.heartbeat:
            return SILENT
        return math.inf if self.has_results or not can_tell else UNBORN


@dataclass
class HeartbeatWatch:
    """The driver's side: told of starts and results, asked now and then who is silent."""

    read: Callable[[str, int], bytes | None] = read_heartbeat
    clock: Callable[[], float] = time.monotonic
    workers: dict[str, TrialWorker] = field(default_factory=dict)
    looked: float | None = None

    def started(self, trial: str, host: str, pid: int | None) -> None:
        now = self.clock()
        self.workers[trial] = TrialWorker(host, pid, seen=now, heard=now)

    def unplaced(self, running: Iterable[str]) -> list[str]:
        """Trials of which nobody knows where they run."""
        workers = self.workers
        return [trial for trial in running if trial in workers and workers[trial].pid is None]

    def placed(self, trial: str, host: str, pid: int) -> None:
        """It is known now where it runs."""
        if worker := self.workers.get(trial):
            worker.host, worker.pid = host, pid

    def heard(self, trial: str) -> None:
        if worker := self.workers.get(trial):
            worker.seen = worker.heard = self.clock()
            worker.has_results = True

    def silent(self, running: Iterable[str]) -> dict[str, str]:
        """trial -> why its worker is to be ended."""
        now, before = self.clock(), self.looked
        self.looked = now
        self.workers = {trial: self.workers[trial] for trial in running if trial in self.workers}
        found = {}
        for trial, worker in self.workers.items():
            heartbeat = b"" if worker.pid is None else self.read(worker.host, worker.pid)
            if before is None or now - before > SILENT / 2:
                worker.seen = worker.heard = now  # it was the driver that slept
            elif heartbeat and heartbeat != worker.heartbeat:
                worker.seen = now
            worker.heartbeat = heartbeat or worker.heartbeat
            if now - worker.seen > worker.patience(can_tell=heartbeat is not None):
                found[trial] = f"no sign of life from its worker for {now - worker.seen:.0f} s"
            elif now - worker.heard > STUCK:
                found[trial] = f"nothing was heard of its work for {now - worker.heard:.0f} s"
        return found

    def end(self, trial: str, actor: Any) -> None:
        """Its trial is then lost to Ray, and goes on elsewhere."""
        import ray

        with suppress(Exception):
            ray.kill(actor)
        worker = self.workers.pop(trial, None)
        if worker and worker.pid is not None and worker.host == socket.gethostname():
            end_process(worker.pid)  # one that was stopped does not hear Ray


def end_process(pid: int) -> None:
    """A worker of this machine, and nothing that has its number by now."""
    with suppress(OSError):
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)


def draining_nodes() -> set[str]:
    """Ids of machines that Ray was told it will lose: a spot notice, an autoscaler's choice."""
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    try:
        client = GcsClient(address=ray.get_runtime_context().gcs_address)
        return {str(node) for node in client.get_draining_nodes()}
    except Exception:  # Ray's client has no such thing, or cannot be reached
        return set()
