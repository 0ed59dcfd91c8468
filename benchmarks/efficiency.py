"""How many examples of training a search needs: replays on recorded learning curves.

    python benchmarks/efficiency.py [--seeds 60] [--parts]

Asked is how much training it takes to find what random search finds with 24 full trials. The
replays go through the search's own engine, sampler and rungs (`simulated.py`), two trials at once
as on a laptop. Only the scores are looked up, in curves that `record_curves.py` recorded.

A sampler asks for points that nobody recorded. Taking the nearest recorded one instead would make
the space as coarse as the table, in which six parameters leave no neighbours. So a model of the
curves stands between: for each point of the curve a Gaussian process on the settings. Its own
errors are not left out: each trial gets the errors, along the whole curve, that the model makes for
a recorded configuration of about the same score that it did not learn from. So an early score tells
about the late one as much as it really did.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import optuna
import pyarrow.parquet as pq
from simulated import make_engine, simulate

from tuner import study
from tuner.run_state import TrialState
from tuner.rungs import Rungs
from tuner.space import Space, load_space

HERE = Path(__file__).parent
FULL = 24  # trials of the random search that is to be matched
SLOTS = 2
NEIGHBOURS = 30  # recorded configurations of about the same score that lend their errors
FOLDS = 10
DEFAULT = {
    "smart.weight": 0.01,  # the least there is; the default has none
    "encoder.dropout": 0.1,
    "loss.weights": [1, 1, 1],
    "batch.sizes": [16, 16, 16],
    "optim.layer_decay": 1.0,
    "optim.learning_rate": 2e-4,
}


def features(settings: dict[str, Any]) -> list[float]:
    """A point as numbers on scales where a step means about as much everywhere."""
    first, second, third = settings["loss.weights"]
    return [
        np.log10(settings["smart.weight"]),
        settings["encoder.dropout"] / 0.1,
        np.log2(first / second),
        np.log2(third / second),
        *(np.log2(size) for size in settings["batch.sizes"]),
        settings["optim.layer_decay"] / 0.1,
        4 * np.log10(settings["optim.learning_rate"]),
    ]


class Curves:
    """The recorded curves, and the model of them."""

    def __init__(self, path: Path) -> None:
        rows = pq.read_table(path).to_pylist()
        by_number: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            by_number.setdefault(row["number"], []).append(row)
        self.points = sorted({row["examples"] for row in rows})
        whole = [curve for curve in by_number.values() if len(curve) == len(self.points)]
        self.settings = [self.settings_of(curve[0]) for curve in whole]
        self.x = np.array([features(point) for point in self.settings])
        self.y = np.array([[row["score"] for row in curve] for curve in whole])
        self.maximum = self.points[-1]
        self._fit()

    @staticmethod
    def settings_of(row: dict[str, Any]) -> dict[str, Any]:
        lists = ("loss.weights", "batch.sizes")
        found = {key: row[key] for key in DEFAULT if key not in lists}
        return found | {key: [float(part) for part in row[key].split("-")] for key in lists}

    def _fit(self) -> None:
        """A model for each point, and what each configuration's curve is when left out."""
        self.models = [fitted(self.x, y) for y in self.y.T]
        fold = np.random.default_rng(0).permutation(len(self.x)) % FOLDS
        guessed = np.zeros_like(self.y)
        for number in range(FOLDS):
            here = fold == number
            for column, (model, y) in enumerate(zip(self.models, self.y.T, strict=True)):
                again = fitted(self.x[~here], y[~here], model.kernel_)
                guessed[here, column] = again.predict(self.x[here])
        self.errors = self.y - guessed
        spread = ((self.y - self.y.mean(0)) ** 2).sum(0)
        self.explained = 1 - (self.errors**2).sum(0) / spread
        self.guessed = guessed

    def mean(self, settings: dict[str, Any]) -> np.ndarray:
        point = np.array([features({**DEFAULT, **settings})])
        return np.array([model.predict(point)[0] for model in self.models])

    def draw(self, settings: dict[str, Any], seed: str) -> tuple[np.ndarray, np.ndarray]:
        """(what it would score on the average, what this trial scores) at each point."""
        mean = self.mean(settings)
        alike = np.argsort(abs(self.guessed[:, -1] - mean[-1]))[:NEIGHBOURS]
        errors = self.errors[random.Random(seed).choice(list(alike))]
        return mean, (mean + errors).clip(0, 1)


