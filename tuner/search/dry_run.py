"""`--dry-run`: check a search whole, and take one step of its most expensive configuration."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from model.train import train
from tuner.ray_backend.resources import share_out
from tuner.runs.request import ExecutionOptions, SearchRequest
from tuner.search.disk import check_disk, estimate_size, human
from tuner.search.plan import plan_search
from tuner.search.terminal import SearchConsole

ONE_STEP = 1e-6  # epochs of SimCSE, rounded up to a step


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
            trials=plan.stages.trials,
        ).slots
    need = plan.disk_need(estimate_size(space), slots)
    check_disk(replace(need, running=0) if plan.storage else need, plan.folder)
    settings = space.most_expensive()
    size = sum(space.config(settings).batch_sizes(space.task_set))
    extra: dict[str, Any] = {
        "budget.examples": size,
        "budget.eval_every": size,
        "budget.eval_rows": 8,
    }
    if space.config(settings).pretrain.simcse.epochs:
        extra["pretrain.simcse.epochs"] = ONE_STEP
    config = space.config(settings, space.task_set, {**extra, "budget.epochs": None})
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stockpot-dry-run-") as folder:
        records = list(train(config, space.task_set, out=Path(folder) / "run", data=plan.data))
    seconds = time.monotonic() - began
    in_all = f"{plan.stages.text()}; {plan.stages.cost():,} examples in all"
    lines = [
        f"{space.name}: {space.about}",
        "",
        space.table(),
        "",
        *space.notes,
        f"the most expensive configuration fits: {records[-1]['examples']} examples in "
        f"{seconds:.1f} s, start and evaluation of a few rows included",
        f"plan: {plan.timed_text or in_all}",
        f"disk: up to {human(need.peak)} while it runs, {human(need.kept)} kept",
    ]
    return "\n".join(lines)
