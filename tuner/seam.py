"""The seam with Ray Tune: its search algorithm, scheduler, stopper and callback, each a few lines.

All four only pass on to the engine. Pickled by `Tuner()`, they leave everything behind: what a
search knows is in its ledger.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError
from ray.tune import Callback, Stopper
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search.search_algorithm import SearchAlgorithm

from tuner.engine import Engine
from tuner.failures import SearchRayTrial
from tuner.trial import OUTCOME, RECORD

PATIENCE = 10.0  # seconds for an actor to say where it is


class Unpickled:
    def __getstate__(self) -> dict[str, Any]:
        return {}


class LedgerSearch(Unpickled, SearchAlgorithm):
    """Hands out the trials that the engine wants started."""

    def __init__(self, engine: Engine, resources: Any) -> None:
        self.engine = engine
        self.resources = resources
        self.stopped = False

    def add_configurations(self, experiments: Any) -> None:
        (self.experiment,) = experiments if isinstance(experiments, list) else [experiments]

    def next_trial(self) -> Trial | None:
        job = None if self.stopped else self.engine.next_job()
        if job is None:
            return None
        return SearchRayTrial(
            self.experiment.run_identifier,
            config=job.as_config(),
            trial_id=job.trial,
            storage=self.experiment.storage,
            placement_group_factory=self.resources,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
            trial_name_creator=lambda trial: str(trial.trial_id),
        )

    def set_finished(self) -> None:
        self.stopped = True

    def is_finished(self) -> bool:
        # While draining too: with nothing left that runs, Ray would wait for a trial for minutes.
        return self.stopped or self.engine.done or self.engine.draining is not None


class RungScheduler(Unpickled, FIFOScheduler):
    """Hears every result first, so it is here that trials are recorded, stopped and paused."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Ray has no types here
        self.engine = engine
        self.controller: Any = None
        self.settled: set[int] = set()  # Ray's trials, by identity, that have come to rest

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self.controller = tune_controller

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        record = json.loads(result[RECORD])
        if record.get("pulse"):
            self.engine.pulse(trial.trial_id, int(record["examples"]))
        elif not self.engine.evaluated(trial.trial_id, record):
            return str(TrialScheduler.STOP)
        self.engine.tick()
        return str(TrialScheduler.PAUSE if self.engine.draining else TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if OUTCOME not in result:  # stopped by us, and in the ledger since then
            return
        outcome = json.loads(result[OUTCOME])
        if outcome.get("finished"):
            self.engine.finished(trial.trial_id)
        else:
            self.engine.failed(trial.trial_id, outcome)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        self._lost(trial)

    def _lost(self, trial: Trial) -> None:
        # A trial that is started again is a new one of Ray's under the same id; the old one stays
        # in Ray's list, in error, and must not be taken for the new.
        if id(trial) not in self.settled:
            self.settled.add(id(trial))
            self.engine.lost(trial.trial_id, getattr(trial, "failure", None))

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        return None if self.engine.draining else super().choose_trial_to_run(tune_controller)

    def at_rest(self) -> bool:
        """Nothing runs, and nothing is on its way to being saved."""
        trials = self.controller.get_trials() if self.controller else []
        return not any(trial.status == Trial.RUNNING for trial in trials)

    def settle(self) -> None:
        """Put into the ledger what has come to rest without a word to the scheduler."""
        for trial in self.controller.get_trials() if self.controller else []:
            if trial.status == Trial.ERROR:
                self._lost(trial)
            elif trial.status == Trial.PAUSED and trial.trial_id in self.engine.live:
                self.engine.paused(trial.trial_id)


class DrainStopper(Unpickled, Stopper):
    """Ends the experiment once everything that ran is saved."""

    def __init__(self, engine: Engine, scheduler: RungScheduler) -> None:
        self.engine = engine
        self.scheduler = scheduler

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        self.engine.tick()
        if not self.engine.draining or not self.scheduler.at_rest():
            return False
        self.scheduler.settle()
        return True


class Watcher(Unpickled, Callback):
    """Starts are recorded here, the live table is drawn, and silent errors are swept up."""

    def __init__(self, engine: Engine, scheduler: RungScheduler, draw: Callable[[], None]) -> None:
        self.engine = engine
        self.scheduler = scheduler
        self.draw = draw

    def on_trial_start(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        self.engine.started(trial.trial_id, *whereabouts(trial.temporary_state.ray_actor))

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        self.scheduler.settle()
        self.draw()


def whereabouts(actor: Any) -> tuple[str, int | None]:
    """Host and process of an actor, which has nothing else to do at this moment."""
    try:
        host, pid = ray.get(actor.where.remote(), timeout=PATIENCE)
        return str(host), int(pid)
    except (RayError, TimeoutError):
        return "", None  # dead already; Ray is about to say so
