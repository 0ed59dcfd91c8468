"""Three hundred quick trials with faults among them: what grows in the driver and its workers?

    python benchmarks/soak.py [--trials 300] [--every 50]

A search on the tiny encoder, two trials at a time. Of every twenty trials one raises, one diverges
and one runs out of memory; of every fifty, one has its worker killed. Memory, open files and
threads of the driver and of each worker are read every so many trials. The oldest worker is never
killed, so its figures are those of one process from beginning to end.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil

import tuner.ray_backend.trainable
import tuner.search.terminal

HEADER = ("trials", "process", "memory", "own memory", "files", "threads", "seconds")


class Soaked(tuner.ray_backend.trainable.SearchTrial):
    """Some trials go wrong; which ones, their number says."""

    def _start(self) -> Iterator[dict[str, Any]]:
        number = int(self.job.trial[1:])
        if number % 20 == 7:
            raise ZeroDivisionError(f"by {self.job.trial}")
        if number % 20 == 13:
            raise MemoryError("no room for the batch")
        if number % 20 == 17:
            rate = {"optim.learning_rate": 1e30}
            self.job = replace(self.job, settings={**self.job.settings, **rate})
        return super()._start()


class Watch:
    """Looks at the processes while the search draws its table."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.next = every
        self.killed = 0
        self.began = time.monotonic()

    def __call__(self, console: Any, engine: Any) -> None:
        done = sum(t.status != "open" for t in engine.state.trials.values())
        if done >= self.next:
            self.next += self.every
            self.show(done, "driver", os.getpid())
            for number, pid in enumerate(workers()):
                self.show(done, "oldest worker" if number == 0 else "worker", pid)
        if done // 50 > self.killed and len(found := workers()) > 1:
            os.kill(found[-1], signal.SIGKILL)
            self.killed += 1

    def show(self, done: int, name: str, pid: int) -> None:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                memory = process.memory_full_info()
                row = (
                    *(str(done), name, f"{memory.rss / 1e6:.0f} MB", f"{memory.uss / 1e6:.0f} MB"),
                    *(str(process.num_fds()), str(process.num_threads())),
                    f"{time.monotonic() - self.began:.0f}",
                )
        except psutil.Error:
            return
        print("| " + " | ".join(row) + " |", flush=True)


def workers() -> list[int]:
    """Of the processes in which trials run, the oldest first."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "Soaked" in "".join(process.cmdline()[:1]):
                found.append((process.create_time(), process.pid))
        except psutil.Error:
            continue  # gone meanwhile
    return [pid for _, pid in sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--every", type=int, default=50)
    arguments = parser.parse_args()
    from tuner import run_search

    tuner.ray_backend.trainable.SearchTrial = Soaked  # type: ignore[misc]
    watch = Watch(arguments.every)
    tuner.search.terminal.SearchConsole.draw = lambda console, engine: watch(console, engine)  # type: ignore[method-assign]
    tuner.search.terminal.SearchConsole.warn = lambda console, line: None  # type: ignore[method-assign]
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    with tempfile.TemporaryDirectory(prefix="stockpot-soak-") as folder:
        result = run_search(
            storage_path=Path(folder),
            encoder="tiny",
            num_samples=arguments.trials,
            max_concurrent_trials=2,
            max_examples=96,
            grace_examples=48,
            set={"budget.eval_rows": 20, "smart.weight": 0},
            soup=False,
            quiet=True,
        )
        counts = result.state.counts()
        starts = sum(trial.attempts for trial in result.state.trials.values())
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    print(f"{said}; {watch.killed} workers killed, {starts} starts")


if __name__ == "__main__":
    # Under its own name, so that Ray's workers import the trial rather than get a copy of it.
    import soak

    soak.main()
