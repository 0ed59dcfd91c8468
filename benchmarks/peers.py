"""Our search and its peers side by side: what each would hand out for the same training.

    python benchmarks/peers.py [--seeds 20] [--ways TEXT ...] [--problem recorded|made-up]

Told is the true score in full, without noise, of the configuration that a way to search would hand
out after 2, 4, 8, 16 and 32 full trials' worth of examples: the one that was trained longest, of
these the one with the best score so far. Each way is set up as its documentation has it, runs one
trial at a time, with and without the space's start points. Without them ours begins without the
default, too: nobody knows anything.

Peers are told of the largest budget only, and asked what they would hand out on the way. Our search
plans its ladder for a budget, so it runs once for each, with its own engine, rungs and sampler.
Whoever stops or pauses runs sees scores on the way of a full run; ours, and DEHB, train a run of
its own for each length (`record_curves.py` has both).

Truth is a model of the recorded curves: for each task and each point a Gaussian process on the
settings, fitted to the mean over seeds. A trial scores what it says, and the luck of a recorded
configuration of about the same score: how far, along the whole curve, its seed was off the mean. As
the curves were recorded for this, nothing was tuned on them; so let it stay.

What is not installed is left out. Peers that are no part of the product (`smac`, `dehb`,
`syne-tune`) may be in an environment of their own, which sees the product's packages too. Rows are
kept in `--out`, so the ways may run one after the other, and what is there is not done again.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import random
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

os.environ.setdefault("OMP_NUM_THREADS", "1")

import composition
import numpy as np
import optuna
from record_curves import POINTS, RUNGS, curves_space
from simulated import make_engine, simulate

from model.evaluation.scores import METRICS
from tuner.engine.points import Points
from tuner.engine.stages import Stages, for_trials
from tuner.engine.study import TASK_GP
from tuner.space.space import Space

HERE = Path(__file__).parent
MARKS = (2, 4, 8, 16, 32)  # full trials' worth of examples
REDUCTION = 3
NEIGHBOURS = 30  # recorded configurations of about the same score that lend their luck

Settings = dict[str, Any]


class Problem(Protocol):
    """Something to search: what trials score, and what they would score without noise."""

    space: Space
    full: int

    def truth(self, settings: Settings) -> float: ...

    def evaluate(self, settings: Settings, luck: str, examples: int, length: int) -> dict[str, Any]:
        """Of a run of so many examples in all (`length`), at these."""


# --- problems -----------------------------------------------------------------------------------


class MadeUp:
    """That of composition.py, with start points that have one of its best parts each."""

    full = composition.FULL

    def __init__(self) -> None:
        default = composition.DEFAULT
        keys = [(key, best) for key, best in composition.BEST.items() if best != default[key]]
        known = {**default, "smart.weight": 0.1, "average.share": 0}
        starts = tuple(known | dict([pair]) for pair in keys[-2:])
        self.space = replace(composition.made_up_space(), start_from=starts)

    def truth(self, settings: Settings) -> float:
        return composition.overall(composition.true_scores(settings))

    def evaluate(self, settings: Settings, luck: str, examples: int, length: int) -> dict[str, Any]:
        named: Any = SimpleNamespace(id=luck, settings=settings)
        return composition.evaluation(0, named, examples)


class Recorded:
    """The recorded curves, and the model of them."""

    def __init__(self, path: Path) -> None:
        import pandas

        if not path.exists():
            raise SystemExit(f"{path} is not there; record_curves.py makes it")
        table = pandas.read_parquet(path)
        self.space = curves_space()
        self.points = Points(self.space)
        self.names = self.space.task_set.names
        self.full = int(table["length"].max())
        lengths = [*sorted(table["length"].unique())]
        assert len(lengths) == len(RUNGS) + 1
        whole: dict[int, list[np.ndarray]] = {}  # by number, for each seed [tasks, places]
        widths = []
        for (number, _), rows in table.groupby(["number", "seed"]):
            parts = [rows[rows["length"] == length] for length in (self.full, *lengths[:-1])]
            ordered = [part.sort_values("examples") for part in parts]
            values, spread = (
                [
                    np.concatenate([f(part[part["task"] == task]) for part in ordered])
                    for task in self.names
                ]
                for f in (lambda p: p["value"].to_numpy(), lambda p: (p["high"] - p["low"]) / 2)
            )
            if all(len(each) == len(POINTS) + len(RUNGS) for each in values):
                whole.setdefault(int(number), []).append(np.stack(values))
                widths.append(np.stack(spread))
        seeds = max(map(len, whole.values()))
        numbers = [number for number, each in whole.items() if len(each) == seeds]
        if seeds < 2:
            raise SystemExit(f"{path} has one seed; the luck of a run shows in two")
        first = table.drop_duplicates("number").set_index("number")["settings"]
        x = [self._encode(json.loads(first[number])) for number in numbers]
        y = np.stack([np.stack(whole[number]) for number in numbers])  # [N, seeds, tasks, places]
        self.half_widths = np.stack(widths).mean(0)
        self.lucks = (y - y.mean(1, keepdims=True)) * math.sqrt(seeds / (seeds - 1))
        self.models = [
            [fitted(np.stack(x), each) for each in of.T] for of in y.mean(1).swapaxes(0, 1)
        ]
        self.overalls = np.array([self._overall(each[:, len(POINTS) - 1]) for each in y.mean(1)])
        self._known: dict[str, np.ndarray] = {}

    def _encode(self, settings: Settings) -> np.ndarray:
        return self.points.encode(settings or self.points.default())

    def _overall(self, scores: Sequence[float]) -> float:
        tasks = self.space.task_set
        units = [
            task.weight * float(METRICS[task.metric].unit(np.array(score)))
            for task, score in zip(tasks, scores, strict=True)
        ]
        return sum(units) / sum(task.weight for task in tasks)

    def mean(self, settings: Settings) -> np.ndarray:
        """[tasks, places]: what it scores on the average, wherever it was recorded."""
        key = json.dumps(settings, sort_keys=True)
        if key not in self._known:
            at = self._encode(settings)[None]
            self._known[key] = np.array([[m.predict(at)[0] for m in of] for of in self.models])
        return self._known[key]

    def truth(self, settings: Settings) -> float:
        return self._overall(self.mean(settings)[:, len(POINTS) - 1])

    def evaluate(self, settings: Settings, luck: str, examples: int, length: int) -> dict[str, Any]:
        drawn = random.Random(luck)
        alike = np.argsort(abs(self.overalls - self.truth(settings)))[:NEIGHBOURS]
        own = self.lucks[drawn.choice(list(alike))]
        scores = self.mean(settings) + own[drawn.randrange(len(own))]
        values = [self._along(each, examples, length) for each in scores]
        widths = [self._along(each, examples, length) for each in self.half_widths]
        tasks = {
            name: {"value": value, "interval": [value - width, value + width]}
            for name, value, width in zip(self.names, values, widths, strict=True)
        }
        score, weights = self._overall(values), [task.weight for task in self.space.task_set]
        parts = [(w * each / sum(weights)) ** 2 for w, each in zip(weights, widths, strict=True)]
        spread = math.sqrt(sum(parts))
        return {"score": score, "interval": [score - spread, score + spread], "tasks": tasks}

    def _along(self, scores: np.ndarray, examples: int, length: int) -> float:
        """At these examples of a run that is `length` long: what a run of that length reaches, less
        what a full run has still to gain at this share of it."""
        curve, short = scores[: len(POINTS)], scores[len(POINTS) :]
        end = np.interp(math.log(length / self.full), np.log([*RUNGS, 1]), [*short, curve[-1]])
        now = np.interp(math.log(examples / length), np.log(POINTS), curve)
        return float(np.clip(end + now - curve[-1], -1, 1))


def fitted(x: np.ndarray, y: np.ndarray) -> Any:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    scales = RBF(np.full(x.shape[1], 2.0), (0.3, 100))
    kernel = ConstantKernel(1.0) * scales + WhiteKernel(0.1, (1e-4, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a scale at its bound: that setting does not matter
        return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(x, y)


# --- what training costs ------------------------------------------------------------------------


class Spent(Exception):
    """No more examples."""


@dataclass
class Purse:
    """The examples that a way may train on, and what it would hand out after how many."""

    problem: Problem
    seed: int
    total: int
    spent: int = 0
    runs: int = 0
    best: tuple[int, float] = (0, -math.inf)
    handed: float = math.nan
    found: list[tuple[int, float]] = field(default_factory=list)

    def begin(self, settings: Settings, length: int | None = None) -> Run:
        self.runs += 1
        return Run(self, settings, f"{self.seed} {self.runs}", length or self.problem.full)

    def at(self, examples: int) -> float:
        return next((truth for spent, truth in reversed(self.found) if spent <= examples), math.nan)


@dataclass
class Run:
    purse: Purse
    settings: Settings
    luck: str
    length: int
    trained: int = 0

    def to(self, examples: int) -> float:
        """Its score there. Raises Spent where the purse has not enough."""
        purse = self.purse
        if purse.spent + examples - self.trained > purse.total:
            raise Spent
        purse.spent += examples - self.trained
        self.trained = examples
        scored = purse.problem.evaluate(self.settings, self.luck, examples, self.length)
        score = float(scored["score"])
        if (examples, score) > purse.best:
            purse.best = examples, score
            purse.handed = purse.problem.truth(self.settings)
        purse.found.append((purse.spent, purse.handed))
        return score


# --- ways to search -----------------------------------------------------------------------------

Search = Callable[[Problem, Purse, list[dict[str, Any]]], None]  # with params to begin with


def on_the_way(full: int) -> list[int]:
    return [round(full * share) for share in POINTS]


def of_optuna(
    sampler: Callable[[int], optuna.samplers.BaseSampler],
    pruner: Callable[[int], optuna.pruners.BasePruner] | None = None,
) -> Search:
    def search(problem: Problem, purse: Purse, known: list[dict[str, Any]]) -> None:
        lengths = on_the_way(problem.full) if pruner else [problem.full]
        chosen = pruner(problem.full) if pruner else optuna.pruners.NopPruner()
        study = optuna.create_study(
            direction="maximize", sampler=sampler(purse.seed), pruner=chosen
        )
        for params in known:
            study.enqueue_trial(params)
        while True:
            trial = study.ask()
            run = purse.begin(problem.space.suggest(trial))
            score = -math.inf
            for examples in lengths:
                score = run.to(examples)
                trial.report(score, examples)
                if pruner and trial.should_prune():
                    break
            pruned = run.trained < problem.full
            study.tell(
                trial, None if pruned else score, optuna.trial.TrialState.PRUNED if pruned else None
            )

    return search


def asha_of_ray(problem: Problem, purse: Purse, known: list[dict[str, Any]]) -> None:
    """`ASHAScheduler` over `OptunaSearch`'s sampler, asked as Ray Tune asks it."""
    from ray.tune.schedulers import ASHAScheduler, TrialScheduler

    names = {"time_attr": "examples", "metric": "score", "mode": "max"}
    grace = on_the_way(problem.full)[0]
    scheduler = ASHAScheduler(
        **names, max_t=problem.full, grace_period=grace, reduction_factor=REDUCTION
    )
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=purse.seed)
    )
    for params in known:
        study.enqueue_trial(params)
    nobody: Any = None
    while True:
        asked = study.ask()
        run = purse.begin(problem.space.suggest(asked))
        trial: Any = SimpleNamespace(trial_id=str(asked.number))
        scheduler.on_trial_add(nobody, trial)
        result: dict[str, Any] = {}
        for examples in on_the_way(problem.full):
            result = {"examples": examples, "score": run.to(examples)}
            if examples == problem.full:
                break
            if scheduler.on_trial_result(nobody, trial, result) == TrialScheduler.STOP:
                break
        scheduler.on_trial_complete(nobody, trial, result)
        study.tell(asked, result["score"])


