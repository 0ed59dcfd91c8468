"""The two programs that the fault campaign kills: the search, and stock Ray Tune with OptunaSearch.

    python benchmarks/killed_programs.py search FOLDER [flags of tuner.search]
    python benchmarks/killed_programs.py stock FOLDER

Both train the same runs and note every step they take, so that work done again can be counted.
Stock is what people write: a function that reports a checkpoint after every evaluation and starts
from the last one it is given, three retries per trial, and `Tuner.restore` when there is something
to restore.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tuner.ray_backend.trainable

STEPS = "STOCKPOT_CAMPAIGN_STEPS"  # the folder for the notes; workers inherit it
POINTS = "points.json"  # what stock is to try: the search's own draws
SEED = 5
SETTINGS = {"encoder.name": "tiny", "budget.epochs": None, "budget.eval_rows": 40, "seed": SEED}
INTERVAL = 120  # examples between checkpoints of stock; the search plans its own
EXAMPLES = 480  # of one trial
RETRIES = 3


def counter(trial: str) -> Callable[[Any, int], None]:
    """Notes every step: trial, number, examples so far."""
    place = Path(os.environ[STEPS], f"{os.getpid()}.log")

    def watch(progress: Any, steps: int) -> None:
        with open(place, "ab", buffering=0) as file:
            file.write(f"{trial} {progress.step} {progress.examples}\n".encode())

    return watch


# --- the search ---------------------------------------------------------------------------------


class Counted(tuner.ray_backend.trainable.SearchTrial):
    """The search's own trial, counted."""

    def _start(self) -> Any:
        import functools

        import model.train

        plain = getattr(model.train.train, "func", model.train.train)
        counted = functools.partial(plain, watch=counter(self.job.trial))
        model.train.train = counted  # type: ignore[assignment]
        return super()._start()


def run_search(flags: list[str]) -> int:
    from tuner.search.__main__ import main

    tuner.ray_backend.trainable.SearchTrial = Counted  # type: ignore[misc]
    return main(flags)


# --- stock --------------------------------------------------------------------------------------


def stock_trial(config: dict[str, Any]) -> None:
    import torch
    from ray import tune

    from model.config.parse import parse_settings
    from model.tasks.task_set import load_task_set
    from model.train import train

    torch.set_num_threads(1)
    tasks = load_task_set("sample")
    budget = {"budget.examples": EXAMPLES, "budget.eval_every": INTERVAL}
    given = {key: from_text(value) for key, value in config.items()}
    settings = parse_settings({**base_of_the_space(), **SETTINGS, **budget, **given}, tasks)
    out = Path(tempfile.mkdtemp(), "run")
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as place:
            shutil.copytree(place, out)
    watch = counter(tune.get_context().get_trial_id())
    for record in train(settings, tasks, out=out, resume=True, warn=lambda line: None, watch=watch):
        report = {"score": record["score"], "examples": record["examples"]}
        tune.report(report, checkpoint=tune.Checkpoint.from_directory(out))


def base_of_the_space() -> dict[str, Any]:
    from tuner.space.space import load_space

    return dict(load_space("default").base)


def as_text(value: Any) -> Any:
    """Lists, which Optuna cannot offer; any other value as it is."""
    return json.dumps(value) if isinstance(value, (list, tuple)) else value


def from_text(value: Any) -> Any:
    """A list from its text; any other value as it is."""
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def param_space() -> dict[str, Any]:
    """The default space as one writes it for Ray; lists as text, which Optuna needs."""
    from ray import tune

    from tuner.space.domains import Choice, Number
    from tuner.space.space import load_space

    offered: dict[str, Any] = {}
    for parameter in load_space("default").parameters:
        domain = parameter.domain
        if isinstance(domain, Choice):
            offered[parameter.key] = tune.choice([as_text(value) for value in domain.values])
        elif isinstance(domain, Number) and domain.log:
            offered[parameter.key] = tune.loguniform(domain.low, domain.high)
        elif isinstance(domain, Number) and domain.step:
            offered[parameter.key] = tune.quniform(domain.low, domain.high, domain.step)
        else:
            raise ValueError(f"{parameter.key}: say here how Ray has it")
    return offered


def run_stock(folder: Path) -> int:
    import ray
    from optuna.samplers import RandomSampler
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    points = json.loads((folder / POINTS).read_text())
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=str(folder / "ray"),
    )
    place = str(folder / "tune" / "stock")
    trainable = tune.with_resources(stock_trial, {"cpu": 1})
    if tune.Tuner.can_restore(place):
        found = tune.Tuner.restore(place, trainable, resume_unfinished=True, resume_errored=True)
    else:
        search = OptunaSearch(sampler=RandomSampler(seed=0), points_to_evaluate=points)
        found = tune.Tuner(
            trainable,
            param_space=param_space(),
            tune_config=tune.TuneConfig(
                metric="score",
                mode="max",
                search_alg=search,
                num_samples=len(points),
                max_concurrent_trials=2,
            ),
            run_config=tune.RunConfig(
                name="stock",
                storage_path=str(folder / "tune"),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                verbose=0,
            ),
        )
    results = found.fit()
    kept = [
        {
            "config": result.config,
            "examples": (result.metrics or {}).get("examples", 0),
            "error": str(result.error) if result.error else None,
            "checkpoint": result.checkpoint.path if result.checkpoint else None,
        }
        for result in results
    ]
    (folder / "results.json").write_text(json.dumps(kept, indent=1))
    return 0


def main(arguments: list[str]) -> int:
    kind, folder, *flags = arguments
    return run_search(flags) if kind == "search" else run_stock(Path(folder))


if __name__ == "__main__":
    # Under its own name, so that Ray's workers import the trial rather than get a copy of it.
    import killed_programs

    raise SystemExit(killed_programs.main(sys.argv[1:]))
