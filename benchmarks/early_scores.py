"""What early scores say about the end: rank correlations over random configurations.

    python benchmarks/early_scores.py [--count 24] [--examples 2700] [--tasks sample]
    python benchmarks/early_scores.py --report

Each configuration of the default space, drawn without its start points, is trained in three ways
and scored after 1/27, 1/9, 1/3 of the training and at its end:

    annealed   a run of its own for each length, whose rate decays to zero at its end
    decaying   one run, scored on its way while its rate decays towards the end of it
    averaged   one run at half the rate, constant up to a cool-down; averaged weights are scored,
               as `--promotion continue` trains

The end is that of the annealed run, which is what a final is. It takes hours; what is done stands
in `--out`, a line for each configuration, and is not done again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from model.config.parse import RunConfig
from model.data.info import aligned
from model.training.prepare import ProcessCache, prepare
from model.training.progress import Heartbeat
from model.training.run import TrainingRun
from model.training.saving import SavePoint, Writer
from model.training.step import TrainingDiverged
from tuner.engine.job import GOES_ON, WARMUP
from tuner.space.space import Space, load_space

HERE = Path(__file__).parent
PARTS = (27, 9, 3, 1)
SEED = 20_261_118
SLOWER = 0.5  # rate of the averaged way: the mean of one that decays linearly
WAYS = ("annealed", "decaying", "averaged")
QUICK = {"count": 3, "examples": 270, "encoder": "tiny", "rows": 40}

Scores = dict[str, float]  # overall, and by task


class Recorder:
    def __init__(self, arguments: argparse.Namespace) -> None:
        held = {"encoder.name": arguments.encoder}
        self.space: Space = load_space("default", arguments.tasks, held)
        self.data, self.examples, self.rows = arguments.data, arguments.examples, arguments.rows
        self.cache = ProcessCache()

    def record(self, number: int) -> dict[str, Any]:
        settings = self.space.draw(np.random.default_rng([SEED, number]))
        lengths = [self.examples // part for part in PARTS]
        annealed = [self.run(settings, [length])[0] for length in lengths[:-1]]
        decaying = self.run(settings, lengths)
        slower = {
            **GOES_ON,
            "optim.learning_rate": SLOWER * settings["optim.learning_rate"],
            "optim.warmup": WARMUP * lengths[0] / lengths[-1],
        }
        averaged = self.run({**settings, **slower}, lengths)
        ways = dict(zip(WAYS, ([*annealed, decaying[-1]], decaying, averaged), strict=True))
        return {"number": number, "settings": settings, "scores": ways}

    def run(self, settings: dict[str, Any], points: Sequence[int]) -> list[Scores]:
        """Its scores at these points, of which the last is its end; nothing is kept of it."""
        budget = {
            "budget.examples": points[-1],
            "budget.epochs": None,
            "budget.eval_at": list(points),
            "budget.eval_rows": self.rows,
        }
        config: RunConfig = self.space.config(settings, None, budget)
        prepared = prepare(config, self.space.task_set, data=self.data, cache=self.cache)
        with tempfile.TemporaryDirectory() as place:
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
        scores = [
            {"overall": each["score"], **{t: own["value"] for t, own in each["tasks"].items()}}
            for each in found
        ]
        return scores or [{}] * len(points)


class Nowhere(Writer):
    """Of a run that saves nothing: only its scores are wanted."""

    def write(self, point: SavePoint) -> None:
        pass


def report(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Spearman's rank correlation of each early score with the end."""
    whole = [line for line in lines if all(all(line["scores"][way]) for way in WAYS)]
    yield f"{len(whole)} configurations; rank correlation with the end of the annealed run"
    if len(whole) < 3:
        return  # none that would say anything
    names = list(whole[0]["scores"]["annealed"][-1])
    rows = [["way", "after", *names]]
    for way in WAYS:
        for place, part in enumerate(PARTS):
            if way == "averaged" or part > 1:
                cells = [f"{correlation(whole, way, place, name):.2f}" for name in names]
                rows.append([way, f"1/{part}" if part > 1 else "all", *cells])
    yield from aligned(rows, right=set(range(2, len(rows[0]))))
    for way in ("annealed", "averaged"):
        ends = [line["scores"][way][-1]["overall"] for line in whole]
        yield f"{way}, at the end: mean {np.mean(ends):.3f}, best {max(ends):.3f}"


def correlation(lines: Sequence[dict[str, Any]], way: str, place: int, name: str) -> float:
    early = [line["scores"][way][place][name] for line in lines]
    late = [line["scores"]["annealed"][-1][name] for line in lines]
    return float(spearmanr(early, late).statistic)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--examples", type=int, default=2700, help="of a training in full")
    parser.add_argument("--tasks", default="sample")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--rows", type=int, default=300, help="of each task's dev set")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="default: early_scores.jsonl beside this file")
    parser.add_argument("--report", action="store_true", help="print the table of what is there")
    parser.add_argument("--quick", action="store_true", help="tiny, to see it work")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        vars(arguments).update(QUICK)
    scratch = Path(tempfile.mkdtemp()) if arguments.quick else HERE
    out = arguments.out or scratch / "early_scores.jsonl"
    done = read(out)
    if not arguments.report:
        torch.set_num_threads(arguments.threads)
        recorder = Recorder(arguments)
        for number in sorted(set(range(arguments.count)) - {line["number"] for line in done}):
            line = recorder.record(number)
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            done.append(line)
            shown = {
                way: [f"{s.get('overall', 0):.3f}" for s in line["scores"][way]] for way in WAYS
            }
            print(number, shown, flush=True)
    print(*report(done), sep="\n")


if __name__ == "__main__":
    main()