def config_space(space: Space, seed: int) -> Any:
    """The space as ConfigSpace has it; the ends of a range with steps are as they are."""
    import ConfigSpace
    from optuna.distributions import CategoricalDistribution, IntDistribution

    found = ConfigSpace.ConfigurationSpace(seed=seed)
    everything = space.distributions({parameter.key: 0 for parameter in space.parameters})
    for key, domain in everything.items():
        if isinstance(domain, CategoricalDistribution):
            found.add(ConfigSpace.Categorical(key, list(domain.choices)))
            continue
        made = ConfigSpace.Integer if isinstance(domain, IntDistribution) else ConfigSpace.Float
        found.add(made(key, (domain.low, domain.high), log=domain.log))  # type: ignore[attr-defined]
    return found


def settings_of(space: Space, config: Mapping[str, Any]) -> Settings:
    """Of a ConfigSpace's configuration; of a range with steps the nearest step."""
    params = {
        key: value.item() if hasattr(value, "item") else value for key, value in config.items()
    }
    for key, domain in space.distributions(params).items():
        if (step := getattr(domain, "step", None)) is not None:
            low = domain.low  # type: ignore[attr-defined]
            params[key] = type(low)(low + round((params[key] - low) / step) * step)
    return space.settings(params)


def of_smac(multi_fidelity: bool) -> Search:
    """Its ask and tell: every trial in full, or Hyperband with a run of its own for each length."""

    def search(problem: Problem, purse: Purse, known: list[dict[str, Any]]) -> None:
        import tempfile

        from smac import HyperparameterOptimizationFacade, MultiFidelityFacade, Scenario
        from smac.runhistory.dataclasses import TrialValue

        budgets = {"min_budget": RUNGS[0] * problem.full, "max_budget": problem.full}
        if multi_fidelity:

            def trained(config: Any, seed: int = 0, budget: float = 0) -> float:
                raise NotImplementedError  # it is asked and told

        else:

            def trained(config: Any, seed: int = 0) -> float:  # type: ignore[misc]
                raise NotImplementedError

        facade = MultiFidelityFacade if multi_fidelity else HyperparameterOptimizationFacade
        with tempfile.TemporaryDirectory() as folder:
            scenario = Scenario(
                config_space(problem.space, purse.seed),
                deterministic=True,
                n_trials=100_000,
                seed=purse.seed,
                output_directory=Path(folder),
                **budgets if multi_fidelity else {},
            )
            smac = facade(scenario, trained, logging_level=logging.ERROR)
            while True:
                info = smac.ask()
                length = round(info.budget or problem.full)
                run = purse.begin(settings_of(problem.space, info.config), length)
                smac.tell(info, TrialValue(cost=1 - run.to(length)))

    return search


