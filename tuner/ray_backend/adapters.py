"""The adapters to Ray Tune: its search algorithm, scheduler, stopper and callback.

All four only pass on to the engine. Pickled by `Tuner()`, they leave everything behind: what a
search knows is in its ledger.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import ray
from ray._private.state import actors
from ray.exceptions import RayError
from ray.tune import Callback, Stopper
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search.search_algorithm import SearchAlgorithm

from model.common.secrets import brief, redact
from tuner.engine.engine import Engine
from tuner.ray_backend.failures import SearchRayTrial
from tuner.ray_backend.heartbeat import HeartbeatWatch, draining_nodes
from tuner.ray_backend.resources import Resources
from tuner.ray_backend.trainable import NOTES, OUTCOME, RECORD

PATIENCE = 10.0  # seconds for an actor to say where it is
DRAINED = 900.0  # seconds for running trials to be saved; what takes longer goes on from its last
LOOK_AROUND = 5.0  # seconds between two looks whether any machine is left
MACHINES = "no machine is left"  # why a search stops before all is done


class Unpickled:
    def __getstate__(self) -> dict[str, Any]:
        return {}


class LedgerSearch(Unpickled, SearchAlgorithm):
    """Hands out the trials that the engine wants started."""

    def __init__(self, engine: Engine, resources: Resources) -> None:
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
            placement_group_factory=self.resources.placement(own_gpu=job.own_gpu),
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
        # Ray's trials, by identity: one that is started again has the same id.
        self.going: dict[int, Trial] = {}
        self.ended: list[Trial] = []  # and not yet forgotten
        self.controller: Any = None
        self.watch = HeartbeatWatch()
        self.nodes: dict[str, str] = {}  # trial -> the machine that it runs on
        self.leaving: set[int] = set()  # those to be saved, as their machine will go

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        self.controller = controller_of(tune_controller)
        self.going[id(trial)] = trial

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._pass_on(trial, result)
        self.watch.heard(trial.trial_id)
        record = json.loads(result[RECORD])
        if record.get("heartbeat"):
            self.engine.heartbeat(trial.trial_id, int(record["examples"]), record["doing"])
        elif not self.engine.evaluated(trial.trial_id, record):
            return str(TrialScheduler.STOP)
        self.engine.tick()
        going = self.engine.draining or id(trial) in self.leaving
        return str(TrialScheduler.PAUSE if going else TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if OUTCOME not in result:  # stopped by us, and in the ledger since then
            return
        self._pass_on(trial, result)
        outcome = json.loads(result[OUTCOME])
        if outcome.get("finished"):
            self.engine.finished(trial.trial_id)
        else:
            # The driver's environment may hold secrets that the worker does not know for any.
            told = {key: redact(outcome[key]) for key in outcome}
            self.engine.failed(trial.trial_id, told | {"reason": brief(outcome["reason"])})

    def _pass_on(self, trial: Trial, result: dict[str, Any]) -> None:
        for note in json.loads(result.get(NOTES, "[]")):
            self.engine.note(trial.trial_id, note)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        self._lost(trial)

    def _lost(self, trial: Trial) -> None:
        # Only once: the old one of a trial that is started again must not be taken for the new.
        if self._end(trial):
            self.engine.lost(trial.trial_id, getattr(trial, "failure", None))

    def _end(self, trial: Trial) -> bool:
        if self.going.pop(id(trial), None) is None:
            return False
        self.leaving.discard(id(trial))
        self.ended.append(trial)
        return True

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        if self.engine.draining:
            return None
        found = super().choose_trial_to_run(tune_controller)
        return None if found is None or id(found) in self.leaving else found

    def at_rest(self) -> bool:
        """Nothing runs, and nothing is on its way to being saved."""
        return not any(trial.status == Trial.RUNNING for trial in self.going.values())

    def settle(self) -> None:
        """Put into the ledger what has ended without a word to the scheduler."""
        for trial in list(self.going.values()):
            if trial.status == Trial.ERROR:
                self._lost(trial)
            elif trial.status == Trial.TERMINATED:
                self._end(trial)
            elif trial.status == Trial.PAUSED and trial.trial_id in self.engine.live:
                self.engine.paused(trial.trial_id)
                if id(trial) in self.leaving:  # it goes on elsewhere, as a new one to Ray
                    self.leaving.discard(id(trial))
                    self.controller.stop_trial(trial)
        self._reuse_workers(not self.leaving)

    def running(self) -> dict[str, Trial]:
        return {t.trial_id: t for t in self.going.values() if t.status == Trial.RUNNING}

    def began(self, trial: Trial) -> tuple[str, int | None, dict[str, Any]]:
        """Where it runs; watched from here on, even if nobody can say where."""
        host, pid, more = whereabouts(trial.temporary_state.ray_actor)
        self.watch.started(trial.trial_id, host, pid)
        self.nodes[trial.trial_id] = str(more.pop("machine", ""))
        return host, pid, more

    def end_silent(self) -> None:
        """End workers without a sign of life: their trials go on elsewhere."""
        running = self.running()
        for name in self.watch.unplaced(running):
            host, pid, more = entry_of(running[name].temporary_state.ray_actor)
            if pid is not None:
                self.watch.placed(name, host, pid)
                self.nodes[name] = more["machine"]
        for name, why in self.watch.silent(running).items():
            self.end_worker(running[name], f"{why}; its worker is ended")

    def end_worker(self, trial: Trial, said: str) -> None:
        self.engine.warn(f"{trial.trial_id}: {said}")
        self.watch.end(trial.trial_id, trial.temporary_state.ray_actor)

    def leave(self, nodes: set[str]) -> None:
        """Save the trials of machines that will go, while there is time."""
        for name, trial in self.running().items():
            if self.nodes.get(name) in nodes and id(trial) not in self.leaving:
                self.leaving.add(id(trial))
                self._reuse_workers(False)
                self.engine.warn(f"{name}: its machine is about to go; it is saved and moves on")

    def _reuse_workers(self, may: bool) -> None:
        """Ray hands a worker that is free to the next trial at once. One on a machine that will go
        has to end instead, or the trial that was saved would be back on that machine."""
        if self.controller is not None:
            self.controller._reuse_actors = may

    def evict_finished(self) -> None:
        self.ended = [trial for trial in self.ended if not evict_finished(self.controller, trial)]


class DrainStopper(Unpickled, Stopper):
    """Ends the experiment once everything that ran is saved."""

    def __init__(self, engine: Engine, scheduler: RungScheduler) -> None:
        self.engine = engine
        self.scheduler = scheduler
        self.looked = time.monotonic()
        self.drained: float | None = None  # when what runs must be saved

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        self.engine.tick()
        self._look_around()
        if not self.engine.draining:
            return False
        if not self.scheduler.at_rest():
            self._hurry()
            return False
        self.scheduler.settle()
        return True

    def _hurry(self) -> None:
        """Saving has a bound: a trial that does not end within it is ended as it is."""
        self.drained = self.drained or time.monotonic() + DRAINED
        if time.monotonic() > self.drained:
            self.drained = time.monotonic() + DRAINED
            for trial in self.scheduler.running().values():
                said = f"not saved within {DRAINED:.0f} s; it goes on from its last checkpoint"
                self.scheduler.end_worker(trial, said)

    def _look_around(self) -> None:
        """With no machine left, Ray would wait for one for ever."""
        if time.monotonic() - self.looked < LOOK_AROUND:
            return
        self.looked = time.monotonic()
        if not any(node["Alive"] for node in ray.nodes()):
            self.engine.drain(MACHINES)
        self.scheduler.end_silent()
        self.scheduler.leave(draining_nodes())


class RunCallback(Unpickled, Callback):
    """Starts are recorded here, the live table is drawn, and silent errors are swept up."""

    def __init__(self, engine: Engine, scheduler: RungScheduler, draw: Callable[[], None]) -> None:
        self.engine = engine
        self.scheduler = scheduler
        self.draw = draw

    def on_trial_start(self, iteration: int, trials: Any, trial: Trial, **info: Any) -> None:
        host, pid, more = self.scheduler.began(trial)
        self.engine.started(trial.trial_id, host, pid, **more)

    def on_step_end(self, iteration: int, trials: Any, **info: Any) -> None:
        self.scheduler.settle()
        self.scheduler.evict_finished()
        self.draw()


def whereabouts(actor: Any) -> tuple[str, int | None, dict[str, Any]]:
    """Host, process and more of an actor, which has nothing else to do at this moment."""
    try:
        host, pid, more = ray.get(actor.where.remote(), timeout=PATIENCE)
        return str(host), int(pid), dict(more)
    except (RayError, TimeoutError):
        return entry_of(actor)  # stopped, or on a machine with much to do


def entry_of(actor: Any) -> tuple[str, int | None, dict[str, Any]]:
    """The same from Ray's own table, which knows it of actors that do not answer."""
    try:
        entry = actors(actor._actor_id.hex())
        if entry["State"] == "ALIVE":
            machine = entry["Address"]["NodeID"]
            node = next(node for node in ray.nodes() if node["NodeID"] == machine)
            more = {"address": node["NodeManagerAddress"], "machine": machine}
            return str(node["NodeManagerHostname"]), int(entry["Pid"]), more
    except Exception:  # Ray's own store is away, or another version has another table
        pass
    return "", None, {}  # dead already; Ray is about to say so


