"""What a soup costs: memory for many ingredients, and time beside its evaluations.

    python benchmarks/soup.py                         # both, the second on 16 short trials
    python benchmarks/soup.py memory                  # 16 models of the embedded encoder
    python benchmarks/soup.py time runs/default       # a finished search, in a copy
    python benchmarks/soup.py workers runs/default --slots 4
    python benchmarks/soup.py afterwards runs/default

memory  The resident size of a fresh process above what it had before the first model, as a multiple
        of one: while it averages 1, 2, ... 16 models, while it makes Model Stock of them, and while
        the runner of a worker makes both and evaluates them. The bound is three: the model, the
        start, one ingredient. What the evaluation of one model leaves beside that model is told
        apart, and not counted: it is as much whatever is averaged.
time    Seconds of all methods, over those of their evaluations of dev.
workers Seconds of all methods by the driver alone, and by workers as a cluster has them.
afterwards  What a temperature before averaging, a threshold and a monotone map add to answers
        (sides/afterwards.py).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from tuner.search.on_workers import MakeRunner
    from tuner.soup.combinations import TaskCombinations
    from tuner.soup.record import SoupRecord
    from tuner.soup.runner import EvaluationSpec

COUNT = 16  # ingredients
REPEATS = 3
WORK = ("average", "stock", "worker")
DEV_ROWS = 200  # of a task


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command")
    memory = commands.add_parser("memory")
    memory.add_argument("--encoder", default="minilm")
    memory.add_argument("--count", type=int, default=COUNT)
    memory.add_argument("--quick", action="store_true", help="2 ingredients, few dev rows")
    inner = commands.add_parser("measure")  # in the fresh process
    inner.add_argument("folder", type=Path)
    inner.add_argument("--count", type=int, default=COUNT)
    inner.add_argument("--encoder")
    inner.add_argument("--work", choices=WORK)
    inner.add_argument("--rows", type=int, default=DEV_ROWS)
    timing = commands.add_parser("time")
    timing.add_argument("run", type=Path)
    workers = commands.add_parser("workers")
    workers.add_argument("run", type=Path)
    workers.add_argument("--slots", type=int, default=2)
    commands.add_parser("afterwards").add_argument("run", type=Path)
    arguments = parser.parse_args()
    if arguments.command is None:
        return bench_memory("minilm", COUNT) or bench_search(COUNT)
    if arguments.command == "memory":
        count, rows = (2, 40) if arguments.quick else (arguments.count, DEV_ROWS)
        return bench_memory(arguments.encoder, count, rows)
    if arguments.command == "measure":
        work, rows = arguments.work, arguments.rows
        return measure(arguments.folder, arguments.encoder, arguments.count, work, rows)
    if arguments.command == "workers":
        return bench_workers(arguments.run, arguments.slots)
    if arguments.command == "afterwards":
        from sides.afterwards import bench_afterwards

        return bench_afterwards(arguments.run)
    return bench_time(arguments.run)


# --- memory -------------------------------------------------------------------------------------


def bench_memory(encoder: str, count: int, rows: int = DEV_ROWS) -> int:
    most = 0.0
    with tempfile.TemporaryDirectory() as folder:
        make_models(Path(folder), encoder, count)
        for work in WORK:
            for some in sorted({2, max(2, count // 4), count}):
                command = [sys.executable, __file__, "measure", folder, "--count", str(some)]
                command += ["--encoder", encoder, "--work", work, "--rows", str(rows)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found = json.loads(done.stdout)
                most = max(most, found["models"])
                told = f"{found['models']:.2f} without what an evaluation leaves"
                print(
                    f"{work:8} {some:>3} ingredients of {found['model'] / 1e6:.0f} MB: "
                    f"{found['above'] / 1e6:.0f} MB above the start, {found['raw']:.2f} models"
                    + (f"; {told}" if work == "worker" else ""),
                    flush=True,
                )
    return 0 if most <= 3 else 1


def make_models(folder: Path, encoder: str, count: int) -> None:
    """Models of one make. Four have weights of their own, the others are linked to them: it is
    the number of folders that memory must not grow with, and the disk need not either."""
    import torch

    from model.config.parse import parse_settings
    from model.evaluation.model_folder import save_model
    from model.modules.encoder import load_encoder, load_tokenizer
    from model.tasks.task_set import load_task_set
    from model.training.prepare import build_model, fill_in

    tasks = load_task_set("sample")
    config = fill_in(parse_settings({"encoder.name": encoder}, tasks))
    model = build_model(config, tasks, load_encoder(encoder))
    tokenizer = load_tokenizer(encoder)
    for number in range(count):
        if number >= 4:
            os.symlink(folder / f"{number % 4:02d}", folder / f"{number:02d}")
            continue
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1e-3 * torch.randn_like(parameter))
        save_model(folder / f"{number:02d}", model, tokenizer)


def measure(folder: Path, encoder: str, count: int, work: str, rows: int) -> int:
    import psutil
    import torch

    from model.evaluation.model_folder import read_model
    from tuner.ray_backend.resources import give_back_memory
    from tuner.soup.average import weight_files
    from tuner.soup.combinations import STOCK, WEIGHTS, combine
    from tuner.soup.runner import RunnerThere

    torch.set_num_threads(1)
    places = sorted(folder.iterdir())[:count]
    size = sum(path.stat().st_size for path in weight_files(places[0]))
    read_model(places[0])  # what is loaded once, whatever is averaged: transformers and its kin
    runner = RunnerThere(spec_of(places, encoder, rows), {}).local
    tasks = list(runner.data.rows)  # the dev rows are no model either
    averages = [combine(WEIGHTS, range(some)) for some in range(1, count + 1)]
    stock = combine(STOCK, range(count))
    process = psutil.Process()
    give_back_memory(device=False)  # or what comes would take it, and not be seen
    start = process.memory_info().rss
    left = 0
    if work == "worker":
        runner.run(dict.fromkeys(tasks, averages[0]))  # one ingredient, whose model goes again
        give_back_memory(device=False)
        left = max(0, process.memory_info().rss - start)
    with Peak(process) as peak:
        if work == "worker":
            for combination in (averages[-2], stock, averages[-1]):
                runner.run(dict.fromkeys(tasks, combination))
        else:
            for combination in [stock] if work == "stock" else averages:
                runner.soup_model.average(dict.fromkeys(tasks, combination))
    above = peak.highest - start
    models = {"raw": above / size, "models": (above - left) / size}
    found = {"model": size, "above": above} | models
    print(json.dumps(found))
    return 0


def spec_of(places: list[Path], encoder: str, rows: int) -> EvaluationSpec:
    """The averages of these models, on so many dev rows of each of the sample tasks."""
    from model.config.parse import parse_settings
    from model.modules.encoder import load_tokenizer
    from model.tasks.task_set import load_task_set
    from model.training.inputs import load_inputs
    from model.training.prepare import fill_in
    from tuner.soup.runner import EvaluationSpec

    tasks = load_task_set("sample")
    config = fill_in(parse_settings({"encoder.name": encoder, "budget.eval_rows": rows}, tasks))
    inputs = load_inputs(config, tasks, None, load_tokenizer(encoder), lambda line: None)
    return EvaluationSpec(
        run=str(places[0].parent),
        models=places,
        base=0,
        settings=config.to_flat(),
        tasks=tasks.origin,
        data=None,
        fingerprint=inputs.fingerprint,
        start=(encoder, None),
    )


class Peak:
    """The highest resident size while it is open, looked at every few milliseconds."""

    def __init__(self, process: object) -> None:
        self.process, self.highest, self.over = process, 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self.over.wait(0.002):
            self.highest = max(self.highest, self.process.memory_info().rss)  # type: ignore[attr-defined]

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()


# --- time ---------------------------------------------------------------------------------------


def bench_search(count: int) -> int:
    """`bench_time` on a search whose trials train a little and are all kept."""
    from tuner import run_search

    with tempfile.TemporaryDirectory(prefix="stockpot-soup-") as folder:
        found = run_search(
            storage_path=folder,
            num_samples=count,
            keep=count,
            max_examples=96,
            grace_examples=96,
            early_stopping=False,
            soup=False,
            report=False,
            quiet=True,
        )
        return bench_time(found.folder)


class Timed:
    """A runner that keeps how long each evaluation took."""

    at_once = 1

    def __init__(self, spec: EvaluationSpec) -> None:
        from tuner.soup.runner import LocalRunner

        self.runner = LocalRunner(spec)
        self.seconds: list[float] = []

    def run(self, combinations: TaskCombinations) -> pa.Table:
        began = time.perf_counter()
        found = self.runner.run(combinations)
        self.seconds.append(time.perf_counter() - began)
        return found


def bench_time(run: Path) -> int:
    timed: list[Timed] = []

    def runner(spec: EvaluationSpec) -> Timed:
        timed.append(Timed(spec))
        return timed[-1]

    with copy_of(run) as copy:
        seconds, soup = made(copy, runner)
        again, _ = made(copy, None)
    spent = sum(timed[0].seconds)
    greedy = len(soup.steps) - 1
    print(f"{len(soup.ingredients)} ingredients, {soup.evaluations:g} evaluations of dev")
    print(f"of these at most {greedy} of the greedy soup on all of dev ({os.cpu_count()} CPUs)")
    print(f"made in {seconds:.1f} s = {seconds / spent:.2f} x its evaluations ({spent:.1f} s)")
    print(f"made again, from what was kept: {again:.1f} s")
    return 0


def bench_workers(run: Path, slots: int) -> int:
    """The same soup by the driver alone and by the workers of a Ray on this machine, in turn."""
    from tuner.ray_backend.resources import Resources
    from tuner.ray_backend.session import ray_session
    from tuner.search.on_workers import on_workers

    with ray_session(None):
        for _ in range(REPEATS):
            with copy_of(run) as copy:
                alone, _ = made(copy, None)
            with copy_of(run) as copy:
                resources = Resources(slots, 1.0, 0.0)
                with on_workers(resources, shared=True, warn=print) as there:
                    seconds, soup = made(copy, there.runner)
            told = f"{soup.evaluations:g} evaluations: {alone:.1f} s by the driver alone"
            print(f"{told}, {seconds:.1f} s by {slots} workers ({alone / seconds:.2f} x)")
    return 0


@contextmanager
def copy_of(run: Path) -> Iterator[Path]:
    """Without its soup, and without what was evaluated for it."""
    leave = shutil.ignore_patterns("soup", "soups", "lock")
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(run, Path(folder) / run.name, ignore=leave))


def made(run: Path, runner: MakeRunner | None) -> tuple[float, SoupRecord]:
    from tuner.soup.make import make_soup

    began = time.perf_counter()
    soup = make_soup(run, log=lambda line: None, runner=runner)
    return time.perf_counter() - began, soup


if __name__ == "__main__":
    raise SystemExit(main())
