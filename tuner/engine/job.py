"""What a worker is told about a trial, and how long a trial trains."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.engine.stages import Stages
from tuner.runs.state import DISTILLED, TrialState

# Scoring a dev row takes about a fifth of the time of training on an example. So much of the time
# may go into it that about a tenth of a search does. Without `eval_rows` nobody here knows how many
# rows there are, and they are scored three times: whoever leaves it out wants all of them.
SCORED = 0.2
EVALUATIONS = 3  # of a trial that is trained in full
SHARE = 0.15  # of its time that they may take, or there are two
ROWS_PER_EXAMPLE = 0.8  # dev rows that a short trial is scored on
FEWEST_ROWS = 100  # of each task
# A training that rests on its way cannot know its end: the rate stays until a short cool-down, and
# averaged weights are scored, which are what a rate at rest would give. A space's own values of
# these do not count, or rungs would compare averaged weights with others.
GOES_ON = {"optim.decay": "wsd", "average.share": 0.2}
WARMUP = 0.2  # of the shortest rung, so that no rung lies in the warm-up of the whole training


@dataclass(frozen=True)
class Job:
    """What an actor is told about a trial."""

    trial: str
    settings: dict[str, Any]
    tasks: str
    data: str | None
    out: str
    threads: int
    own_gpu: bool = False  # shared with no other trial
    known: int = 0  # examples at the last evaluation that the ledger has
    driver: dict[str, Any] | None = None  # whose run it is, as its lock says; None behind a URL
    epoch: int = 0  # of that driver

    def as_config(self) -> dict[str, Any]:
        return {"job": json.dumps(self.__dict__)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Job:
        return cls(**json.loads(config["job"]))


def training_budget(
    trial: TrialState,
    stages: Stages,
    base: Mapping[str, Any],
    tasks: int,
    evaluations: int | None = None,
) -> dict[str, Any]:
    """How long a trial trains, and when and on how many dev rows it is scored.

    A short one is scored once, at its end and on few rows: the time is better spent on training.
    One in full as often as is asked for.
    """
    length = trial.length or stages.final.examples
    own: dict[str, Any] = {"budget.examples": length, "budget.epochs": None}
    most = base.get("budget.eval_rows")
    cost = EVALUATIONS * SCORED * (most or 0) * tasks
    count = evaluations or (EVALUATIONS if cost <= SHARE * length else EVALUATIONS - 1)
    part = max(1, -(-length // count))
    if stages.promotion == "continue" and trial.origin != DISTILLED:
        going = that_goes_on(trial, stages, base, length)
        if trial.is_repeat:  # as far as the rung that it is compared at, and no cool-down
            going |= {"optim.decay": "constant"} if "optim.decay" in going else {}
            return going | own | {"budget.eval_every": length}
        below = [rung.examples for rung in stages.rungs[:-1]]
        later = [n * part for n in range(1, count) if (below or [0])[-1] < n * part < length]
        return going | own | {"budget.eval_at": [*below, *later, length]}
    if stages.is_final(trial) or not stages.top or trial.origin == DISTILLED:
        return own | {"budget.eval_every": part}
    rows = max(FEWEST_ROWS, round(ROWS_PER_EXAMPLE * length / tasks))
    rows = rows if most is None else min(rows, int(most))
    return own | {"budget.eval_every": length, "budget.eval_rows": rows}


def that_goes_on(
    trial: TrialState, stages: Stages, base: Mapping[str, Any], length: int
) -> dict[str, Any]:
    """How a trial is trained that may rest at any rung; what is held for all trials stays."""
    shortest = stages.rungs[0].examples
    suits = {**GOES_ON, "optim.warmup": min(0.5, WARMUP * shortest / length)}
    suits = {key: value for key, value in suits.items() if key not in base}
    if trial.settings.get("encoder.adapter", base.get("encoder.adapter")) == "lora":
        suits.pop("average.share", None)  # of low-rank updates there is no mean
    return {**trial.settings, **suits}
