"""How many examples of training a search needs: replays on recorded learning curves.

    python benchmarks/efficiency.py [--seeds 60] [--half measured] [--parts]

The question is how much training it takes to find what random search finds with 24 full trials. The
replays go through the search's own engine, sampler and rungs (`simulated.py`), two trials at once
as on a laptop. Only the scores are looked up, in curves that `record_curves.py` recorded.

Half of the curves, those of even number, are there to tune on; the figures are of the other half.
`--half tuning --start-points` prints the start points that were found on the former.

A sampler asks for points that nobody recorded. Taking the nearest recorded one instead would make
the space as coarse as the table, in which so many parameters leave no neighbours. So a model of the
curves stands between: for each point of the curve a Gaussian process on the settings. Its own
errors are not left out: each trial gets the errors, along the whole curve, that the model makes for
a recorded configuration of about the same score that it did not learn from. So an early score tells
about the late one as much as it really did. What random search finds in the table itself, drawing
from it with no model at all, is printed beside what it finds in the model.
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

from tuner.engine import study
from tuner.engine.stages import for_trials, in_full
from tuner.runs.state import TrialState
from tuner.space.space import Space, load_space

HERE = Path(__file__).parent
FULL = 24  # trials of the random search that is to be matched
SLOTS = 2
NEIGHBOURS = 30  # recorded configurations of about the same score that lend their errors
FOLDS = 10
EVERY = 1 / 3  # of the budget, from one evaluation of a trial to the next
KEYS = (
    "smart.weight",
    "encoder.dropout",
    "loss.weights",
    "batch.sizes",
    "optim.layer_decay",
    "optim.learning_rate",
)


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


HALVES = {"tuning": (0,), "measured": (1,), "both": (0, 1)}  # numbers modulo two


class Curves:
    """The recorded curves, and the model of them."""

    def __init__(self, path: Path, half: str) -> None:
        rows = pq.read_table(path).to_pylist()
        by_number: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            by_number.setdefault(row["number"], []).append(row)
        self.points = sorted({row["examples"] for row in rows})
        self.noise = statistics.mean(row["noise"] for row in rows)
        self.default = np.array([row["score"] for row in by_number.pop(-1)])
        whole = [
            curve
            for number, curve in by_number.items()
            if number % 2 in HALVES[half] and len(curve) == len(self.points)
        ]
        self.settings = [self.settings_of(curve[0]) for curve in whole]
        self.x = np.array([features(point) for point in self.settings])
        self.y = np.array([[row["score"] for row in curve] for curve in whole])
        self.maximum = self.points[-1]
        self._fit()

    @staticmethod
    def settings_of(row: dict[str, Any]) -> dict[str, Any]:
        lists = ("loss.weights", "batch.sizes")
        found = {key: row[key] for key in KEYS if key not in lists}
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

    def drawn_at_random(self, trials: int, seeds: int) -> float:
        """The best of so many recorded configurations, the median over seeds: no model in it."""
        marks = np.arange(EVERY, 1 + EVERY / 2, EVERY) * self.maximum
        best = np.array([np.interp(marks, self.points, curve).max() for curve in self.y])
        rng = np.random.default_rng(0)
        return float(np.median([rng.choice(best, trials).max() for _ in range(seeds)]))

    def mean(self, settings: dict[str, Any]) -> np.ndarray:
        point = np.array([features(settings)])
        return np.array([model.predict(point)[0] for model in self.models])

    def draw(self, settings: dict[str, Any], seed: str) -> tuple[np.ndarray, np.ndarray]:
        """(what it would score on the average, what this trial scores) at each point."""
        if not settings:  # the default, which lies outside the space
            return self.default, self.default
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


def start_points(curves: Curves, space: Space, count: int = 3) -> list[dict[str, Any]]:
    """Where to start by these curves: the best point of each of the batch sizes that suit best.

    What is best a Gaussian process and a quadratic say together, as both err, each in its own way.
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler, scale

    points = [space.draw(np.random.default_rng([9, number])) for number in range(12_000)]
    x, last = np.array([features(point) for point in points]), curves.y[:, -1]
    steps = (
        StandardScaler(),
        PolynomialFeatures(2),
        StandardScaler(),
        RidgeCV(np.logspace(-1, 3, 9)),
    )
    quadratic = make_pipeline(*steps).fit(curves.x, last)
    worth = scale(curves.models[-1].predict(x)) + scale(quadratic.predict(x))
    best: dict[str, dict[str, Any]] = {}
    for place in np.argsort(-worth):
        best.setdefault(str(points[place]["batch.sizes"]), points[place])
    return list(best.values())[:count]