# --- trials that have ended -----------------------------------------------------------------------
#
# Ray holds every trial of an experiment in memory, and writes all of them to disk every few
# seconds, for a restore that a search has no use for: what it knows is in its ledger.

# The controller's own collections that would hold an ended trial for ever. Where another version
# of Ray has them under other names, trials are kept as before.
SETS = ("_stopped_trials", "_failed_trials", "_live_trials", "_trials_to_cache")


def controller_of(passed: Any) -> Any:
    """Ray hands a wrapper to its schedulers that hides these."""
    return getattr(passed, "_tune_controller", passed)


def evict_finished(controller: Any, trial: Trial) -> bool:
    """False while Ray still has something to do with the trial or its actor."""
    if not trial.is_finished() or trial in getattr(controller, "_trial_to_actor", ()):
        return False
    trials = controller.get_trials()
    if trial in trials:
        if len(trials) == 1:
            return False  # with none at all, Ray would look for them on disk at the end
        trials.remove(trial)
    for name in SETS:
        getattr(controller, name, set()).discard(trial)
    for callback in getattr(getattr(controller, "_callbacks", None), "_callbacks", ()):
        for kept in vars(callback).values():  # as that of Ray's that prints progress
            if isinstance(kept, dict):
                kept.pop(trial, None)
            elif isinstance(kept, set):
                kept.discard(trial)
    getattr(controller, "_trial_metadata", {}).pop(trial.trial_id, None)
    trial.run_metadata.last_result = {}  # whoever else still holds the trial
    return True
