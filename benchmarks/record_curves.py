"""Learning curves of random configurations, for the replays of peers.py.

    python benchmarks/record_curves.py [--count 200] [--seeds 0 1] [--processes 2] [--at-most N]

Each configuration of the default space (pair encodings, loss weights and batch sizes task by task)
is trained on the sample corpus as a trial of a search is, and scored on 400 dev rows of each task.
What is recorded serves both kinds of search:

- one run of the full length, whose rate decays to zero at its end, scored at `POINTS` of it: what a
  search sees that stops or pauses runs on their way;
- a run of its own for each length of `RUNGS`, whose rate decays to zero there, scored at its end:
  what a search sees that promotes by starting again.

The encoder is the embedded one, whole: without its upper layers pairs were not learned at all from
so few examples. The first configurations are the default and the space's start points, the others
are drawn.

It goes on where it was interrupted: a configuration with a seed is a line of a file beside `--out`,
written when it is done. When all are there, they become one table, with a row for each score. A
table that is there is left as it is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

EXAMPLES = 1200
ROWS = 400  # of each task's dev set
POINTS = (1 / 27, 1 / 9, 2 / 9, 1 / 3, 1 / 2, 2 / 3, 1)  # of the full length
RUNGS = (1 / 9, 1 / 3)
SEED = 20_261_118  # of the draws
HERE = Path(__file__).parent


def curves_space(encoder: str = "minilm") -> Any:
    from tuner.space.space import load_space

    return load_space("default", "sample", {"encoder.name": encoder})


def settings_of(space: Any, number: int) -> dict[str, Any]:
    known = [{}, *space.start_from]
    if number < len(known):
        return dict(known[number])
    drawn: dict[str, Any] = space.draw(np.random.default_rng([SEED, number]))
    return drawn


class Recorder:
    """What a process needs to record one configuration after the other."""

    def __init__(self, encoder: str, examples: int, rows: int) -> None:
        import torch

        from model.training.prepare import ProcessCache

        torch.set_num_threads(1)
        self.space, self.cache = curves_space(encoder), ProcessCache()
        self.examples, self.rows = examples, rows

    def record(self, number: int, seed: int, folder: Path) -> dict[str, Any]:
        began, settings = time.monotonic(), settings_of(self.space, number)
        lengths = {round(self.examples * share): [] for share in RUNGS}
        lengths[self.examples] = [round(self.examples * share) for share in POINTS[:-1]]
        scores = [
            {"length": length, **point}
            for length, on_the_way in lengths.items()
            for point in self.train(settings, seed, length, on_the_way, folder)
        ]
        took = round(time.monotonic() - began, 1)
        return {
            "number": number,
            "seed": seed,
            "settings": settings,
            "scores": scores,
            "seconds": took,
        }

    def train(
        self,
        settings: dict[str, Any],
        seed: int,
        length: int,
        on_the_way: Sequence[int],
        folder: Path,
    ) -> list[dict[str, Any]]:
        """Every task's score and loss at these examples and at the end. Nothing is saved."""
        from model.training.prepare import prepare
        from model.training.progress import Heartbeat
        from model.training.run import TrainingRun
        from model.training.saving import SavePoint, Writer
        from model.training.step import TrainingDiverged

        class Nowhere(Writer):
            def write(self, point: SavePoint) -> None:
                pass

        budget = {
            "budget.examples": length,
            "budget.epochs": None,
            "budget.eval_at": [*on_the_way, length],
            "budget.eval_rows": self.rows,
            "seed": seed,
        }
        config = self.space.config(settings, None, budget)
        prepared = prepare(config, self.space.task_set, cache=self.cache)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            run = TrainingRun(prepared, Path(place), None, print)
            run.writer = Nowhere(background=False)
            run.start_fresh()
            run.begin()
            try:
                found = list(run.fine_tune(lambda: False, lambda *_: None, Heartbeat(None)))
            except TrainingDiverged:
                found = []
            finally:
                run.close()
        return [{"examples": each["examples"], "tasks": told(each["tasks"])} for each in found]


def told(tasks: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {key: of[key] for key in ("value", "interval", "loss")} for name, of in tasks.items()
    }


recorder: Recorder


def get_ready(*parts: Any) -> None:
    global recorder
    recorder = Recorder(*parts)


def record(number: int, seed: int, folder: Path) -> dict[str, Any]:
    return recorder.record(number, seed, folder)


def record_all(
    pairs: Iterable[tuple[int, int]], processes: int, folder: Path, how: tuple[str, int, int]
) -> Iterable[dict[str, Any]]:
    """In the order in which they are done."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, fresh, get_ready, how) as pool:
        for done in as_completed([pool.submit(record, *pair, folder) for pair in pairs]):
            yield done.result()


def to_parquet(lines: list[dict[str, Any]], path: Path) -> None:
    """A row for each score of a task, the settings as JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "number": line["number"],
            "seed": line["seed"],
            "settings": json.dumps(line["settings"]),
            "length": point["length"],
            "examples": point["examples"],
            "task": task,
            "value": of["value"],
            "low": of["interval"][0],
            "high": of["interval"][1],
            "loss": of["loss"],
        }
        for line in sorted(lines, key=lambda line: (line["number"], line["seed"]))
        for point in line["scores"]
        for task, of in point["tasks"].items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--at-most", type=int, help="now; the next call goes on from there")
    parser.add_argument("--out", type=Path, default=HERE / "curves.parquet")
    parser.add_argument("--quick", action="store_true", help="tiny, to see it work")
    arguments = parser.parse_args()
    if arguments.out.exists():
        print(f"{arguments.out} is there; remove it to record anew")
        return
    notes = arguments.out.with_suffix(".jsonl")
    done = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    pairs = {(number, seed) for number in range(arguments.count) for seed in arguments.seeds}
    missing = sorted(pairs - {(line["number"], line["seed"]) for line in done})
    now = missing[: arguments.at_most]
    how = ("tiny", 108, 20) if arguments.quick else ("minilm", EXAMPLES, ROWS)
    with tempfile.TemporaryDirectory(prefix="stockpot-curves-") as folder:
        for line in record_all(now, arguments.processes, Path(folder), how):
            with open(notes, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            done.append(line)
            last = line["scores"][-1]["tasks"] if line["scores"] else {}
            scores = "  ".join(f"{task} {of['value']:.3f}" for task, of in last.items())
            who = f"{line['number']:4} seed {line['seed']}"
            print(f"{who} {line['seconds']:6.1f} s  {scores}", flush=True)
    if len(now) < len(missing):
        return
    to_parquet(done, arguments.out)
    print(f"{arguments.count} configurations with {len(arguments.seeds)} seeds: {arguments.out}")


if __name__ == "__main__":
    main()
