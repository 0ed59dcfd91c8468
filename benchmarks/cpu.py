"""What each CPU trick brings by itself: all of them against all but one, by turns.

    STOCKPOT_CS224N=folder/with/its/files python benchmarks/cpu.py [--quick]

The training of benchmarks/throughput.py, once with every trick and once for each that is left out.
Both sides of a pair do the same work, one right after the other: a plain step, a step with SMART,
an evaluation. A ratio is the time without the trick over the time with it; "nothing" left out
shows the noise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from sides.ours import Ours

import model.evaluation.evaluate as evaluation
from model.cpu.dropout import PlainDropout
from model.tasks.task_set import load_task_set
from model.training.prepare import ProcessCache

EVEN = 24  # batches that stand for a whole pass
WORKS = ("plain", "smart", "evaluation")
# What to put where, for the trick to be out.
OUT: dict[str, dict[str, Callable[..., Any]]] = {
    "nothing": {},
    "replicas": {"model.training.replicas.Replicas._worth": lambda *_: False},
    "dropout": {
        "model.cpu.Dropout": PlainDropout,
        "model.cpu.attention.drop": lambda values, rate: PlainDropout(rate)(values),
    },
    "attention": {
        "model.cpu.use_own_attention": lambda _: None,
        # Masks of replicas would not be the same to the digit; they are as quick.
        "model.training.replicas.fits_replicas": lambda *_: True,
    },
    "linear": {"model.cpu.has_onednn": lambda: False},
    "word table": {"model.cpu.use_sparse_gradient": lambda _: None},
    "evaluation threads": {"model.evaluation.evaluate.side_by_side": map},
}


class Side:
    """A run of ours without some of the tricks."""

    def __init__(self, left_out: Sequence[str], given: Any, cache: ProcessCache) -> None:
        self.left_out = left_out
        place = os.environ.get("STOCKPOT_CS224N")
        tasks = load_task_set("cs224n" if place else "sample")
        with self._patched():
            settings = {"budget.eval_rows": given.rows}
            self.ours = Ours(tasks, place and Path(place), settings, cache=cache, even=EVEN)
        self.plain = self.ours.run.stepper.config
        self.smart = replace(self.plain, smart=replace(self.plain.smart, weight=1.0))

    def _patched(self) -> ExitStack:
        stack = ExitStack()
        for trick in self.left_out:
            for what, other in OUT[trick].items():
                stack.enter_context(mock.patch(what, other))
        return stack

    def seconds(self, work: str, turn: int) -> float:
        run = self.ours.run
        run.progress.drawn = dict.fromkeys(run.progress.drawn, turn * 7 % EVEN)
        run.stepper.config = self.smart if work == "smart" else self.plain
        with self._patched():
            if work != "evaluation":
                return self.ours.steps(1).seconds
            began = time.perf_counter()
            evaluation.evaluate(run.model, run.prepared.dev, run.prepared.assembler)
            return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=150, help="for each kind of work")
    parser.add_argument("--work", nargs="*", default=WORKS, choices=WORKS)
    parser.add_argument("--tricks", nargs="*", default=list(OUT), choices=list(OUT))
    parser.add_argument("--without", nargs="*", default=[], help="tricks that no side has")
    parser.add_argument("--rows", type=int, default=320, help="of each task in an evaluation")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one turn, to see it work")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    cache = ProcessCache()
    left_out = {trick: [trick] for trick in given.tricks if trick not in given.without}
    left_out["any of these"] = list(left_out)
    base = Side(given.without, given, cache)
    sides = {name: Side([*given.without, *out], given, cache) for name, out in left_out.items()}
    for work in given.work:
        found: dict[str, list[float]] = {name: [] for name in sides}
        seconds: list[float] = []
        turn, end = 0, time.monotonic() + (0 if given.quick else given.seconds)
        while turn == 0 or time.monotonic() < end:
            for name, side in sides.items():
                pair = (base, side) if turn % 2 else (side, base)
                times = {one: one.seconds(work, turn) for one in pair}
                found[name].append(times[side] / times[base])
                seconds.append(times[base])
            turn += 1
        took = statistics.median(seconds)
        print(f"\n{work}: {took:.3f} s, {given.threads} threads, {turn} turns", flush=True)
        for name, ratios in found.items():
            low, middle, high = statistics.quantiles(ratios * 2, n=4)
            print(f"  without {name:20}{middle:6.3f}  (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
