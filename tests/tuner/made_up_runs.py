"""Runs that never ran: events in an order in which a driver could have written them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tuner.engine.sampling import Suggester, Suggestion
from tuner.runs.ledger import Ledger
from tuner.runs.state import RunState

SIZES = {"16-16-10": [16, 16, 10], "8-16-8": [8, 16, 8], "4-4-4": [4, 4, 4]}


class FakeSpace:
    """A rate, a list by its label, and a depth that is there only with one of the lists."""

    def distributions(self, params: Mapping[str, Any]) -> dict[str, BaseDistribution]:
        found: dict[str, BaseDistribution] = {
            "rate": FloatDistribution(1e-5, 1e-2, log=True),
            "weight": FloatDistribution(0, 10),
            "sizes": CategoricalDistribution(tuple(SIZES)),
        }
        if params.get("sizes") == "8-16-8":
            found["depth"] = IntDistribution(1, 8)
        return {key: domain for key, domain in found.items() if key in params}

    def default_params(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"rate": 1e-3, "sizes": "4-4-4"}, {"weight": 11.0}

    def suggest(self, trial: optuna.Trial) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "rate": trial.suggest_float("rate", 1e-5, 1e-2, log=True),
            "weight": trial.suggest_float("weight", 0, 10),
            "sizes": SIZES[trial.suggest_categorical("sizes", list(SIZES))],
        }
        if settings["sizes"] == [8, 16, 8]:
            settings["depth"] = trial.suggest_int("depth", 1, 8)
        return settings

    def draw(
        self, rng: np.random.Generator, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        point = {"rate": 10 ** rng.uniform(-5, -2), "weight": rng.uniform(0, 10)}
        return {**point, "sizes": [4, 4, 4], **(given or {})}

    def every(
        self, rng: np.random.Generator, given: Mapping[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        while True:
            yield self.draw(rng, given)

    def settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return {**params, "sizes": SIZES[params["sizes"]]}

    def params(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        sizes = "-".join(map(str, settings["sizes"]))
        return {**settings, "sizes": sizes}

    def default_point(self) -> dict[str, Any]:
        return {}

    def missing(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        return ("rate",)


class NarrowSpace(FakeSpace):
    """The same after somebody took a choice away."""

    def distributions(self, params: Mapping[str, Any]) -> dict[str, BaseDistribution]:
        return super().distributions(params) | {"sizes": CategoricalDistribution(("4-4-4",))}


def begin(ledger: Ledger, resumed: bool = False, **changes: Any) -> None:
    fields: dict[str, Any] = {
        "version": "1",
        "name": "made-up",
        "objectives": ["overall"],
        "num_samples": 12,
        "seed": 3,
        "sampler": "tpe",
        "resumed": resumed,
    }
    ledger.append("run", **(fields | changes))


def create(ledger: Ledger, **changes: Any) -> str:
    """A trial with a point of no importance."""
    name = ledger.state.next_id
    fields: dict[str, Any] = {
        "trial": name,
        "number": ledger.state.next_number,
        "params": {"rate": 1e-3, "weight": 1.0, "sizes": "4-4-4"},
        "settings": {"rate": 1e-3, "weight": 1.0, "sizes": [4, 4, 4]},
        "origin": "sampler",
        "seed": 0,
    }
    ledger.append("created", **(fields | changes))
    return name


def suggest_next(
    state: RunState, space: Any, fixed: Mapping[str, Any] | None = None
) -> Suggestion | None:
    """By whoever has only just come to know that state."""
    return Suggester(state, space).next(fixed)


def create_suggested(ledger: Ledger, fixed: Mapping[str, Any] | None = None) -> str:
    made = suggest_next(ledger.state, FakeSpace(), fixed)
    assert made is not None
    return create(ledger, number=made.number, params=made.params, settings=made.settings)


def evaluate(ledger: Ledger, trial: str, examples: int, score: float, **tasks: float) -> None:
    tasks = tasks or {"mood": score, "near": score / 2}
    ledger.append(
        "evaluated",
        trial=trial,
        examples=examples,
        score=score,
        interval=[score - 0.1, score + 0.1],
        tasks={name: {"value": value} for name, value in tasks.items()},
        checkpoint=f"c{examples:06d}",
    )


def close(ledger: Ledger, trial: str, how: str, kind: str = "code") -> None:
    if how == "finished":
        ledger.append("finished", trial=trial)
    elif how == "stopped":
        ledger.append("stopped", trial=trial, examples=100, rung=100, reason="too low")
    else:
        ledger.append("failed", trial=trial, kind=kind, reason="broke", traceback="Traceback")


def score_of(ledger: Ledger, trial: str, examples: int) -> float:
    """A score that follows from the point, so that a sampler has something to learn."""
    params = ledger.state.trials[trial].params
    score = 0.5 + 0.03 * params["weight"] + params["rate"] * 10 + examples * 1e-4
    return float(round(score, 6))


def live_through(
    path: Path, moves: int, seed: int, sampled: bool = False, longer: bool = False, **run: Any
) -> RunState:
    """A random life of a run, with kills of the driver and everything that may befall a trial.

    `longer`: with further runs of its configurations.
    """
    rng = random.Random(seed)
    ledger = Ledger(path, warn=_fail)
    begin(ledger, **run)
    for _ in range(moves):
        going = [trial.id for trial in ledger.state.open_trials]
        if not going or (len(going) < 4 and rng.random() < 0.4):
            fields = _kind(ledger, rng) if longer else {}
            new = create_suggested(ledger) if sampled else create(ledger, **fields)
            ledger.append("started", trial=new, attempt=0, node="here", pid=1)
            continue
        trial = rng.choice(going)
        move = rng.random()
        if move < 0.55:
            examples = ledger.state.trials[trial].examples + 100
            evaluate(ledger, trial, examples, score_of(ledger, trial, examples))
        elif move < 0.75 and ledger.state.trials[trial].evaluations:
            close(ledger, trial, rng.choice(["finished", "finished", "stopped"]))
        elif move < 0.82:
            close(ledger, trial, "failed", rng.choice(["code", "memory", "infrastructure"]))
        elif move < 0.9:
            examples = ledger.state.trials[trial].examples
            ledger.append("paused", trial=trial, examples=examples)
            ledger.append("removed", trial=trial, checkpoints=[f"c{examples:06d}"])
        else:
            ledger.close()
            ledger = Ledger(path, warn=_fail)
            begin(ledger, resumed=True, **run)
    ledger.close()
    return ledger.state


def _kind(ledger: Ledger, rng: random.Random) -> dict[str, Any]:
    """Of a new trial: a configuration of its own, or a longer run or a repeat of an earlier one."""
    done = [t.id for t in ledger.state.search_trials if t.status == "finished"]
    origin = rng.choice(["sampler", "sampler", "promoted", "confirm"]) if done else "sampler"
    if origin == "sampler":
        return {"length": 100}
    level = int(origin == "promoted")
    of = {"of": rng.choice(done), "number": None, "origin": origin}
    return {**of, "level": level, "length": 300 if level else 100}


def _fail(message: str) -> None:
    raise AssertionError(message)
