"""Ray Tune as its documentation writes it: OptunaSearch, ASHAScheduler, a function to train.

The space and the trainer are ours. All else is Ray's: no start points, a fresh process for every
trial, trials that are stopped for good, and the best of them by dev at the end.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from .cell import Cell, Handed, Trained

REDUCTION = 3
RUNGS = REDUCTION**2  # the first rung is at one part of so many, and a trial reports at each part
RUN = "run"  # in a trial's folder
ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # as in our searches, or all else on the machine would go first
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # which would take a search that is broken off for done
}


def stock(cell: Cell) -> dict[str, Handed]:
    os.environ.update(ENVIRONMENT)
    import ray

    from tuner.runs.scratch import scratch_folder

    with scratch_folder() as scratch:
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(scratch / "ray"),
        )
        try:
            return {"stock": search(cell)}
        finally:
            ray.shutdown()


def search(cell: Cell) -> Handed:
    import optuna
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space, longest = cell.space(), cell.part
    settings = cell.settings(longest, RUNGS)
    tasks, data = cell.material.tasks, cell.material.data

    def trainable(config: dict[str, Any]) -> None:
        from model.train import train

        out = Path(tune.get_context().get_trial_dir()) / RUN
        run = space.config(config, tasks, settings)
        for record in train(run, tasks, out=out, data=data):
            tune.report({"score": record["score"], "examples": record["examples"]})

    class Spent(tune.Stopper):
        """Ends the search when all trials together have trained on the budget."""

        def __init__(self) -> None:
            self.examples: dict[str, int] = {}

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            self.examples[trial_id] = result["examples"]
            return False

        def stop_all(self) -> bool:
            return sum(self.examples.values()) >= cell.budget

    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            search_alg=OptunaSearch(space.suggest, metric="score", mode="max", seed=cell.seed),
            scheduler=ASHAScheduler(
                time_attr="examples",
                max_t=longest,
                grace_period=longest // RUNGS,
                reduction_factor=REDUCTION,
            ),
            num_samples=cell.trials * RUNGS,  # as many as the budget can buy
        ),
        run_config=tune.RunConfig(
            name="stock", storage_path=str(cell.work), stop=Spent(), verbose=0
        ),
    )
    results = tuner.fit()
    runs = [read_run(folder) for folder in sorted(cell.work.glob(f"stock/*/{RUN}"))]
    best = results.get_best_result(scope="all")
    evaluations = sum(len(run.records) for run in runs)
    return Handed(
        read_run(Path(best.path) / RUN).model,
        sum(run.examples for run in runs),
        evaluations * cell.rows,
    )


def read_run(out: Path) -> Trained:
    """A trial's run, up to its last evaluation."""
    notes = out / "metrics.jsonl"
    lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
    records = [json.loads(line) for line in lines]
    return Trained(out, records, records[-1]["examples"] if records else 0)
