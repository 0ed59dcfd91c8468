"""What a search does next, decided from the ledger alone. Knows nothing of Ray.

The adapters to Ray (`tuner.ray_backend`) report what happened and ask what to do; every answer is
in the ledger before it is given, so a search that dies at any moment goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.cli.text import settings_text, short
from model.common.errors import InputError
from model.common.secrets import brief
from model.common.untrusted import inside
from model.tasks.task_set import TaskSet
from tuner.engine.earlier import known_point
from tuner.engine.job import Job, training_budget
from tuner.engine.promotion import Promotion
from tuner.engine.sampling import Suggester
from tuner.engine.stages import REDUCTION, Stages
from tuner.engine.study import TASK_GP
from tuner.engine.study_file import StudyFile
from tuner.runs.folder import trial_folder
from tuner.runs.ledger import Ledger, faults_of
from tuner.runs.retention import CheckpointStore, surplus, wanted
from tuner.runs.state import (
    ANSWERS,
    CONFIRM,
    DEFAULT,
    DEVICE_MEMORY,
    DISTILLED,
    EARLIER,
    EXPECTED,
    MEMORY,
    PROMOTED,
    START,
    RunState,
    TrialState,
    Warn,
    noise_of,
    objective_value,
)
from tuner.space.space import Space

SAMPLED = "sampler"
# Why a search stops before all is done.
INTERRUPTED, TIME, FAILURES, LEDGER = "interrupted", "time", "failures", "ledger"
STORAGE = "storage"  # a failure's kind: it is not the trial's own, and ends no trial


@dataclass(frozen=True)
class Limits:
    """How far the search goes, and what it keeps."""

    slots: int
    threads: int
    final_threads: int = 0  # of a final that has the machine to itself; 0: as the others
    keep: int = 5
    reduction: float = REDUCTION
    evaluations: int | None = None  # of a training in full, if so many are asked for
    attempts: int = 4  # a trial that loses its machine so often has failed
    failures: int = 5  # trials failed in a row before the search stops
    deadline: float | None = None  # time.monotonic() by which to stop
    shared_gpu: bool = False  # trials have neighbours, which may have taken the memory


@dataclass
class Live:
    """A trial that is running now."""

    trial: str
    began: float
    examples: int = 0
    doing: str = "starting"  # then training or evaluating, as its worker tells
    placed: bool = False  # it has its worker, and with that its GPU


@dataclass
class Engine:
    ledger: Ledger
    space: Space
    tasks: TaskSet
    folder: Path
    store: CheckpointStore
    data: Path | None
    limits: Limits
    stages: Stages
    extra: Mapping[str, Any]  # settings that the command decides
    study: StudyFile
    warn: Warn
    log: Warn
    live: dict[str, Live] = field(default_factory=dict)
    own_gpu: set[str] = field(default_factory=set)  # trials that shall not share one again
    draining: str | None = None
    fatal: Exception | None = None
    kept: list[TrialState] = field(default_factory=list)  # closed ones with a checkpoint to keep
    heard: set[str] = field(default_factory=set)  # warnings that were said before
    replan: Callable[[float, float], Stages] | None = None  # by `for_time`'s pace and speed
    driver: dict[str, Any] | None = None  # what workers shall find in the run's lock

    def __post_init__(self) -> None:
        self.suggester = Suggester(self.state, self.space)
        self.promotion = self._promotion()
        self.pruned = set(self.promotion.pruned())  # that was told of, now or before a resume
        for trial in self.state.open_trials:  # at its rung, and its driver died before it rested
            if trial.evaluations and not trial.frozen and self.promotion.rests(trial):
                self._freeze(trial)
        for trial in self.state.trials.values():  # closed, and its driver died before tidying
            if trial.status != "open":
                self.store.drop_states(trial.id)
        self.tidy(self.state.trials.values())

    # --- what to do next --------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        return self.ledger.state

    @property
    def done(self) -> bool:
        return not self.state.open_trials and self.promotion.next() is None

    def next_job(self) -> Job | None:
        """A trial to start, or None while there is nothing to do or no slot."""
        while not (self.draining or self.fatal or self._is_full()):
            trial = self._waiting() or self._next_trial()
            if trial is None:
                return None
            try:
                job = self._job(trial)
            except InputError as error:  # settings that do not go together, too rare to be foreseen
                self.failed(trial.id, {"kind": "code", "reason": brief("; ".join(error.faults))})
                continue
            self.live[trial.id] = Live(trial.id, time.monotonic(), trial.examples)
            return job
        return None

    def _is_full(self) -> bool:
        """No slot is free, or a trial waits for a whole GPU, which parts of it would never be."""
        whole = any(t.trial in self.own_gpu and not t.placed for t in self.live.values())
        return whole or len(self.live) >= self.limits.slots

    def _waiting(self) -> TrialState | None:
        """A trial that was begun and goes on: it lost its driver or machine, or was promoted."""
        going = (t for t in self.state.open_trials if t.id not in self.live and not t.frozen)
        return min(going, key=lambda t: t.id not in self.own_gpu, default=None)

    def _next_trial(self) -> TrialState | None:
        step = self.promotion.next()
        if step is None:
            if not self.live:
                self._close_frozen(self.state.open_trials)
            return None
        if step.configuration is None and step.level:
            return self._create_final()
        if step.configuration is None:
            return self._create_search_trial()
        if step.seed is None or step.level == self.stages.top > 0:
            return self._promote(step.configuration, step.level, step.seed)
        return self._repeat(step.configuration, step.seed, step.level)

    def _create_search_trial(self) -> TrialState | None:
        seed = self.state.seed
        number = self.state.next_number
        if self.space.listed and self.space.start_from:
            return self._create_listed(number)
        if not any(trial.origin == DEFAULT for trial in self.state.search_trials):
            # Without a number, as no sampler is shown it: it may lie outside the space.
            return self._created(None, {}, {}, DEFAULT, seed)
        known, origin = known_point(self.state, self.space.start_from, number)
        fixed = None if known is None else self.space.params(known)
        found = self.suggester.next(fixed)
        if found is None:
            return self._exhausted()
        # A known point that was tried already gives its place to the sampler.
        origin = origin if fixed and fixed.items() <= found.params.items() else SAMPLED
        return self._created(found.number, found.params, found.settings, origin, seed)

    def _create_final(self) -> TrialState | None:
        """Settings that were not tried before, in full at once."""
        settings = self.promotion.expected_best()
        assert settings is not None  # or there would be no such step
        found = self.suggester.next(self.space.params(settings))
        assert found is not None  # they are left
        told = found.number, found.params, found.settings
        trial = self._created(*told, EXPECTED, self.state.seed, level=self.stages.top)
        self._tell_pruned(self._newly_pruned())
        return trial

    def _create_listed(self, number: int) -> TrialState | None:
        """The next of the points that are all there is; no sampler has a say."""
        if number >= len(self.space.start_from):
            return self._exhausted()
        params = self.space.params(self.space.start_from[number])
        return self._created(number, params, self.space.settings(params), START, self.state.seed)

    def _exhausted(self) -> TrialState | None:
        """Nothing is left to try: what is left of the budget goes into repeats with new seeds."""
        if self.replan is not None and not self.state.planned:  # by the clock, and no speed so far
            if self.live:
                return None  # which one of these will show
            for trial in reversed(self.state.closed_trials):
                self._plan(trial, warm=True)
        tried, left = len(self.state.search_trials), self.state.missing
        stages = self.stages.without(left)
        if not self._plan_again(stages, exhausted=True):
            return None
        self.log(f"all {tried} points of the space are tried; {stages.text()}")
        return self._next_trial()

    def _promote(
        self, configuration: str, level: int, seed: int | None = None
    ) -> TrialState | None:
        first = self.state.trials[configuration]
        if self.stages.promotion == "restart":
            created = self._created(
                *(None, first.params, first.settings, PROMOTED),
                first.seed if seed is None else seed,
                of=configuration,
                level=level,
            )
            self._tell_pruned(self._newly_pruned())
            return created
        if self._write("promoted", trial=configuration, level=level) is None:
            return None
        self.promotion.enter(first)
        return first

    def _repeat(self, of: str, seed: int, level: int) -> TrialState | None:
        settings = self.state.trials[of].settings
        return self._created(None, {}, settings, CONFIRM, seed, of=of, level=level)

    def distill(self, answers: Mapping[str, str]) -> None:
        """The best configuration once more, taught by the answers in these files of the run's."""
        best = self.state.best_trial()
        assert best is not None  # whose answers they are
        first = self.state.trials[best.configuration]
        settings = {**first.settings, **answers}
        self._created(
            *(None, first.params, settings, DISTILLED, first.seed),
            of=first.id,
            level=self.stages.top,
        )

    def _created(
        self,
        number: int | None,
        params: Mapping[str, Any],
        settings: Mapping[str, Any],
        origin: str,
        seed: int,
        of: str | None = None,
        level: int = 0,
    ) -> TrialState | None:
        name = self.state.next_id
        goes_on = self.stages.promotion == "continue" and origin != CONFIRM
        written = self._write(
            "created",
            trial=name,
            number=number,
            params=dict(params),
            settings=dict(settings),
            origin=origin,
            of=of,
            seed=seed,
            length=self.stages.rungs[-1 if goes_on else level].examples,
            level=level,
        )
        if written is None:
            return None
        trial: TrialState = self.state.trials[name]
        self.promotion.enter(trial)
        self.study.update(trial)
        return trial

    # --- trials that rest -------------------------------------------------------------------

    def _freeze(self, trial: TrialState) -> None:
        self.live.pop(trial.id, None)
        if self._write("frozen", trial=trial.id, examples=trial.examples) is None:
            return
        self.study.update(trial)
        self.log(f"{trial.id} waits at its rung: {self._result(trial)}")
        self._close_frozen(self.state.trials[name] for name in self.promotion.hopeless(trial.level))

    def _close_frozen(self, trials: Iterable[TrialState]) -> None:
        for trial in [trial for trial in trials if trial.frozen]:
            rung, reason = self.promotion.rung(trial), self.promotion.standing(trial)
            told = {"examples": trial.examples, "rung": rung, "reason": reason}
            if self._write("stopped", trial=trial.id, **told) is not None:
                self._closed(trial, self.promotion.pruned_text(trial))

    def _newly_pruned(self) -> list[TrialState]:
        """Trials that are done and go no further, of which nobody was told so far."""
        if self.stages.promotion != "restart":
            return []
        new = [each for each in self.promotion.pruned() if each not in self.pruned]
        self.pruned.update(new)
        return [at[0] for name, level in new if (at := self.state.at_rung(name, level))]

    def _tell_pruned(self, trials: Iterable[TrialState]) -> None:
        for trial in trials:
            self.log(f"{trial.id} {self.promotion.pruned_text(trial)}")

    def _job(self, trial: TrialState) -> Job:
        base, evaluations = self.space.base, self.limits.evaluations
        budget = training_budget(trial, self.stages, base, len(self.tasks), evaluations)
        extra = {**self.extra, **budget, "seed": trial.seed}
        if trial.origin == DISTILLED:  # the ledger has it relative to the run, which may move
            own = [key for key in ANSWERS if key in trial.settings]
            extra |= {key: str(inside(self.folder, trial.settings[key])) for key in own}
        config = self.space.config(trial.settings, self.tasks, extra)
        alone = self.stages.is_final(trial) and self.stages.final.places == 1
        alone = alone or trial.origin == DISTILLED
        return Job(
            trial=trial.id,
            settings=config.to_flat(),
            tasks=self.tasks.origin,
            data=None if self.data is None else str(self.data),
            out=str(trial_folder(self.folder, trial.id)),
            threads=(alone and self.limits.final_threads) or self.limits.threads,
            own_gpu=trial.id in self.own_gpu,
            known=trial.examples,
            driver=self.driver,
            epoch=self.state.epoch,
        )

    # --- what happened ----------------------------------------------------------------------

    def started(self, name: str, host: str, pid: int | None, **more: Any) -> None:
        trial = self.state.trials[name]
        if live := self.live.get(name):
            live.placed = True
        self._write("started", trial=name, attempt=trial.attempts, node=host, pid=pid, **more)
        again = f", attempt {trial.attempts}" if trial.attempts > 1 else ""
        self.log(f"{name} started ({self.origin_text(trial)}{again}): {self.trial_text(trial)}")

    def heartbeat(self, name: str, examples: int, doing: str = "training") -> None:
        if live := self.live.get(name):
            live.examples, live.doing = examples, doing

    def note(self, name: str, text: str) -> None:
        """What a trial warns about: its own checkpoints, or something that others may say too."""
        if text.startswith("checkpoint ") or text not in self.heard:
            self.heard.add(text)
            self.warn(f"{name}: {text}")

    def evaluated(self, name: str, record: Mapping[str, Any]) -> bool:
        """Take an evaluation in. False if the trial is to stop."""
        self.heartbeat(name, int(record["examples"]))
        trial = self.state.trials[name]
        try:
            values = {goal: objective_value(record, goal) for goal in self.state.objectives}
        except (KeyError, TypeError, ValueError) as error:
            reason = f"an evaluation without its score: {' '.join(map(str, error.args))}"
            self.failed(name, {"kind": "metric", "reason": reason})
            return False
        event = {**record, "trial": name, "values": values}
        if faults := faults_of("evaluated", event):  # a loss or metric that is not a number
            self.failed(name, {"kind": "metric", "reason": "; ".join(faults)})
            return False
        if self._write("evaluated", **event) is None:
            return False
        self.study.update(trial)
        self.promotion.rank(trial)
        if not self.promotion.rests(trial):
            return True
        self._freeze(trial)
        return False

    def finished(self, name: str) -> None:
        if self._write("finished", trial=name) is not None:
            trial = self.state.trials[name]
            self.promotion.rank(trial)
            pruned, said = self._newly_pruned(), f"finished: {self._result(trial)}"
            self._closed(trial, self.promotion.pruned_text(trial) if trial in pruned else said)
            self._tell_pruned(each for each in pruned if each is not trial)
            self._plan(trial)

    def _result(self, trial: TrialState) -> str:
        """overall .357 ± .029 after 80 examples, rank 4 of 5"""
        goal, goals = self.state.goal, self.state.objectives
        best = trial.best(goal)
        if best is None:
            return "no evaluation"
        noise = noise_of(best, goals)
        around = f" ± {short(noise)}" if noise else ""
        said = f"{goal} {short(objective_value(best, goal))}{around}"
        apart = trial.is_repeat or self.state.has_another_seed(trial)
        rank = "" if apart else self.promotion.rank_text(trial)
        return f"{said} after {trial.examples:,} examples" + (f", {rank}" if rank else "")

    def _plan(self, trial: TrialState, warm: bool = False) -> None:
        """Divide the time that is left, once a trial has shown how fast they are.

        Not the first ones, whose workers had to start, unless there are no others.
        """
        entry = trial.evaluations[-1] if trial.evaluations else {}
        speed, before = entry.get("examples_per_second"), self.state.closed_trials
        slots = self.limits.slots
        warm = warm or sum((each.closed or 0) <= trial.created for each in before) >= slots
        if self.replan is None or self.state.planned or not (speed and warm):
            return
        pace = trial.examples / max(1e-3, (trial.closed or 0) - trial.created)
        stages = self.replan(pace, speed)
        if self._plan_again(stages, pace=pace, speed=speed):
            self.log(f"{speed:,.0f} examples/s a trial: {stages.text()}")

    def _plan_again(self, stages: Stages, **why: Any) -> bool:
        rungs = [[rung.examples, rung.places] for rung in stages.rungs]
        told = {"rungs": rungs, "num_samples": stages.trials, "race": list(stages.race)}
        if self._write("planned", **why, **told) is None:
            return False
        self.stages = stages
        self.promotion = self._promotion()
        self.study.rewrite()
        return True

    def _promotion(self) -> Promotion:
        points = self.suggester.points if self.state.sampler == TASK_GP else None
        return Promotion(self.state, self.stages, self.limits.reduction, points)

    def failed(self, name: str, failure: Mapping[str, str]) -> None:
        if failure["kind"] == STORAGE:
            self.live.pop(name, None)
            self.storage_lost(failure["reason"])
            return
        if failure["kind"] == DEVICE_MEMORY:
            if self.limits.shared_gpu and name not in self.own_gpu:
                # Not in the ledger: that the point does not fit would be news for the sampler.
                self.own_gpu.add(name)
                self.live.pop(name, None)
                self.warn(f"{name}: out of memory beside others; once more with a GPU to itself")
                return
            failure = {**failure, "kind": MEMORY}
        if self._write("failed", trial=name, **{"traceback": "", **failure}) is None:
            return
        self._closed(self.state.trials[name], f"failed ({failure['kind']}): {failure['reason']}")
        if len(self.state.failures_in_a_row) >= self.limits.failures:
            self.drain(FAILURES)

    def lost(self, name: str, failure: Mapping[str, str] | None) -> None:
        """The trial's actor is gone. A lost machine costs the trial an attempt, not its life."""
        trial = self.state.trials[name]
        failure = failure or {"kind": "infrastructure", "reason": "its worker died"}
        self.live.pop(name, None)
        if trial.status != "open":
            return
        if failure["kind"] != "infrastructure" or trial.losses + 1 >= self.limits.attempts:
            self.failed(name, failure)
        else:
            self.warn(f"{name}: {failure['reason'][:120]}; it goes on from its last checkpoint")

    def paused(self, name: str) -> None:
        live = self.live.pop(name, None)
        self._write("paused", trial=name, examples=live.examples if live else 0)

    def _closed(self, trial: TrialState, said: str) -> None:
        self.live.pop(trial.id, None)
        self.promotion.rank(trial)
        self.study.update(trial)
        self.log(f"{trial.id} {said}")
        self.store.closed(trial.id)
        self.tidy([*self.kept, trial])

    def tidy(self, trials: Iterable[TrialState]) -> None:
        """Delete the checkpoints of these that nothing needs; said in the ledger first."""
        trials = list(trials)
        chosen = wanted(self.state, self.limits.keep, trials)
        self.kept = [trial for trial in trials if trial.id in chosen]
        for name, checkpoints in surplus(trials, chosen, self.store).items():
            if self._write("removed", trial=name, checkpoints=checkpoints) is not None:
                self.store.delete(name, checkpoints)

    # --- stopping ---------------------------------------------------------------------------

    def drain(self, reason: str) -> None:
        """Start nothing more, save what runs, and stop."""
        self.draining = self.draining or reason

    def storage_lost(self, reason: str) -> None:
        """Trials that could not be saved go on later from where storage has them."""
        if self.draining != STORAGE:
            self.warn(f"{reason}; saving what can be saved, and stopping")
        self.drain(STORAGE)

    def tick(self) -> None:
        if trouble := self.store.trouble():
            self.storage_lost(trouble)
        deadline = self.limits.deadline
        if deadline is not None and time.monotonic() > deadline:
            self.drain(TIME)

    def _write(self, event: str, **fields: Any) -> Any:
        """A ledger that cannot be written ends the search in good order, not in a callback."""
        if self.fatal is not None:
            return None
        try:
            return self.ledger.append(event, **fields)
        except (OSError, ValueError) as error:
            self.fatal = error
            self.drain(LEDGER)
            return None

    def origin_text(self, trial: TrialState) -> str:
        """How it came about, in words."""
        if trial.origin == START:
            points = [self.space.params(point).items() for point in self.space.start_from]
            fitting = [(len(p), -n) for n, p in enumerate(points, 1) if p <= trial.params.items()]
            place = -max(fitting)[1] if fitting else None  # of those it completes, the fullest
            return f"start point {place} of {len(points)}" if place else "start point"
        if trial.origin == PROMOTED and self.stages.is_final(trial):
            return "final"
        told = {SAMPLED: f"proposed by {self.state.sampler}", EARLIER: "of an earlier run"}
        told |= {CONFIRM: "repeat", EXPECTED: "final, forecast to be best"}
        return told.get(trial.origin, trial.origin)

    def trial_text(self, trial: TrialState) -> str:
        if trial.origin == DEFAULT:
            return "the default configuration"
        if trial.origin == DISTILLED:
            return f"{trial.of} again, taught by the best ensemble"
        if trial.origin == CONFIRM:
            return f"{trial.of} again with seed {trial.seed}"
        if trial.origin == PROMOTED:
            seed = f", seed {trial.seed}" if self.state.has_another_seed(trial) else ""
            full = "in full, " if self.stages.is_final(trial) else ""
            return f"{trial.of}'s settings {full}for {trial.length:,} examples{seed}"
        return settings_text(trial.params)
