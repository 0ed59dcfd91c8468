"""The driver's own time per trial in large searches, and how fast it resumes: a simulated cluster.

    python benchmarks/scale.py [--trials 1000 10000] [--slots 256] [--sampler tpe] [--space default]
    python benchmarks/scale.py --suggestions --sampler task_gp --trials 10 50 200 --slots 2

Everything that decides is the search's own: the engine with its ledger on disk, the rungs, the
sampler, the study file, the checkpoints that are kept and deleted. Only training and Ray are made
up: 256 slots of different speed report the points of made-up learning curves in the order in which
they would come, and write the folders that a checkpoint would be. Counted is the processor time
inside the engine. Waiting is counted apart: mostly for the disk, as by design each line of the
ledger is on it before anything acts on the line. With `--suggestions` the time of a suggestion
alone is told, up to each number of trials in one search whose other points are drawn at random.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from simulated import make_engine, simulate

from tuner.engine.engine import Engine
from tuner.engine.sampling import Suggestion
from tuner.engine.stages import for_trials
from tuner.runs.folder import LOCK
from tuner.runs.lock import RunLock
from tuner.runs.state import TrialState
from tuner.space.space import Space, load_space

MAXIMUM = 3600
EVERY = MAXIMUM // 9


@dataclass
class Clock:
    """Seconds at work inside the driver, and seconds that it waited: for the disk, for a core."""

    own: float = 0.0
    waited: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, worked = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            worked = time.process_time() - worked
            self.own += worked
            self.waited += time.perf_counter() - wall - worked


def score(trial: TrialState, examples: int) -> float:
    """A made-up curve: best near a rate of 2e-4 and little dropout, rising with examples."""
    settings, share = trial.settings, examples / MAXIMUM
    rate = math.log(settings.get("optim.learning_rate", 2e-4) / 2e-4)
    top = 0.85 - 0.05 * rate**2 - 0.3 * settings.get("encoder.dropout", 0.1) ** 2
    noise = random.Random(f"{trial.id} {examples}").gauss(0, 0.01)
    return min(1.0, max(0.0, top * (1 - math.exp(-4 * share)) + noise))


@contextmanager
def opened(
    folder: Path, space: Space, trials: int, slots: int, sampler: str, clock: Clock
) -> Iterator[Engine]:
    with RunLock(folder / LOCK) as lock:
        with clock.running():
            engine = make_engine(
                space,
                folder=folder,
                stages=for_trials(trials, MAXIMUM, shortest=EVERY, promotion="continue"),
                slots=slots,
                sampler=sampler,
                mine=lock.check,
            )
        yield engine
        engine.ledger.close()


def run(engine: Engine, clock: Clock) -> None:
    rng = random.Random(0)
    speeds = iter(lambda: rng.uniform(0.5, 1.5), None)
    for _ in simulate(engine, score, speeds, around=clock.running):
        pass


def resumed(folder: Path, space: Space, trials: int, slots: int, sampler: str) -> Clock:
    """From nothing to the first job of a search that wants one more trial."""
    clock = Clock()
    with opened(folder, space, trials + 1, slots, sampler, clock) as engine, clock.running():
        assert engine.next_job() is not None
    return clock


AROUND = 5  # suggestions before each number of trials, of which the median is told


def suggestions(space: Space, numbers: list[int], slots: int, sampler: str) -> None:
    stages = for_trials(max(numbers), MAXIMUM, shortest=EVERY)
    engine = make_engine(space, folder=None, stages=stages, slots=slots, sampler="random")
    engine.space = replace(space, start_from=())
    took: dict[int, list[float]] = {number: [] for number in sorted(numbers)}
    suggest = engine.suggester.next

    def timed(fixed: Mapping[str, Any] | None = None) -> Suggestion | None:
        there, clock = len(engine.state.search_trials), Clock()
        for number, seconds in took.items():
            if number - AROUND <= there < number:
                engine.state.sampler = sampler
                with clock.running():
                    found = suggest(fixed)
                engine.state.sampler = "random"
                seconds.append(1000 * clock.own)
                return found
        return suggest(fixed)

    engine.suggester.next = timed  # type: ignore[method-assign]
    for _ in simulate(engine, score, cycle([0.7, 1.0, 1.3])):
        if not engine.state.missing:
            break
    medians = {number: statistics.median(seconds) for number, seconds in took.items()}
    first = next(iter(medians.values()))
    for number, median in medians.items():
        print(f"{number:6} trials: {median:.1f} ms a suggestion, {median / first:.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--space", default="default", help="a file that all versions know, say")
    parser.add_argument("--suggestions", action="store_true", help="time each suggestion alone")
    arguments = parser.parse_args()
    space = load_space(arguments.space)
    if arguments.suggestions:
        suggestions(space, arguments.trials, arguments.slots, arguments.sampler)
        return
    means = []
    for trials in arguments.trials:
        with tempfile.TemporaryDirectory(prefix="stockpot-scale-") as name:
            folder, clock = Path(name), Clock()
            how = (folder, space, trials, arguments.slots, arguments.sampler)
            with opened(*how, Clock()) as engine:
                run(engine, clock)
                assert engine.done, "the simulated search did not get through"
            means.append(1000 * clock.own / trials)
            print(
                f"{trials:6} trials: {means[-1]:.2f} ms each at work, "
                f"{1000 * clock.waited / trials:.2f} ms waiting",
                flush=True,
            )
            again = resumed(*how)
            size = (folder / "ledger.jsonl").stat().st_size / 1e6
            print(
                f"{'':6} resume from its ledger of {size:.1f} MB: {again.own:.2f} s at work, "
                f"{again.own + again.waited:.2f} s in all",
                flush=True,
            )
    if len(means) > 1:
        print(f"ratio  {means[-1] / means[0]:.2f}")


if __name__ == "__main__":
    main()