def dehb(problem: Problem, purse: Purse, known: list[dict[str, Any]]) -> None:
    """Its ask and tell, with a run of its own for each length."""
    import tempfile

    from dehb import DEHB

    with tempfile.TemporaryDirectory() as folder:
        space = config_space(problem.space, purse.seed)
        search = DEHB(
            cs=space,
            dimensions=len(space),
            min_fidelity=RUNGS[0] * problem.full,
            max_fidelity=problem.full,
            eta=REDUCTION,
            n_workers=1,
            seed=purse.seed,
            output_path=folder,
            log_level="ERROR",
        )
        while True:
            job = search.ask()
            length = round(job["fidelity"])
            run = purse.begin(settings_of(problem.space, dict(job["config"])), length)
            search.tell(job, {"fitness": 1 - run.to(length), "cost": length})


def of_syne_tune(name: str) -> Search:
    """A scheduler of its baselines that stops runs, asked as its tuner asks it."""

    def search(problem: Problem, purse: Purse, known: list[dict[str, Any]]) -> None:
        from syne_tune.backend.trial_status import Trial
        from syne_tune.config_space import choice, loguniform, randint, uniform
        from syne_tune.optimizer import baselines

        def domain(of: Any) -> Any:
            if hasattr(of, "choices"):
                return choice(list(of.choices))
            if isinstance(of.low, int):
                return randint(of.low, of.high)
            return (loguniform if of.log else uniform)(of.low, of.high)

        keys = dict.fromkeys((parameter.key for parameter in problem.space.parameters), 0)
        lengths = on_the_way(problem.full)
        scheduler = getattr(baselines, name)(
            {key: domain(of) for key, of in problem.space.distributions(keys).items()},
            metric="score",
            time_attr="examples",
            max_t=problem.full,
            grace_period=lengths[0],
            reduction_factor=REDUCTION,
            do_minimize=False,
            points_to_evaluate=known or None,
            random_seed=purse.seed,
        )
        while True:
            config = scheduler.suggest().config
            trial = Trial(purse.runs, config, datetime.now())
            run = purse.begin(settings_of(problem.space, config))
            scheduler.on_trial_add(trial)
            told: dict[str, Any] = {}
            for examples in lengths:
                told = {"score": run.to(examples), "examples": examples}
                if examples == problem.full:
                    scheduler.on_trial_complete(trial, told)
                elif scheduler.on_trial_result(trial, told) == "STOP":
                    break

    return search


