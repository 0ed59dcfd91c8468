"""Killing a program at seeded moments and starting it again, and counting what that cost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil
from killed_programs import INTERVAL, STEPS

ROOT = Path(__file__).parent.parent
MOST_STEPS = 36  # between two kills
Saved = dict[str, list[int]]  # trial -> examples at its checkpoints


@dataclass(frozen=True)
class Kill:
    victim: str  # driver or worker
    steps: int  # of training, by all trials together, since the kill before
    wait: float  # seconds after that
    which: float  # of the workers, 0 to 1


def draw_kills(count: int, seed: int) -> list[Kill]:
    """Half of the driver and half of workers, in any order, at moments that progress decides."""
    draws = random.Random(seed)
    victims = ["driver", "worker"] * ((count + 1) // 2)
    draws.shuffle(victims)
    return [
        Kill(victim, draws.randint(1, MOST_STEPS), draws.uniform(0, 0.5), draws.random())
        for victim in victims[:count]
    ]


@dataclass
class Program:
    """A command that is started again after every death, until it is through."""

    kind: str
    folder: Path
    flags: Callable[[], list[str]]  # as it is to be started now
    starts: int = 0
    struck: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        (self.folder / "steps").mkdir(parents=True)
        (self.folder / "tmp").mkdir()

    def start(self) -> None:
        script = str(Path(__file__).parent / "killed_programs.py")
        temporary = {"TMPDIR": str(self.folder / "tmp"), STEPS: str(self.folder / "steps")}
        quiet = {
            "PYTHONPATH": str(ROOT),
            "RAY_USAGE_STATS_ENABLED": "0",
            "PYTHONWARNINGS": "ignore",
        }
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, script, self.kind, str(self.folder), *self.flags()],
                cwd=ROOT,
                env={**os.environ, **temporary, **quiet, "RAY_DISABLE_IMPORT_WARNING": "1"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1

    def run(self, kills: list[Kill], seconds: float) -> float:
        """Seconds that it took, with all kills that struck before it was through."""
        began = time.monotonic()
        deadline = began + seconds
        waiting = list(kills)
        self.start()
        before = self.steps()
        while time.monotonic() < deadline:
            assert self.process is not None
            code = self.process.poll()
            if code is not None:
                self.codes.append(code)
                if code == 0 or len(self.codes) > 5:
                    break
                self.start()  # as whoever finds it dead would do
            kill = waiting[0] if waiting else None
            if kill and self.steps() - before >= kill.steps:
                time.sleep(kill.wait)
                if self.strike(kill):
                    waiting.pop(0)
                    before = self.steps()
            time.sleep(0.05)
        self.end()
        return time.monotonic() - began

    def strike(self, kill: Kill) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            return False
        if kill.victim == "driver":
            self.process.kill()
            self.process.wait()
            self.struck.append(kill.victim)
            self.start()
            return True
        workers = self.workers()
        if not workers:
            return False
        try:
            workers[int(kill.which * len(workers))].kill()
        except psutil.NoSuchProcess:
            return False
        self.struck.append(kill.victim)
        return True

    def workers(self) -> list[psutil.Process]:
        """The processes in which trials run now."""
        assert self.process is not None
        found = []
        try:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                title = " ".join(child.cmdline()[:1])
                if title.startswith("ray::") and not title.endswith(("IDLE", "Agent")):
                    found.append(child)
        except psutil.Error:
            pass
        return sorted(found, key=lambda process: process.pid)

    def end(self) -> None:
        """Whatever of its own session is left."""
        if self.process is not None:
            if self.process.poll() is None:
                self.codes.append(-1)  # out of time
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def steps(self) -> int:
        return sum(file.read_bytes().count(b"\n") for file in (self.folder / "steps").iterdir())

    def redone(self, saved: Saved | None = None) -> Redone:
        return Redone.of(self.folder / "steps", saved)


@dataclass(frozen=True)
class Redone:
    """Work that was done more than once, from the notes of every step."""

    examples: int  # trained
    again: int  # of them, a second time or more
    longest: int  # examples of the longest stretch that one trial did again in one go
    intervals: float  # the same, as a share of what lies between two checkpoints of that trial

    @classmethod
    def of(cls, folder: Path, saved: Saved | None = None) -> Redone:
        """`saved`: where each trial made its checkpoints, if not every `INTERVAL` examples."""
        reached: dict[str, dict[int, int]] = defaultdict(dict)  # trial -> step -> examples
        times: Counter[tuple[str, int]] = Counter()
        stretches: list[tuple[str, list[int]]] = []
        for file in sorted(folder.iterdir(), key=lambda place: place.stat().st_ctime_ns):
            now: tuple[str, list[int]] = ("", [])
            for line in file.read_text().splitlines():
                trial, step, examples = line.split()
                reached[trial][int(step)] = int(examples)
                times[trial, int(step)] += 1
                if trial != now[0] or int(step) != now[1][-1] + 1:
                    now = (trial, [])
                    stretches.append(now)
                now[1].append(int(step))

        def size(trial: str, step: int) -> int:
            return reached[trial][step] - reached[trial].get(step - 1, 0)

        total = sum(size(*key) * count for key, count in times.items())
        again = sum(size(*key) * (count - 1) for key, count in times.items())
        longest, share, furthest = 0, 0.0, Counter[str]()
        for trial, steps in stretches:
            length = sum(size(trial, s) for s in steps if s <= furthest[trial])
            longest = max(longest, length)
            marks = marks_of(reached[trial]) if saved is None else saved.get(trial, [])
            share = max(share, length / interval(marks))
            furthest[trial] = max(furthest[trial], *steps)
        return cls(total, again, longest, share)


def marks_of(reached: dict[int, int]) -> list[int]:
    """Where checkpoints lie: one is made by the step that passes a mark."""
    marks, before = [], 0
    for _, examples in sorted(reached.items()):
        if examples // INTERVAL > before // INTERVAL:
            marks.append(examples)
        before = examples
    return marks


def interval(marks: list[int]) -> int:
    """The most examples between two checkpoints, or before the first."""
    return max((b - a for a, b in pairwise([0, *marks])), default=INTERVAL)