def fitted(x: np.ndarray, y: np.ndarray, kernel: Any = None) -> Any:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    optimizer = None if kernel is not None else "fmin_l_bfgs_b"
    if kernel is None:
        scales = RBF(np.full(x.shape[1], 3.0), (0.3, 100))
        kernel = ConstantKernel(1.0) * scales + WhiteKernel(0.1, (1e-4, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a scale at its bound: that setting does not matter
        return GaussianProcessRegressor(
            kernel, optimizer=optimizer, normalize_y=True, random_state=0
        ).fit(x, y)


@dataclass(frozen=True)
class Way:
    """A way to search."""

    name: str
    sampler: str = "tpe"
    grace: float | None = 1 / 3  # of the budget; None: no early stopping
    reduction: float = 2
    default: bool = True
    starts: bool = True


@dataclass(frozen=True)
class Found:
    """The best finished trial after so many examples of training, all trials together."""

    examples: int
    score: float
    expected: float  # of the same configuration on the average


def search(way: Way, space: Space, curves: Curves, seed: int, trials: int) -> Iterator[Found]:
    """The best so far, told whenever it changes."""
    most = curves.maximum
    rungs = Rungs(round(way.grace * most), most, way.reduction) if way.grace else None
    chosen = space if way.starts else replace(space, start_from=())
    engine = make_engine(
        chosen,
        folder=None,
        trials=trials,
        slots=SLOTS,
        every=curves.points[0],
        maximum=most,
        rungs=rungs,
        sampler=way.sampler,
        seed=seed,
        default=way.default,
    )

    @cache
    def drawn(name: str) -> tuple[np.ndarray, np.ndarray]:
        return curves.draw(engine.state.trials[name].settings, f"{seed} {name}")

    def score(trial: TrialState, examples: int) -> float:
        return float(np.interp(examples, curves.points, drawn(trial.id)[1]))

    rng = random.Random(seed)
    best = float("-inf")
    for trial in simulate(engine, score, iter(lambda: rng.uniform(0.8, 1.2), None)):
        if trial.status == "finished" and (value := trial.best()["score"]) > best:
            best = value
            spent = sum(each.examples for each in engine.state.trials.values())
            yield Found(spent, best, float(drawn(trial.id)[0][-1]))


def needed(found: Iterator[Found], score: float, expected: float) -> tuple[float, float]:
    """Examples until the best scores so much, and until it would on the average."""
    by_score = by_mean = float("inf")
    for each in found:
        by_score = min(by_score, each.examples if each.score >= score else float("inf"))
        by_mean = min(by_mean, each.examples if each.expected >= expected else float("inf"))
        if by_score < float("inf") and by_mean < float("inf"):
            break
    return by_score, by_mean


def other_tpe(name: str, shown: int = 300, **changes: Any) -> str:
    """A TPE with other settings than the shipped one, under a name of its own."""
    usual = {"n_startup_trials": study.STARTUP, "multivariate": True, "group": True}
    study.SAMPLERS[name] = lambda seed: optuna.samplers.TPESampler(
        **{**usual, "constant_liar": True, **changes}, seed=seed
    )
    study.SHOWN[name] = shown
    return name


OURS = Way("ours as shipped")
BARE = Way("TPE, early stopping", default=False, starts=False)
WAYS = (
    Way("random search", "random", grace=None, default=False, starts=False),
    Way("TPE", grace=None, default=False, starts=False),
    BARE,
    OURS,
)
PARTS = (
    Way("random, early stopping", "random", default=False, starts=False),
    replace(OURS, name="ours: random sampler", sampler="random"),
    replace(OURS, name="  no start points", starts=False),
    replace(OURS, name="  default not first", default=False),
    replace(OURS, name="  no early stopping", grace=None),
    replace(OURS, name="  grace 1/8", grace=1 / 8),
    replace(OURS, name="  reduction 3", reduction=3),
    replace(BARE, name="TPE, early stopping: grace 1/8", grace=1 / 8),
    replace(BARE, name="  reduction 3", reduction=3),
    replace(BARE, name="  with 10 at random first", sampler=other_tpe("10", n_startup_trials=10)),
    replace(
        BARE,
        name="  each parameter by itself",
        sampler=other_tpe("1", multivariate=False, group=False),
    ),
    replace(BARE, name="  shown 30 closed at most", sampler=other_tpe("30", shown=30)),
)
MOST = 96  # trials of one replay; what is not reached by then counts as never


def compare(
    ways: tuple[Way, ...], space: Space, curves: Curves, seeds: int
) -> Iterator[tuple[Way, list[float], list[float]]]:
    """Examples that each way needs with each seed: for the score, and for what it means."""
    goals = []
    for seed in range(seeds):
        *_, last = search(WAYS[0], space, curves, seed, FULL)
        goals.append(last)
    score = statistics.median(goal.score for goal in goals)
    expected = statistics.median(goal.expected for goal in goals)
    print(f"random search with {FULL} full trials reaches {score:.3f} (median of {seeds} seeds)")
    print(f"a configuration that on the average scores {expected:.3f}\n")
    for way in ways:
        runs = [search(way, space, curves, 1000 + seed, MOST) for seed in range(seeds)]
        by_score, by_mean = zip(*(needed(run, score, expected) for run in runs), strict=True)
        yield way, list(by_score), list(by_mean)


def shown(values: list[float], unit: float) -> str:
    low, middle, high = np.percentile(values, [25, 50, 75], method="lower") / unit
    return f"{middle:6.1f} ({low:.1f} to {high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--parts", action="store_true", help="what each part contributes, too")
    parser.add_argument("--curves", type=Path, default=HERE / "curves.parquet")
    arguments = parser.parse_args()
    curves = Curves(arguments.curves)
    explained = ", ".join(f"{share:.2f}" for share in curves.explained)
    print(f"{len(curves.x)} recorded curves of {curves.maximum:,} examples; of their variance the")
    print(f"model explains, where it did not learn: {explained}")
    ways = (*WAYS, *PARTS) if arguments.parts else WAYS
    title = "examples needed, in full trials"
    first: float | None = None
    for way, by_score, by_mean in compare(ways, load_space("default"), curves, arguments.seeds):
        middle = statistics.median(by_score)
        if first is None:
            first = middle
            print(f"{title:32}{'median (quartiles)':>24}{'for the mean':>24}")
        unit = float(curves.maximum)
        print(
            f"{way.name:32}{shown(by_score, unit):>24}{shown(by_mean, unit):>24}"
            f"   {middle / first:.2f} of random",
            flush=True,
        )


if __name__ == "__main__":
    main()
