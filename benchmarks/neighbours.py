"""A search's examples per second alone on a core, and beside another program on the same core.

    python benchmarks/neighbours.py [--quick]

Two that are equal get half each. Ray's own way is to give way to everybody: its workers have 15
more of niceness, which leaves them 3 % of the core.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tuner import run_search

ALONE, BESIDE, RAYS = "alone", "beside a busy loop", "the same with Ray's niceness"


@contextmanager
def busy_loop() -> Iterator[None]:
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def rate(examples: int, niceness: int = 0, neighbour: bool = False) -> float:
    """The median of one trial's evaluations but the first, which has the warming up in it."""
    os.environ["RAY_worker_niceness"] = str(niceness)
    with (
        tempfile.TemporaryDirectory(prefix="stockpot-neighbours-") as folder,
        busy_loop() if neighbour else nullcontext(),
    ):
        found = run_search(
            storage_path=Path(folder),
            encoder="tiny",
            num_samples=1,
            max_concurrent_trials=1,
            cpus_per_trial=1,
            max_examples=examples,
            grace_examples=examples // 5,
            early_stopping=False,
            soup=False,
            report=False,
            quiet=True,
        )
        (trial,) = found.state.trials.values()
        return statistics.median(e["examples_per_second"] for e in trial.evaluations[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="once, and not in Ray's way")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # and all that it starts
    examples = 6000 if arguments.quick else 12000
    found: dict[str, list[float]] = {ALONE: [], BESIDE: []}
    for _ in range(1 if arguments.quick else arguments.rounds):
        found[ALONE].append(rate(examples))
        found[BESIDE].append(rate(examples, neighbour=True))
    if not arguments.quick:  # once and with few examples: it takes thirty times as long
        found[RAYS] = [rate(examples // 10, niceness=15, neighbour=True)]
    whole = statistics.median(found[ALONE])
    print("examples per second of one trial of the tiny encoder on one core")
    for name, values in found.items():
        value = statistics.median(values)
        print(f"  {name:30}{value:8.0f}  {value / whole:4.0%}")


if __name__ == "__main__":
    main()
