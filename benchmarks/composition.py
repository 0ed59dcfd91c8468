"""Does the sampler put the best parts together, where no trial has them all?

    python benchmarks/composition.py [--seeds 10 11 12 13 14] [--trials 12]
    python benchmarks/composition.py --drawn --seeds 300 301 302 303

A made-up problem over the default space with CS224N's tasks, shaped like what was measured there:
for STS a cosine is as good early on and then stands still, while reading both sentences together
climbs; paraphrases want the cosine, SST a large weight, STS a small one; batches that are good for
one task are not for another. There are no start points. All that decides is the search's own:
engine, rungs, sampler. The sampler sees every task, or the overall score as its only task; random
search is there to compare with.

Parts are the pair encodings, loss weights and batch sizes. What a configuration lacks is what it
loses in the true overall score in full to the same with the best parts. A search has put them
together if one of its configurations lacks `NEAR` at most; the default lacks .043.

`--drawn`: every seed has a problem of its own (`drawn_problems.py`), with effects of parameters
together. What is lacking is then what the best point of all has more.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from math import log2

from drawn_problems import best_point, drawn_tasks
from simulated import make_engine, simulate

from tuner.engine.engine import Engine
from tuner.engine.points import Points
from tuner.engine.stages import for_trials
from tuner.engine.study import TASK_GP
from tuner.runs.state import OVERALL, TrialState
from tuner.space.space import Space, load_space

FULL = 3600
SLOTS = 2
NEAR = 0.01
# Two trials are scored on the same dev rows, so their difference has half the error of one score
# (`tuner.engine.ladder.MARGIN`); the luck of a seed comes on top.
UNSHARED = 0.5 / 2**0.5
SEED_LUCK = 0.01


@dataclass(frozen=True)
class Made:
    """One task: its error in full with the best parts, and what others add to it."""

    error: float
    slope: Mapping[str, float]  # errors fall with examples to this power, by pair encoding
    encoding: Mapping[str, float]
    batch: Mapping[int, float]
    weight: Mapping[float, float]
    noise: float  # standard error of a score on 400 dev rows

    def best(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            f"batch.sizes.{name}": min(self.batch, key=lambda each: self.batch[each]),
            f"loss.weights.{name}": min(self.weight, key=lambda each: self.weight[each]),
        }
        if ANY not in self.encoding:
            encoding = min(self.encoding, key=lambda each: self.encoding[each])
            found[f"pair.encoding.{name}"] = encoding
        return found


ANY = "any"  # of a task on single sentences
TASKS = {
    "sst": Made(
        error=0.495,
        slope={ANY: 0.06},
        encoding={ANY: 0.0},
        batch={4: 0.006, 8: 0.0, 16: 0.04},
        weight={0.5: 0.05, 1: 0.02, 2: 0.0},
        noise=0.025,
    ),
    "para": Made(
        error=0.165,
        slope={"cosine": 0.11, "bi_difference": 0.16, "cross": 0.2},
        encoding={"cosine": 0.0, "bi_difference": 0.03, "cross": 0.02},
        batch={4: 0.05, 8: 0.012, 16: 0.0},
        weight={0.5: 0.04, 1: 0.0, 2: 0.01},
        noise=0.02,
    ),
    "sts": Made(
        error=0.134,
        slope={"cosine": 0.01, "bi_difference": 0.15, "cross": 0.3},
        encoding={"cosine": 0.14, "bi_difference": 0.06, "cross": 0.0},
        batch={4: 0.0, 8: 0.012, 16: 0.05},
        weight={0.05: 0.01, 0.2: 0.0, 0.5: 0.015, 1: 0.05},
        noise=0.012,
    ),
}
BEST = {key: value for name, made in TASKS.items() for key, value in made.best(name).items()}
DEFAULT: dict[str, Any] = {
    **{f"pair.encoding.{name}": "cross" for name in ("para", "sts")},
    **{f"batch.sizes.{name}": 16 for name in TASKS},
    **{f"loss.weights.{name}": 1 for name in TASKS},
    **{"optim.learning_rate": 2e-4, "encoder.dropout": 0.1, "loss.smoothing": 0},
}


Scores = Callable[[Mapping[str, Any], float], dict[str, float]]  # of settings, at a share


def true_scores(settings: Mapping[str, Any], share: float = 1.0) -> dict[str, float]:
    """Every task's metric without noise; what is not given is as in the default configuration."""
    given = {**DEFAULT, **settings}
    shared = 0.008 * log2(given["optim.learning_rate"] / 2e-4) ** 2
    shared += 0.15 * given["encoder.dropout"] ** 2 + 0.004 * (given["loss.smoothing"] == 0)
    found = {}
    for name, made in TASKS.items():
        encoding = given.get(f"pair.encoding.{name}", ANY)
        error = made.error + shared + made.encoding[encoding]
        error += made.batch[given[f"batch.sizes.{name}"]]
        error += made.weight[given[f"loss.weights.{name}"]]
        found[name] = 1 - min(0.95, error * share ** -made.slope[encoding])
    return found


