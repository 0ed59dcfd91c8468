"""Time from the end of one trial to the first step of the next: a search here, and stock Ray Tune.

    python benchmarks/turnover.py [--encoder minilm] [--trials 4] [--rounds 2]

Both run one trial at a time on one CPU, with the same encoder and data, and train a few steps, by
turns. The stock one is a function trainable with Ray Tune's defaults that gets ready in each trial,
as such functions do. Counted from when `train` is through to when the next is about to take a step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tuner.ray_backend.trainable

SIZES = [4, 4, 4]
BUDGET = {"budget.examples": 24, "budget.epochs": None, "budget.eval_every": 24}
SMALL = {"batch.sizes": SIZES, "budget.eval_rows": 8, "smart.weight": 0}
NOTES = "turnover.jsonl"

tuner.ray_backend.trainable.HEARTBEAT = 0.0  # a record before every step, the first included


def note(place: Path, first: float) -> None:
    with open(place / NOTES, "a", encoding="utf-8") as file:
        file.write(json.dumps({"first": first, "end": time.time()}) + "\n")


class Timed(tuner.ray_backend.trainable.SearchTrial):
    """The search's own trial, which notes when it is about to take its first step."""

    def _begin(self, config: dict[str, Any]) -> None:
        super()._begin(config)
        self.first: float | None = None

    def step(self) -> dict[str, Any]:
        result = super().step()
        self.first = self.first or time.time()
        if result.get("done"):
            note(Path(self.job.out).parents[3], self.first)
        return result


def stock_trial(config: dict[str, Any]) -> None:
    """What a function for Ray Tune usually does: get ready, train, report."""
    import torch
    from ray import tune

    from model.config.parse import parse_settings
    from model.tasks.task_set import load_task_set
    from model.train import train

    torch.set_num_threads(1)
    folder = Path(config["folder"])
    tasks = load_task_set("sample")
    settings = parse_settings({**BUDGET, **SMALL, "encoder.name": config["encoder"]}, tasks)
    first = None
    out = folder / f"stock-{time.time_ns()}"
    for _ in train(settings, tasks, out=out, warn=lambda line: None, heartbeat=0.0):
        first = first or time.time()
    assert first is not None
    note(folder, first)
    tune.report({"score": 0.0})


def gaps(folder: Path) -> list[float]:
    text = (folder / NOTES).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    lines.sort(key=lambda line: float(line["first"]))
    return [after["first"] - before["end"] for before, after in zip(lines, lines[1:], strict=False)]


def of_the_search(encoder: str, trials: int, folder: Path) -> list[float]:
    from tuner import run_search

    tuner.ray_backend.trainable.SearchTrial = Timed  # type: ignore[misc]
    run_search(
        storage_path=folder / "runs",
        encoder=encoder,
        num_samples=trials,
        max_concurrent_trials=1,
        cpus_per_trial=1,
        max_examples=24,
        grace_examples=24,
        early_stopping=False,
        set=SMALL,
        quiet=True,
    )
    return gaps(folder)


def of_stock_ray(encoder: str, trials: int, folder: Path) -> list[float]:
    from ray import tune

    from tuner.ray_backend.session import ray_session

    with ray_session(None):
        tune.Tuner(
            tune.with_resources(stock_trial, {"cpu": 1.0}),
            param_space={"encoder": encoder, "folder": str(folder)},
            tune_config=tune.TuneConfig(num_samples=trials, max_concurrent_trials=1),
            run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0),
        ).fit()
    return gaps(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--trials", type=int, default=4, help="of each in a round; one gap less")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    sides = {"stock function trainable": of_stock_ray, "search": of_the_search}
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, measure in sides.items():
            with tempfile.TemporaryDirectory(prefix="stockpot-turnover-") as folder:
                found[name] += measure(arguments.encoder, arguments.trials, Path(folder))
            times = found[name]
            print(
                f"{name:26} median {statistics.median(times):6.3f} s of {len(times)}"
                f" ({min(times):.3f} to {max(times):.3f})",
                flush=True,
            )
    stock, search = (statistics.median(times) for times in found.values())
    print(f"{'ratio':26} {stock / search:.1f}")


if __name__ == "__main__":
    # Under its own name, so that Ray's workers import the trial rather than get a copy of it.
    import turnover

    turnover.main()
