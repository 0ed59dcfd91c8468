"""Runs in processes of their own that are killed for real."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

# Children are forked from a server that has imported everything: a start costs milliseconds.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["model.training.run", "model.data.sample.corpus", "transformers.models.bert.modeling_bert"]
    + ["transformers.models.auto.modeling_auto", "transformers.models.bert.tokenization_bert"]
)


def work(settings: dict[str, Any], out: str, cache: str, kill: tuple[int, float] | None) -> None:
    """One run, resumed if it was begun; with `kill`, ended so many seconds after that step."""
    import torch

    os.environ["STOCKPOT_CACHE"] = cache
    torch.set_num_threads(1)
    from model.config.parse import parse_settings
    from model.tasks.task_set import load_task_set
    from model.train import train

    done = itertools.count(1)

    def watch(*_: Any) -> None:
        if kill is not None and next(done) == kill[0]:
            # From another thread, so that it strikes wherever the run then is: in the middle of a
            # step, an evaluation, a file.
            threading.Timer(kill[1], lambda: os.kill(os.getpid(), signal.SIGKILL)).start()

    tasks = load_task_set("sample")
    config = parse_settings(settings, tasks)
    for _ in train(config, tasks, out=Path(out), resume=True, watch=watch):
        pass
    os._exit(0)  # a timer that came too late must not strike a finished run


def exit_code(settings: dict[str, Any], out: Path, kill: tuple[int, float] | None = None) -> int:
    cache = os.environ["STOCKPOT_CACHE"]
    process = CONTEXT.Process(target=work, args=(settings, str(out), cache, kill))
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def run_undisturbed(settings: dict[str, Any], out: Path) -> None:
    assert exit_code(settings, out) == 0


def run_killed(settings: dict[str, Any], out: Path, kills: int, seed: int) -> int:
    """Kill the run at random moments, resume each time, then let it finish; kills that hit."""
    draws = random.Random(seed)
    hits = 0
    for _ in range(kills):
        code = exit_code(settings, out, (draws.randint(1, 4), draws.uniform(0, 0.2)))
        assert code in (0, -signal.SIGKILL)
        hits += code != 0
    assert exit_code(settings, out) == 0
    return hits