SHARES = {"sst": 1 / 3, "para": 1 / 3, "sts": 1 / 6}  # of the overall score: Pearson is halved


def overall(scores: Mapping[str, float]) -> float:
    return sum(share * scores[name] for name, share in SHARES.items()) + 1 / 6


def lacks(settings: Mapping[str, Any]) -> float:
    return overall(true_scores({**settings, **BEST})) - overall(true_scores(settings))


class Drawn:
    """The problem of a seed."""

    def __init__(self, seed: int) -> None:
        self.tasks = drawn_tasks(seed)
        self.most = self.worth(best_point(self.worth))

    def true_scores(self, settings: Mapping[str, Any], share: float = 1.0) -> dict[str, float]:
        given = {**DEFAULT, **settings}
        return {task.name: task.metric(given, share) for task in self.tasks}

    def worth(self, settings: Mapping[str, Any]) -> float:
        return overall(self.true_scores(settings))

    def lacks(self, settings: Mapping[str, Any]) -> float:
        return self.most - self.worth(settings)


def evaluation(
    seed: int, trial: TrialState, examples: int, truth: Scores = true_scores
) -> dict[str, Any]:
    """What a trial reports: each task's score and the overall one, with intervals."""
    luck = random.Random(f"{seed} {trial.id} {examples}")
    spread = {name: made.noise for name, made in TASKS.items()}
    seen = {
        name: value + luck.gauss(0, ((UNSHARED * spread[name]) ** 2 + SEED_LUCK**2) ** 0.5)
        for name, value in truth(trial.settings, examples / FULL).items()
    }
    seen[OVERALL] = overall(seen)
    spread[OVERALL] = sum((share * spread[name]) ** 2 for name, share in SHARES.items()) ** 0.5
    tasks = {
        name: {
            "value": value,
            "interval": [value - 1.96 * spread[name], value + 1.96 * spread[name]],
        }
        for name, value in seen.items()
    }
    return {"score": seen[OVERALL], "interval": tasks[OVERALL]["interval"], "tasks": tasks}


def overall_only(space: Space) -> Points:
    """What the sampler has of a space if the overall score is the only task."""
    points = Points(space)
    points.default()  # by the tasks that there are
    points.columns = [replace(column, task=None) for column in points.columns]
    one = replace(next(iter(space.task_set)), name=OVERALL, metric="accuracy")
    points.space = replace(space, task_set=replace(space.task_set, tasks=(one,)))
    return points


def search(space: Space, way: str, seed: int, trials: int, truth: Scores = true_scores) -> Engine:
    stages, sampler = for_trials(trials, FULL), "random" if way == "random" else TASK_GP
    engine = make_engine(space, folder=None, stages=stages, slots=SLOTS, sampler=sampler, seed=seed)
    if way == "overall only":
        engine.suggester.points = overall_only(space)
        engine.promotion = engine._promotion()
    curve = partial(evaluation, seed, truth=truth)
    for _ in simulate(engine, curve, cycle([1.0, 1.1])):
        pass
    return engine


def made_up_space() -> Space:
    return replace(load_space("default", "cs224n"), start_from=())


def compare(seeds: Sequence[int], trials: int, drawn: bool) -> None:
    """What the best configuration of each search lacks, by way and seed."""
    space = made_up_space()
    problems = {seed: Drawn(seed) for seed in seeds} if drawn else {}
    for way in ("every task", "overall only", "random"):
        found = []
        for seed in seeds:
            made = problems.get(seed)
            engine = search(space, way, seed, trials, made.true_scores if made else true_scores)
            lack = made.lacks if made else lacks
            found.append(min(lack(trial.settings) for trial in engine.state.search_trials))
        put = sum(each <= NEAR for each in found)
        told = " ".join(f"{each:.4f}" for each in found)
        mean, error = statistics.fmean(found), deviation(found) / len(found) ** 0.5
        told += f"  put together in {put} of {len(seeds)}, mean {mean:.4f} ({error:.4f})"
        print(f"{way:12}  {told}", flush=True)


def deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12, 13, 14])
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--drawn", action="store_true", help="a problem of its own for each seed")
    parser.add_argument("--quick", action="store_true", help="one seed of six trials")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seeds, arguments.trials = [10], 6
    compare(arguments.seeds, arguments.trials, arguments.drawn)


if __name__ == "__main__":
    main()