@dataclass(frozen=True)
class Way:
    """A way to search."""

    name: str
    sampler: str = "tpe"
    grace: float | None = 1 / 3  # of the budget; None: no early stopping
    reduction: float = 2
    default: bool = True
    starts: tuple[int, ...] = (0, 1, 2, 3)  # which of the space's start points


@dataclass(frozen=True)
class Found:
    """The best finished trial after so many examples of training, all trials together."""

    examples: int
    score: float
    expected: float  # of the same configuration on the average


def search(way: Way, space: Space, curves: Curves, seed: int, trials: int) -> Iterator[Found]:
    """The best so far, told whenever it changes."""
    most = curves.maximum
    stages = in_full(trials, most)
    if way.grace:  # the curves are of runs that go on
        more = {"shortest": round(way.grace * most), "reduction": way.reduction}
        stages = for_trials(trials, most, promotion="continue", **more)
    chosen = replace(space, start_from=tuple(space.start_from[number] for number in way.starts))
    engine = make_engine(
        chosen,
        folder=None,
        stages=stages,
        slots=SLOTS,
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
    speeds = iter(lambda: rng.uniform(0.8, 1.2), None)
    for trial in simulate(engine, score, speeds, noise=curves.noise):
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
BARE = Way("TPE, early stopping", default=False, starts=())
WAYS = (
    Way("random search", "random", grace=None, default=False, starts=()),
    Way("TPE", grace=None, default=False, starts=()),
    BARE,
    OURS,
)
PARTS = (
    Way("random, early stopping", "random", default=False, starts=()),
    replace(OURS, name="ours: random sampler", sampler="random"),
    replace(OURS, name="ours: no start points", starts=()),
    replace(OURS, name="ours: MiniLM's start point only", starts=(0,)),
    replace(OURS, name="ours: the second only", starts=(1,)),
    replace(OURS, name="ours: the last three only", starts=(1, 2, 3)),
    replace(OURS, name="ours: default not first", default=False),
    replace(OURS, name="ours: no early stopping", grace=None),
    replace(BARE, name="TPE, early stopping: reduction 3", reduction=3),
    replace(BARE, name="TPE, early stopping: grace 1/6", grace=1 / 6),
    replace(
        BARE,
        name="TPE, early stopping: with 10 at random first",
        sampler=other_tpe("10", n_startup_trials=10),
    ),
    replace(
        BARE,
        name="TPE, early stopping: each parameter by itself",
        sampler=other_tpe("1", multivariate=False, group=False),
    ),
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
    print(f"random search with {FULL} full trials reaches {score:.3f} (median of {seeds} seeds),")
    print(f"a configuration that on the average scores {expected:.3f}; the best of {FULL} recorded")
    print(f"curves drawn at random is at {curves.drawn_at_random(FULL, 1000):.3f}\n")
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
    parser.add_argument("--start-points", action="store_true", help="where to start, by that half")
    parser.add_argument("--starts-of", choices=HALVES, help="start points found on that half")
    parser.add_argument("--only", default="", metavar="TEXT", help="ways with this in their name")
    parser.add_argument("--half", choices=HALVES, default="measured")
    parser.add_argument("--curves", type=Path, default=HERE / "curves.parquet")
    arguments = parser.parse_args()
    curves = Curves(arguments.curves, arguments.half)
    explained = ", ".join(f"{share:.2f}" for share in curves.explained)
    print(f"{len(curves.x)} recorded curves of {curves.maximum:,} examples; of their variance the")
    print(f"model explains, where it did not learn: {explained}")
    space = load_space(str(HERE / "curves_space.yaml"))
    if arguments.start_points:
        for point in start_points(curves, space):
            print(point)
        return
    if arguments.starts_of:
        found = start_points(Curves(arguments.curves, arguments.starts_of), space)
        space = replace(space, start_from=(space.start_from[0], *found))
    ways = (*WAYS, *PARTS) if arguments.parts else WAYS
    chosen = tuple(way for way in ways if arguments.only in way.name)
    unit = float(curves.maximum)
    heading = (
        f"{'examples needed, in full trials':34}{'median (quartiles)':>24}{'for the mean':>24}"
    )
    for way, by_score, by_mean in compare(chosen, space, curves, arguments.seeds):
        if heading:
            print(heading)
            heading = ""
        share = statistics.median(by_score) / unit / FULL
        print(
            f"{way.name:34}{shown(by_score, unit):>24}{shown(by_mean, unit):>24}"
            f"   {share:.2f} of the {FULL}",
            flush=True,
        )


if __name__ == "__main__":
    main()
