"""What a person sees of one run: on a terminal a line that updates in place, else plain lines."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from model.cli.status import apart, doing
from model.cli.text import clock, say, short
from model.training.progress import Progress, Record

REFRESH = 0.2  # seconds between updates of the line
IDLE = 1.0  # seconds without a step, after which something else must be going on


class Console:
    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.live = sys.stdout.isatty() and not quiet
        self.shown = 0.0
        self.began: tuple[str, float, int] | None = None  # stage, when, after how many steps
        self.best: float | None = None
        self.stepped: float | None = None  # when the last step ended
        self.warned: set[str] = set()

    def working(self) -> AbstractContextManager[None]:
        """While a run works: what it does between its steps."""
        return doing(self._meanwhile, self.quiet)

    def _meanwhile(self) -> str | None:
        if self.stepped is None:
            return "getting ready: data, tokens, model"
        return "evaluating and saving" if time.monotonic() - self.stepped > IDLE else None

    def say(self, line: str) -> None:
        if not self.quiet:
            with apart():
                self.clear()
                say(line)

    def warn(self, line: str) -> None:
        if line in self.warned:  # two tasks may read one file
            return
        self.warned.add(line)
        with apart():
            self.clear()
            say(line, sys.stderr)

    def clear(self) -> None:
        if self.live:
            print("\r\x1b[K", end="", flush=True)

    def step(self, progress: Progress, steps: int) -> None:
        """After every optimiser step."""
        now = self.stepped = time.monotonic()
        if self.began is None or self.began[0] != progress.stage:
            self.began = (progress.stage, now, progress.step)  # each stage counts its own steps
        if not self.live or now - self.shown < REFRESH:
            return
        self.shown = now
        _, since, before = self.began
        done = progress.step - before
        left = (now - since) / done * (steps - progress.step) if done else None
        meter = progress.meter
        losses = "  ".join(
            f"{task} {total / meter.counts[task]:.3f}" for task, total in meter.losses.items()
        )
        parts = [
            "SimCSE" if progress.stage == "simcse" else "",
            f"{100 * progress.step / steps:3.0f} %",
            f"step {progress.step}/{steps}",
            f"{meter.examples / meter.seconds:.0f} examples/s" if meter.seconds else "",
            f"best {short(self.best)}" if self.best is not None else "",
            f"{clock(left)} left" if left is not None else "",
            f"loss {losses}" if losses else "",  # the longest, so that it is what is cut
        ]
        line = "  ".join(part for part in parts if part)
        # A line that wraps could not be written over.
        line = line[: shutil.get_terminal_size().columns - 1]
        with apart():
            print(f"\r\x1b[K{line}", end="", flush=True)

    def evaluation(self, record: Record) -> None:
        is_best = "overall" in record["best"]
        if is_best:
            self.best = record["score"]
        tasks = "  ".join(
            f"{name} {short(task['value'])}" for name, task in record["tasks"].items()
        )
        low, high = record["interval"]
        speed = record["examples_per_second"]
        self.say(
            f"{record['examples']:>9,} examples  overall {short(record['score'])} "
            f"[{short(low)}, {short(high)}]  {tasks}"
            + (f"  {speed:.0f}/s" if speed else "")
            + ("  *" if is_best else "")
        )

    def result(self, summary: dict[str, Any], out: Path) -> None:
        """The best evaluation beside what always giving the commonest answer would score."""
        best, baselines = summary["best"], summary["baselines"]
        rows = [
            (name, task["metric"], baselines[name], task["value"], task["interval"])
            for name, task in best["tasks"].items()
        ]
        rows.append(("overall", "", baselines["overall"], best["score"], best["interval"]))
        width = max(len(row[0]) for row in rows) + 2
        print(f"\n{'':{width}}{'metric':<10}{'baseline':>8}{'dev':>7}  95 % interval")
        for name, metric, baseline, value, (low, high) in rows:
            print(
                f"{name:<{width}}{metric:<10}{short(baseline):>8}{short(value):>7}"
                f"  [{short(low)}, {short(high)}]"
            )
            for line in further_lines(best["tasks"].get(name, {})):
                print(f"{'':{width}}{line}")
        print(
            f"\nbest after {best['examples']:,} of {summary['examples']:,} examples, "
            f"{clock(summary['seconds'])} of training\nmodel: {out / 'model'}"
        )


def further_lines(task: dict[str, Any]) -> Iterator[str]:
    """What is shown beside the metric that counts."""
    for metric, found in task.get("also", {}).items():
        low, high = found["interval"]
        yield f"{metric:<10}{'':>8}{short(found['value']):>7}  [{short(low)}, {short(high)}]"
    if "train_value" in task:
        yield f"{'on train':<10}{'':>8}{short(task['train_value']):>7}"
