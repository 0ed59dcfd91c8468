"""`--dry-run`: check a search whole, and take one step of its most expensive configuration."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from model.train import train
from model.training.prepare import ProcessCache
from tuner.engine.stages import RESERVED
from tuner.ray_backend.resources import share_out
from tuner.runs.request import ExecutionOptions, SearchRequest
from tuner.search.disk import check_disk, estimate_size, human
from tuner.search.plan import plan_search
from tuner.search.terminal import SearchConsole
from tuner.space.space import Space

ONE_STEP = 1e-6  # epochs of SimCSE, rounded up to a step
STEPS = 6  # of the default configuration, to see how fast it is


def dry_run(request: SearchRequest, options: ExecutionOptions) -> str:
    """The space as a table, and what its most expensive step takes; raises what a search would."""
    plan = plan_search(request, options, SearchConsole())
    space = plan.space
    slots = 1
    if options.address is None:
        slots = share_out(
            os.cpu_count() or 1,
            torch.cuda.device_count(),
            concurrent=options.max_concurrent_trials,
            cpus=options.cpus_per_trial,
            gpus=options.gpus_per_trial,
            trials=plan.stages.at_once,
        ).slots
    need = plan.disk_need(estimate_size(space), slots)
    check_disk(replace(need, running=0) if plan.storage else need, plan.folder)
    cache = ProcessCache()
    began = time.monotonic()
    examples = try_steps(space, space.most_expensive(), 1, plan.data, cache)[-1][1]
    seconds = time.monotonic() - began
    in_all = f"{plan.stages.text()}; {plan.stages.cost():,} examples in all"
    if options.address is None and plan.timed_text is None:
        steps = try_steps(space, space.default_point(), STEPS, plan.data, cache)
        (then, before), *_, (now, after) = (step for step in steps if step[1])  # not SimCSE's
        in_all += f", {about(plan.stages.cost() * (now - then) / (after - before))} here"
    lines = [
        f"{space.name}: {space.about}",
        "",
        space.table(),
        "",
        *space.notes,
        f"the most expensive configuration fits: {examples} examples in "
        f"{seconds:.1f} s, start and evaluation of a few rows included",
        f"plan: {plan.timed_text or in_all}",
        f"disk: up to {human(need.peak)} while it runs, {human(need.kept)} kept",
    ]
    return "\n".join(lines)


def try_steps(
    space: Space, settings: Mapping[str, Any], steps: int, data: Path | None, cache: ProcessCache
) -> list[tuple[float, int]]:
    """Train so many steps; after each of them the time, and the examples so far."""
    size = steps * sum(space.config(settings).batch_sizes(space.task_set))
    extra: dict[str, Any] = {
        "budget.examples": size,
        "budget.epochs": None,
        "budget.eval_every": size,
        "budget.eval_rows": 8,
    }
    if space.config(settings).pretrain.simcse.epochs:
        extra["pretrain.simcse.epochs"] = ONE_STEP
    config = space.config(settings, space.task_set, extra)
    seen: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory(prefix="stockpot-dry-run-") as folder:
        run = train(
            config,
            space.task_set,
            out=Path(folder) / "run",
            data=data,
            watch=lambda progress, _: seen.append((time.monotonic(), progress.examples)),
            cache=cache,
        )
        for _ in run:
            pass
    return seen


def about(training: float) -> str:
    """'about 5 minutes', with what a search does besides training."""
    minutes = training / (1 - RESERVED) / 60
    if minutes < 1.5:
        return "about a minute"
    return f"about {minutes:.0f} minutes" if minutes < 90 else f"about {minutes / 60:.1f} hours"
