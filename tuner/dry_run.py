"""`--dry-run`: check a search whole, and take one step of its most expensive configuration."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from model.train import train
from tuner.asked import Asked, How
from tuner.checks import check_asked, check_how
from tuner.plan import open_space

ONE_STEP = 1e-6  # epochs of SimCSE, rounded up to a step


def dry_run(asked: Asked, how: How) -> str:
    """The space as a table, and what its costliest step takes; raises what a search would."""
    check_how(how)
    space = open_space(asked)
    check_asked(asked, space)
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
        data = Path(asked.data) if asked.data else None
        records = list(train(config, space.task_set, out=Path(folder) / "run", data=data))
    seconds = time.monotonic() - began
    lines = [
        f"{space.name}: {space.about}",
        "",
        space.table(),
        "",
        *space.notes,
        f"the most expensive configuration fits: {records[-1]['examples']} examples in "
        f"{seconds:.1f} s, start and evaluation of a few rows included",
        f"trials: {asked.num_samples} of up to "
        f"{asked.max_examples or space.examples:,} examples each",
    ]
    return "\n".join(lines)
