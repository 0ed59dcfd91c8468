"""What one history is made of: its clock, what the seed plans to go wrong, its workers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.engine.job import Job
from tuner.engine.stages import Stages, for_trials, in_full
from tuner.runs.state import TrialState
from tuner.runs.storage.node_folder import NodeFolder

TRIALS, MAXIMUM = 5, 360
MOST_STEPS = 3000
MOST_LOSSES = 2  # of a trial, so that none fails for them
KEEP = 2


class Violation(BaseException):  # that nothing on its way takes for a fault to get over
    """Something happened that never may."""


class NoStudy:
    """In place of the study file, which nothing reads back."""

    def update(self, trial: TrialState) -> None:
        pass


@dataclass
class Clock:
    now: float = 1_700_000_000.0
    meanwhile: Callable[[], None] = lambda: None

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Somebody waits, and others do not."""
        self.now += seconds
        self.meanwhile()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@dataclass
class Plan:
    """What a seed makes of a search."""

    slots: int
    stages: Stages
    remote: bool
    faults: int

    @classmethod
    def of(cls, rng: random.Random, quiet: bool) -> Plan:
        slots = rng.choice([1, 1, 2, 3])
        kind = rng.choice(["full", "continue", "restart"])
        stages = in_full(TRIALS, MAXIMUM)
        if kind != "full":
            finals = rng.choice([None, None, 4])  # of which some are further seeds
            stages = for_trials(TRIALS, MAXIMUM, promotion=kind, finals=finals)  # type: ignore[arg-type]
        remote, faults = rng.random() < 0.4, rng.randint(2, 9)
        return cls(slots, stages, remote, 0 if quiet else faults)

    @property
    def is_decided(self) -> bool:
        """Whether the end does not depend on what comes first."""
        return self.slots == 1 or len(self.stages.rungs) == 1


@dataclass
class Worker:
    job: Job
    points: list[int]
    unheard: list[int]
    node: NodeFolder | None = None  # where it trains, if storage is behind a URL
    hangs: bool = False
