"""Runs in processes of their own that are killed for real."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

# Children are forked from a server that has imported everything: a start costs milliseconds.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.model.killed_runs", "model.train", "transformers"])


def work(settings: dict[str, Any], out: str, cache: str) -> None:
    import torch

    os.environ["STOCKPOT_CACHE"] = cache
    torch.set_num_threads(1)
    from model.config import parse_settings
    from model.tasks import load_task_set
    from model.train import train

    tasks = load_task_set("sample")
    for _ in train(parse_settings(settings, tasks), tasks, out=Path(out), resume=True):
        pass


def start(settings: dict[str, Any], out: Path) -> Any:
    process = CONTEXT.Process(target=work, args=(settings, str(out), os.environ["STOCKPOT_CACHE"]))
    process.start()
    return process


def run_undisturbed(settings: dict[str, Any], out: Path) -> float:
    """Seconds from the first sign of life in its folder to the end."""
    process = start(settings, out)
    while not out.exists():
        time.sleep(0.005)
    began = time.monotonic()
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - began


def run_killed(settings: dict[str, Any], out: Path, kills: int, seconds: float, seed: int) -> int:
    """Kill the run at random moments, resume each time, then let it finish; kills that hit."""
    draws = random.Random(seed)
    hits = 0
    for _ in range(kills):
        process = start(settings, out)
        while not (out / "config.yaml").exists() and process.is_alive():
            time.sleep(0.005)
        process.join(timeout=draws.uniform(0, seconds))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            hits += 1
        process.join()
        if process.exitcode == 0:
            return hits
        assert process.exitcode == -signal.SIGKILL
    process = start(settings, out)
    process.join()
    assert process.exitcode == 0
    return hits