def ladder(budget: int, full: int) -> Stages:
    """Our plan with as many configurations as the budget has room for."""
    plans = [for_trials(trials, full) for trials in range(1, 4 * budget // full + 1)]
    return max((s for s in plans if s.cost() <= budget), key=lambda stages: stages.trials)


def ours(problem: Problem, seed: int, budget: int, starts: bool, sampler: str) -> float:
    """The truth of what our search has found at its end."""
    space = problem.space if starts else replace(problem.space, start_from=())
    engine = make_engine(
        space,
        folder=None,
        stages=ladder(budget, problem.full),
        slots=1,
        sampler=sampler,
        seed=seed,
        default=starts,
    )

    def curve(trial: Any, examples: int) -> dict[str, Any]:
        return problem.evaluate(trial.settings, f"{seed} {trial.id}", examples, trial.length)

    for _ in simulate(engine, curve, cycle([1.0])):
        pass
    best = engine.state.best_trial()
    assert best is not None
    return problem.truth(dict(best.settings))


def hyperband(full: int) -> optuna.pruners.BasePruner:
    least = on_the_way(full)[0]
    return optuna.pruners.HyperbandPruner(
        min_resource=least, max_resource=full, reduction_factor=REDUCTION
    )


samplers = optuna.samplers
OURS = {"ours": TASK_GP, "ours, random sampler": "random"}
PEERS: dict[str, Search] = {
    "random": of_optuna(lambda seed: samplers.RandomSampler(seed)),
    "quasi-random": of_optuna(lambda seed: samplers.QMCSampler(seed=seed, scramble=True)),
    "TPE": of_optuna(lambda seed: samplers.TPESampler(seed=seed)),
    "TPE, median pruner": of_optuna(
        lambda seed: samplers.TPESampler(seed=seed), lambda full: optuna.pruners.MedianPruner()
    ),
    "TPE, Hyperband pruner": of_optuna(lambda seed: samplers.TPESampler(seed=seed), hyperband),
    "TPE, ASHA of Ray": asha_of_ray,
    "Optuna's GP": of_optuna(lambda seed: samplers.GPSampler(seed=seed)),
}
ELSEWHERE: dict[str, tuple[str, Search]] = {  # by the package that it takes
    "SMAC3": ("smac", of_smac(False)),
    "SMAC3, multi-fidelity": ("smac", of_smac(True)),
    "DEHB": ("dehb", dehb),
    "Syne Tune's BOHB": ("syne_tune", of_syne_tune("BOHB")),
    "Syne Tune's ASHA": ("syne_tune", of_syne_tune("ASHA")),
}
# Take no start points, or only after an initial design of their own.
WITHOUT = ("DEHB", "SMAC3", "SMAC3, multi-fidelity")


def every_way() -> list[str]:
    return [
        *OURS,
        *PEERS,
        *(name for name, (package, _) in ELSEWHERE.items() if find_spec(package)),
    ]


def replay(
    problem: Problem, way: str, seed: int, starts: bool, marks: Sequence[int]
) -> dict[int, float]:
    """The truth of what it hands out, at each mark."""
    if way in OURS:
        return {n: ours(problem, seed, n * problem.full, starts, OURS[way]) for n in marks}
    search = PEERS.get(way) or ELSEWHERE[way][1]
    purse = Purse(problem, seed, max(marks) * problem.full)
    rng = np.random.default_rng(seed)  # for what a start point leaves open
    known = [problem.space.draw(rng, point) for point in problem.space.start_from if starts]
    try:
        search(problem, purse, [problem.space.params(point) for point in known])
    except Spent:
        pass
    return {n: purse.at(n * problem.full) for n in marks}


# --- the table ----------------------------------------------------------------------------------

Row = dict[str, Any]


def rows_of(
    problem: Problem, ways: Sequence[str], seeds: int, marks: Sequence[int], there: Sequence[Row]
) -> Iterator[Row]:
    done = {(row["way"], row["starts"], row["seed"]) for row in there}
    for seed in range(seeds):
        for way in ways:
            for starts in (False, True)[: 1 if way in WITHOUT else 2]:
                if (way, starts, seed) not in done:
                    found = replay(problem, way, seed, starts, marks)
                    told = {str(mark): value for mark, value in found.items()}
                    yield {"way": way, "starts": starts, "seed": seed, "true": told}


def table(rows: Sequence[Row], marks: Sequence[int]) -> str:
    """The mean over seeds, give or take its standard error."""
    lines = [f"{'':44}" + "".join(f"{f'{mark} full':>16}" for mark in marks)]
    for starts, way in sorted({(row["starts"], row["way"]) for row in rows}):
        own = [row["true"] for row in rows if (row["way"], row["starts"]) == (way, starts)]
        cells = [around([each[str(mark)] for each in own]) for mark in marks]
        name = f"{way}{', start points' if starts else ''} ({len(own)})"
        lines.append(f"{name:44}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def around(values: Sequence[float]) -> str:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):.4f} ± {error:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", choices=("recorded", "made-up"), default="recorded")
    parser.add_argument("--curves", type=Path, default=HERE / "curves.parquet")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--marks", type=int, nargs="+", default=list(MARKS))
    parser.add_argument("--ways", nargs="+", metavar="WAY", help=f"of: {'; '.join(every_way())}")
    parser.add_argument("--out", type=Path, help="its rows (default: peers-PROBLEM.jsonl)")
    parser.add_argument("--quick", action="store_true", help="made up, one seed, nothing is kept")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    if arguments.quick:
        arguments.problem, arguments.seeds, arguments.marks = "made-up", 1, [1, 2]
    out = arguments.out or HERE / f"peers-{arguments.problem}.jsonl"
    there: list[Row] = []
    if out.exists() and not arguments.quick:
        known = map(json.loads, out.read_text(encoding="utf-8").splitlines())
        there = [row for row in known if {*map(str, arguments.marks)} <= row["true"].keys()]
    problem: Problem = MadeUp() if arguments.problem == "made-up" else Recorded(arguments.curves)
    ways = arguments.ways or every_way()
    for row in rows_of(problem, ways, arguments.seeds, arguments.marks, there):
        there.append(row)
        if not arguments.quick:
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        told = " ".join(f"{value:.4f}" for value in row["true"].values())
        print(
            f"{row['way']}{', start points' if row['starts'] else ''}, seed {row['seed']}: {told}",
            flush=True,
        )
    print(table(there, arguments.marks))


if __name__ == "__main__":
    main()
