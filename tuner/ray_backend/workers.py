"""Workers for what comes after the trials: one for each slot of the search, asked one by one.

A worker keeps what it has loaded. One that is lost with its machine, or gives no sign of life any
more, costs a repeat of what it was asked, by another.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError

from model.common.secrets import brief, redact
from model.training.inputs import Warn
from tuner.ray_backend.heartbeat import HeartbeatWatch, start_heartbeat
from tuner.ray_backend.resources import Resources, keep_to_its_gpu

ATTEMPTS = 4  # of one question: who loses so many workers has another problem
GOODBYE = 10.0  # seconds for a worker to tidy up
LOOK = 0.2  # seconds between looks at those that start
WAIT = 1.0  # seconds between looks at one that was asked
ASKED = "asked"
PATIENCE = 600.0  # seconds for the first of them, as an autoscaler takes its time


class Stored:
    """A value in Ray's object store, which comes to a node when it is asked for there."""

    def __init__(self, value: Any) -> None:
        self.ref = ray.put(value)

    def __call__(self) -> Any:
        return ray.get(self.ref)


class Worker:
    """Answers questions on its node: `make` is called there, and makes who answers."""

    def __init__(self, make: Callable[[], Any], threads: int) -> None:
        import torch

        start_heartbeat()
        torch.set_num_threads(threads)
        keep_to_its_gpu()
        self.made = make()

    def ready(self) -> tuple[str, int]:
        """Its host and process, as soon as the worker is there."""
        return socket.gethostname(), os.getpid()

    def ask(self, *question: Any) -> tuple[Any, str]:
        return self.made(*question), ray.util.get_node_ip_address()

    def close(self) -> None:
        self.made.close()


@dataclass(frozen=True)
class ReadyWorker:
    actor: Any
    host: str
    pid: int


class SilentWorker(Exception):
    """No answer, and no sign of life either."""


class NoWorker(Exception):
    """Nobody to ask: none starts, or none has for so long, or too many were lost by a question."""


def reason_of(error: Exception) -> str:
    """Why a worker was lost. What its start raised is the last line, what Ray says the first."""
    lines = redact(str(error)).strip().splitlines() or ["it died"]
    return brief(lines[-1 if getattr(error, "actor_init_failed", False) else 0], 120)


class WorkerPool:
    """At most as many workers as there are slots. Threads may ask at the same time.

    A worker starts when all others are busy. It may find no room, where a machine was lost: whoever
    waits for it takes the next one that is free, and gets `NoWorker` if there is none at all.
    `stop` is asked while somebody waits, and raises what ends that.
    """

    watch = HeartbeatWatch

    def __init__(
        self,
        make: Callable[[], Any],
        resources: Resources,
        warn: Warn,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self.make, self.resources, self.warn, self.stop = make, resources, warn, stop
        self.size = self._unstarted = resources.slots
        self.places: set[str] = set()  # addresses of the nodes that have answered
        self._starting: dict[Any, Any] = {}  # by the sign that it is there
        self._idle: list[ReadyWorker] = []
        self._failed = 0  # starts
        self._patience = PATIENCE  # until nobody came
        self._changed = threading.Condition()

    def ask(self, *question: Any) -> Any:
        for attempt in range(1, ATTEMPTS + 1):
            worker = self._take()
            try:
                answer, place = self._answer(worker, worker.actor.ask.remote(*question))
            except (RayActorError, SilentWorker) as error:
                self._give(None)
                reason = reason_of(error)
                if attempt == ATTEMPTS:
                    fault = f"{ATTEMPTS} workers were lost by one question ({reason})"
                    raise NoWorker(fault) from error
                self.warn(f"a worker was lost ({reason}); another does its work")
            except BaseException:
                self._give(worker)
                raise
            else:
                self._give(worker)
                self.places.add(place)
                return answer
        raise AssertionError  # the last attempt returned or raised

    def _answer(self, worker: ReadyWorker, sign: Any) -> Any:
        """Ray would wait for ever for a process that was stopped, or whose machine froze."""
        watch = self.watch()
        watch.started(ASKED, worker.host, worker.pid)
        while not ray.wait([sign], timeout=WAIT)[0]:
            self.stop()
            if silent := watch.silent([ASKED]):
                watch.end(ASKED, worker.actor)
                raise SilentWorker(silent[ASKED])
        return ray.get(sign)

    def _take(self) -> ReadyWorker:
        with self._changed:
            deadline = time.monotonic() + self._patience
            while True:
                self.stop()
                if self._idle:
                    return self._idle.pop()
                self._greet()
                if self._idle:
                    return self._idle.pop()
                if self._unstarted:
                    self._unstarted -= 1
                    worker = self._start()
                    self._starting[worker.ready.remote()] = worker
                busy = self.size - self._unstarted - len(self._starting)
                if busy:
                    deadline = time.monotonic() + self._patience
                elif time.monotonic() > deadline:
                    self._patience = 0.0
                    raise NoWorker("the cluster has no room for a worker")
                self._changed.wait(LOOK)

    def _greet(self) -> None:
        """Those that have started are idle; one that could not is started anew when needed."""
        for sign in [sign for sign in self._starting if ray.wait([sign], timeout=0)[0]]:
            worker = self._starting.pop(sign)
            try:
                self._idle.append(ReadyWorker(worker, *ray.get(sign)))
                self._patience = PATIENCE
            except RayActorError as error:
                self._unstarted += 1
                self._failed += 1
                if self._failed >= ATTEMPTS * self.size:
                    self._patience = 0.0
                    raise NoWorker(f"no worker starts ({reason_of(error)})") from error

    def _give(self, worker: ReadyWorker | None) -> None:
        with self._changed:
            if worker is None:
                self._unstarted += 1
            else:
                self._idle.append(worker)
            self._changed.notify()

    def _start(self) -> Any:
        options = {"num_cpus": self.resources.cpus, "num_gpus": self.resources.gpus}
        there = ray.remote(Worker).options(**options, scheduling_strategy="SPREAD")
        return there.remote(self.make, self.resources.threads)

    def close(self) -> None:
        """When nobody asks any more."""
        with self._changed:
            idle, starting = [each.actor for each in self._idle], list(self._starting.values())
            self._idle, self._starting = [], {}
        if signs := [worker.close.remote() for worker in idle]:
            ray.wait(signs, num_returns=len(signs), timeout=GOODBYE)  # also those that are lost
        for worker in [*idle, *starting]:
            ray.kill(worker)
