"""A cluster that trains nothing: the search's own engine, fed with learning curves that are known.

Whoever uses it says what a trial scores; the engine, the rungs and the sampler are the real ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from tuner.engine.engine import Engine, Limits
from tuner.engine.job import Job
from tuner.engine.stages import Stages
from tuner.engine.study_file import StudyFile
from tuner.runs.folder import JOURNAL
from tuner.runs.ledger import Ledger
from tuner.runs.retention import CheckpointStore
from tuner.runs.state import RunState, TrialState
from tuner.space.space import Space

# The score of a trial after so many examples, or all that an evaluation would say of its scores.
Curve = Callable[[TrialState, int], "float | dict[str, Any]"]


class Memory:
    """A ledger that is kept in memory only, for replays by the thousand."""

    def __init__(self) -> None:
        self.state = RunState(warn=print)

    def append(self, event: str, **fields: Any) -> dict[str, Any] | None:
        if not self.state.takes(event, fields.get("trial")):
            return None
        written = {"event": event, "time": 0.0, **fields}
        self.state.apply(written)
        return written


class NoFile:
    """In place of the study file."""

    def update(self, trial: TrialState) -> None:
        pass


def make_engine(
    space: Space,
    *,
    folder: Path | None,
    stages: Stages,
    slots: int,
    sampler: str = "tpe",
    seed: int = 0,
    default: bool = True,
    mine: Callable[[], None] = lambda: None,
) -> Engine:
    """With a folder all that a search writes is on disk; without one nothing is.

    `mine` is asked before each line of the ledger, as the run's lock is in a search.
    """
    ledger: Any = Memory() if folder is None else Ledger(folder / "ledger.jsonl", mine=mine)
    ledger.append(
        "run",
        version="1",
        name="simulated",
        objectives=["overall"],
        num_samples=stages.trials + (not default),
        rungs=[[rung.examples, rung.places] for rung in stages.rungs],
        promotion=stages.promotion,
        seed=seed,
        sampler=sampler,
        resumed=bool(ledger.state.trials),
    )
    if not default:  # a search begins with it, so it is there and took no examples
        point: dict[str, Any] = {"params": {}, "settings": {}, "number": None}
        ledger.append("created", trial="t0000", origin="default", seed=seed, **point)
        ledger.append("finished", trial="t0000")
    study: Any = NoFile()
    if folder is not None:
        study = StudyFile(folder / JOURNAL, ledger.state, space)
    return Engine(
        ledger=ledger,
        space=space,
        tasks=space.task_set,
        folder=folder or Path("nowhere"),
        store=CheckpointStore(folder or Path("nowhere")),
        data=None,
        limits=Limits(slots, threads=1),
        stages=stages,
        extra={},
        study=study,
        warn=print,
        log=lambda line: None,
    )


def alike(score: float, noise: float, tasks: tuple[str, ...]) -> dict[str, Any]:
    """All tasks with the same score."""
    interval = [score - noise, score + noise]
    task = {"metric": "accuracy", "value": score, "interval": interval, "loss": 0.5}
    return {"score": score, "interval": interval, "tasks": {name: dict(task) for name in tasks}}


def record(examples: int, scores: dict[str, Any]) -> dict[str, Any]:
    """An evaluation of the size that a trial reports."""
    name = f"step-{examples:08d}"
    return {
        "step": examples // 48,
        "examples": examples,
        **scores,
        "seconds": 1.0,
        "examples_per_second": 75.0,
        "checkpoint": name,
        "predictions": f"predictions/{name}.parquet",
    }


def simulate(
    engine: Engine,
    curve: Curve,
    speeds: Iterator[float],
    *,
    noise: float = 0.02,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[TrialState]:
    """Run the search, and yield each trial when it has closed.

    Each trial trains at a speed of its own and reports where a trial does, give or take `noise`.
    `around` is entered whenever the engine is at work.
    """
    points: dict[str, list[int]] = {}
    tasks = engine.tasks.names
    coming: list[tuple[float, str, int, float]] = []  # when, whose, at how many examples, speed
    now = 0.0
    while True:
        while True:
            with around():
                job = engine.next_job()
                if job is not None:
                    engine.started(job.trial, "host", 1)
            if job is None:
                break
            speed, known = next(speeds), job.known
            points[job.trial] = [point for point in evaluation_points(job) if point > known]
            first = points[job.trial][0]
            heapq.heappush(coming, (now + (first - known) / speed, job.trial, first, speed))
        if not coming:
            return
        now, name, examples, speed = heapq.heappop(coming)
        trial = engine.state.trials[name]
        scored = curve(trial, examples)
        if isinstance(scored, float):
            scored = alike(scored, noise, tuple(tasks))
        found = record(examples, scored)
        if isinstance(engine.ledger, Ledger):  # what the worker would have written
            place = engine.folder / "trials" / name / "checkpoints" / found["checkpoint"]
            (place / "model").mkdir(parents=True, exist_ok=True)
        with around():
            points[name].remove(examples)
            goes_on = engine.evaluated(name, found)
            if goes_on and not points[name]:
                engine.finished(name)
        if goes_on and points[name]:
            following = points[name][0]
            when = now + (following - examples) / speed
            heapq.heappush(coming, (when, name, following, speed))
        else:
            yield trial


def evaluation_points(job: Job) -> list[int]:
    settings = job.settings
    if at := settings.get("budget.eval_at"):
        return list(at)
    length, every = settings["budget.examples"], settings["budget.eval_every"]
    return [*range(every, length, every), length]
