"""Thousands of histories of a search in which things go wrong, each from a seed.

    python benchmarks/simulated_faults.py                    # 10,000 seeds, and the mutants
    python benchmarks/simulated_faults.py --seeds 500 --from 20000
    python benchmarks/simulated_faults.py --seed 4711        # one of them, with its history

The engine, ledger, retention, mirror and resume are the real ones; clock, disk, storage and workers
are made up (benchmarks/simulation). A mutant is the real code with a fault put back that it once
had: the simulation must find it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

from simulation.disk import Disk
from simulation.plan import Violation
from simulation.world import simulate

from tuner.engine.engine import Engine
from tuner.runs import lock
from tuner.runs.folder import LOCK
from tuner.runs.ledger import Ledger
from tuner.runs.lock import Holder
from tuner.runs.storage import node_folder
from tuner.runs.storage.fence import FencedFile
from tuner.runs.storage.mirror import ALIVE, Mirror, check_driver
from tuner.runs.storage.node_folder import NodeFolder
from tuner.space.space import Space, load_space

MOST = 1000  # seeds within which a mutant must be found


def truncates(ledger: Ledger) -> None:
    """A writer cut off whatever stood behind its own last line."""
    if os.fstat(ledger._file).st_size > ledger._size:
        os.ftruncate(ledger._file, ledger._size)


def overwrites(file: FencedFile, content: bytes, hurried: bool = False) -> None:
    """A driver wrote to storage without a look at who had written there since."""
    file.storage.write(file.path, content)


def removes(mirror: Mirror) -> None:
    """A driver's end took away the sign of life that was there, whosever it was."""
    mirror.storage.remove([ALIVE])


def closes(engine: Engine, trials: Any) -> None:
    """A trial's state was dropped although the ledger could not be told that it was closed."""
    for trial in [trial for trial in trials if trial.frozen]:
        rung, reason = engine.promotion.rung(trial), engine.promotion.standing(trial)
        engine._write("stopped", trial=trial.id, examples=trial.examples, rung=rung, reason=reason)
        engine._closed(trial, reason)


def unsynced(disk: Disk, handle: int) -> None:
    """A line counted as written before it was on the disk."""
    disk._call()


def unguarded(folder: Path, mine: Holder, epoch: int) -> None:
    """A worker saved in a shared folder without a look at whose run it is."""


CHECK, SEND = lock.check_holder, NodeFolder.send


def forgets(folder: Path, mine: Holder, epoch: int) -> None:
    """A worker saved where nobody held the lock, whoever had had it meanwhile."""
    if (folder / LOCK).exists():
        CHECK(folder, mine, epoch)


def hastens(node: NodeFolder) -> None:
    """A worker asked once whose run it is, and then sent and removed all that was to go."""
    check_driver(node.storage)
    with mock.patch.object(node_folder, "check_driver", lambda storage: None):
        SEND(node)


MUTANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "truncates": lambda: mock.patch.object(Ledger, "_check_size", truncates),
    "overwrites": lambda: mock.patch.object(FencedFile, "write", overwrites),
    "removes": lambda: mock.patch.object(Mirror, "_sign_off", removes),
    "closes": lambda: mock.patch.object(Engine, "_close_frozen", closes),
    "unguarded": lambda: mock.patch.object(lock, "check_holder", unguarded),
    "forgets": lambda: mock.patch.object(lock, "check_holder", forgets),
    "hastens": lambda: mock.patch.object(NodeFolder, "send", hastens),
    "unsynced": lambda: mock.patch.object(Disk, "fsync", unsynced),
}


def hunt(name: str, space: Space, folder: Path, start: int = 0) -> tuple[int, str] | None:
    """The first seed that finds a mutant, and what it says."""
    with MUTANTS[name]():
        for seed in range(start, start + MOST):
            _, violation = simulate(seed, space, folder)
            if violation is not None:
                return seed, str(violation)
    return None


def campaign(seeds: range, space: Space, folder: Path) -> tuple[Counter[str], int]:
    """What went wrong in all of them, and how many violated something."""
    told: Counter[str] = Counter()
    violations = 0
    for seed in seeds:
        world, violation = simulate(seed, space, folder)
        told += world.told
        if violation is not None:
            violations += 1
            print(f"seed {seed}: {violation}", flush=True)
    return told, violations


def show(seed: int, space: Space, folder: Path) -> Violation | None:
    began = time.perf_counter()
    world, violation = simulate(seed, space, folder)
    print("\n".join(world.history))
    print(violation or "nothing was violated", f"({time.perf_counter() - began:.2f} s)")
    return violation


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--from", type=int, default=0, dest="start")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--mutants", action="store_true", help="only the mutants")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    space = load_space("default")
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        if arguments.seed is not None:
            return int(show(arguments.seed, space, folder) is not None)
        count = 100 if arguments.quick else 0 if arguments.mutants else arguments.seeds
        began, worked = time.perf_counter(), time.process_time()
        told, violations = campaign(range(arguments.start, arguments.start + count), space, folder)
        wall, worked = time.perf_counter() - began, time.process_time() - worked
        print(f"{count} seeds: {violations} violations; {wall:.0f} s, {worked:.0f} s at work")
        for kind, number in told.most_common():
            print(f"  {number:7,} {kind}")
        missed = 0
        for mutant in MUTANTS:
            found = hunt(mutant, space, folder)
            missed += found is None
            said = f"found by seed {found[0]}: {found[1]}" if found else f"not within {MOST} seeds"
            print(f"mutant '{mutant}': {said}", flush=True)
    return int(violations + missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
