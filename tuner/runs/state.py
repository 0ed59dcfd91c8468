"""What a run has done so far: a fold over the events of its ledger, and nothing else.

The study, the rungs of early stopping, the table of results and the plan for going on are all
made from this, so whatever is true of it after a crash is true of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from model.common.run_files import OVERALL as OVERALL
from tuner.runs.index import Index
from tuner.runs.request import PromotionName

Event = dict[str, Any]
Warn = Callable[[str], None]
Status = Literal["open", "finished", "stopped", "failed"]  # as the ledger has it
# What people are told of a trial, wherever they look: see `RunState.outcome`.
Outcome = Literal["finished", "promoted", "waiting", "pruned", "failed", "lost", "running"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

DEFAULT = "default"  # origin of the default configuration's trial
START = "start_from"  # origin of a point that the space names
EARLIER = "warm_start"  # origin of one of the best of an earlier run
CONFIRM = "confirm"  # origin of a repeat of an earlier trial with another seed
ANSWERS = ("distill.teacher", "distill.text")  # settings whose files a distilled run is taught by
DISTILLED = "distilled"  # origin of a run that the best ensemble taught, when all else was done
EXPECTED = "expected"  # origin of a final that the model of the results put together
PROMOTED = "promoted"  # origin of a longer run of an earlier trial's configuration
INFRASTRUCTURE = "infrastructure"  # kind of a failure that says nothing about the trial
MEMORY = "memory"  # a failure that tells the sampler to keep away
DEVICE_MEMORY = "device memory"  # a GPU's, which a trial may have to itself; in the ledger MEMORY
OVERALL_NAMES = (OVERALL, "score")  # under which the overall score is an objective

# What each event must carry; more is welcome. docs/ledger.md says what it all means.
EVENTS: dict[str, tuple[str, ...]] = {
    "run": ("version", "name", "objectives", "num_samples", "seed", "sampler", "resumed"),
    "created": ("trial", "number", "params", "settings", "origin", "seed"),
    "started": ("trial", "attempt"),
    "evaluated": ("trial", "examples", "score"),
    "paused": ("trial", "examples"),
    "frozen": ("trial", "examples"),
    "promoted": ("trial", "level"),
    "planned": ("rungs", "num_samples"),
    "earlier": ("name", "from_tasks", "starts", "results"),
    "finished": ("trial",),
    "stopped": ("trial", "examples", "rung", "reason"),
    "failed": ("trial", "kind", "reason"),
    "removed": ("trial", "checkpoints"),
    "end": ("reason",),
}
CLOSING: tuple[Status, ...] = ("finished", "stopped", "failed")
OVER = ("complete", "time")  # reasons of an end after which nobody is trained further


def trial_id(index: int) -> str:
    return f"t{index:04d}"


def objective_value(evaluation: Mapping[str, Any], objective: str) -> float:
    """One objective of an evaluation: a task's metric, or the overall score."""
    if objective in evaluation.get("values", {}):
        return float(evaluation["values"][objective])
    if objective in evaluation.get("tasks", {}):
        return float(evaluation["tasks"][objective]["value"])
    if objective in OVERALL_NAMES:
        return float(evaluation["score"])
    raise KeyError(f"the evaluation has no objective '{objective}'")


def is_judged(evaluation: Mapping[str, Any], objective: str) -> bool:
    return objective in OVERALL_NAMES or any(
        objective in evaluation.get(part, {}) for part in ("values", "tasks")
    )


def objective_score(evaluation: Mapping[str, Any], objectives: Sequence[str]) -> float:
    """One number to judge by: the objective, or the mean of several."""
    return sum(objective_value(evaluation, name) for name in objectives) / len(objectives)


def noise_of(evaluation: Mapping[str, Any], objectives: Sequence[str]) -> float:
    """How far `objective_score` may be off for the dev set's size: half the 95 % interval.

    For several objectives the mean of theirs, which is on the safe side.
    """

    def half(objective: str) -> float:
        of_task = evaluation.get("tasks", {}).get(objective)
        ends = (evaluation if of_task is None else of_task).get("interval")
        return (ends[1] - ends[0]) / 2 if ends else 0.0

    return sum(map(half, objectives)) / len(objectives)


@dataclass
class TrialState:
    """One trial. It is open until finished, stopped or failed; the first of these holds."""

    id: str
    number: int | None  # of the sampler's ask; None for the default and for further runs
    params: dict[str, Any]
    settings: dict[str, Any]
    origin: str
    of: str | None
    seed: int
    created: float  # unix seconds
    order: int  # which event of the ledger created it
    length: int | None = None  # examples of its whole training; None: as many as the run's trials
    level: int = 0  # the rung that it runs for, counted from the shortest
    frozen: bool = False  # it rests at its rung: its slot is free, and it may go on from there
    attempts: int = 0  # times it was started
    losses: int = 0  # of these, after its machine was lost; an interrupted search is no loss
    running: bool = False
    paused: bool = False
    evaluations: list[Event] = field(default_factory=list)  # by examples, each count once
    removed: set[str] = field(default_factory=set)  # checkpoints that were deleted
    status: Status = "open"
    closed: float | None = None
    closed_order: int | None = None
    reason: str = ""
    kind: str | None = None  # of the failure
    traceback: str = ""
    rung: int | None = None  # where it was stopped

    def __repr__(self) -> str:
        score = f", score {best['score']:.3f}" if (best := self.best()) else ""
        ended = "" if self.status == "finished" else f", {self.status}"
        return f"TrialState({self.id}{ended}{score}, {self.examples} examples)"

    @property
    def is_repeat(self) -> bool:
        """No part of the search itself: an earlier trial again, with another seed or a teacher."""
        return self.origin in (CONFIRM, DISTILLED)

    @property
    def configuration(self) -> str:
        """The trial that its settings were first tried in: itself, if it is no further run."""
        return self.of or self.id

    @property
    def examples(self) -> int:
        """Examples seen at the last evaluation."""
        return int(self.evaluations[-1]["examples"]) if self.evaluations else 0

    def best(self, objective: str = OVERALL) -> Event | None:
        """Its best evaluation by the overall score or by one task; the earlier of equals."""
        return max(
            self.evaluations, key=lambda entry: objective_value(entry, objective), default=None
        )

    def chosen(self, objectives: Sequence[str]) -> Event | None:
        """The evaluation that stands for the trial, one whose checkpoint is always kept.

        With one objective that is the best by it; with several, the best overall. Of a distilled
        run it is the last: a choice of its best would be one that nothing cross-fits.
        """
        if self.origin == DISTILLED:
            return self.evaluations[-1] if self.evaluations else None
        return self.best(objectives[0] if len(objectives) == 1 else OVERALL)

    def evaluated(self, event: Event) -> None:
        # A part that was done again after a crash reports again: the later report counts, as
        # its checkpoint is the one that is there.
        self.removed.discard(event.get("checkpoint", ""))
        kept = [entry for entry in self.evaluations if entry["examples"] != event["examples"]]
        self.evaluations = sorted([*kept, event], key=lambda entry: int(entry["examples"]))


@dataclass
class RunState:
    """A run and its trials, in the order of their creation."""

    trials: dict[str, TrialState] = field(default_factory=dict)
    name: str = ""
    version: str = ""
    objectives: list[str] = field(default_factory=lambda: [OVERALL])
    num_samples: int = 0
    seed: int = 0
    sampler: str = ""
    rungs: list[tuple[int, int]] = field(default_factory=list)  # examples and places of each
    promotion: PromotionName = "restart"  # from one to the next
    race: tuple[int, int] = (0, 0)  # the best N again over S further seeds, before the finals
    planned: bool = False  # whether the rungs follow from the speed that was measured
    earlier: list[Event] = field(default_factory=list)  # what other runs knew of this one
    starts: int = 0  # times a driver began or went on
    epoch: int = 0  # of the driver that the run belongs to: each has a higher one
    driver: str = ""  # who that is
    seconds: float = 0.0  # from each start to its last event; in between nobody trained
    _at: float | None = field(default=None, repr=False, compare=False)  # the last event's time
    ended: str | None = None  # why the last driver said it was done; None if it did not
    reports: list[Event] = field(default_factory=list)  # all that was evaluated, as it came
    failures_in_a_row: list[str] = field(default_factory=list)  # trials, infrastructure's apart
    longest_row: list[str] = field(default_factory=list)  # of failures since the driver began
    events: int = 0
    warn: Warn = field(default=print, repr=False, compare=False)
    _unknown: set[str] = field(default_factory=set, repr=False, compare=False)
    _index: Index = field(default_factory=Index, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"RunState({self.name!r}: {self.outcomes_text() or 'no trials'})"

    @classmethod
    def from_events(cls, events: Iterable[Event], warn: Warn = print) -> RunState:
        state = cls(warn=warn)
        for event in events:
            state.apply(event)
        return state

    def apply(self, event: Event) -> None:
        """Take in one event. What a newer version wrote and this one does not know is ignored."""
        self.events += 1
        name = event["event"]
        if name != "run" and self._at is not None:
            self.seconds += max(0.0, event["time"] - self._at)
        self._at = event["time"]
        if name not in EVENTS:
            self._warn_once(f"the ledger has '{name}' events, which this version does not know")
        elif name == "run":
            self._run(event)
        elif name == "planned":
            self.planned, self.num_samples = True, event["num_samples"]
            self.rungs = [(examples, places) for examples, places in event["rungs"]]
            self.race = tuple(event.get("race", (0, 0)))
        elif name == "earlier":
            self.earlier.append(event)
        elif name == "end":
            self.ended = event["reason"]
        elif name == "created":
            self._created(event)
        elif event["trial"] not in self.trials:
            self._warn_once(f"the ledger speaks of {event['trial']} but not of its creation")
        else:
            self._of_trial(self.trials[event["trial"]], event)

    def takes(self, event: str, trial: str | None) -> bool:
        """False for what would change nothing: a trial that is closed stays as it is."""
        known = self.trials.get(trial or "")
        return known is None or event == "removed" or known.status == "open"

    def _warn_once(self, message: str) -> None:
        if message not in self._unknown:
            self._unknown.add(message)
            self.warn(f"{message}; ignored")

    def _run(self, event: Event) -> None:
        self.name, self.version = event["name"], event["version"]
        self.objectives, self.num_samples = list(event["objectives"]), event["num_samples"]
        self.seed, self.sampler = event["seed"], event["sampler"]
        self.rungs = [(examples, places) for examples, places in event.get("rungs", ())]
        self.promotion = event.get("promotion", "restart")
        self.race = tuple(event.get("race", (0, 0)))
        self.starts += 1
        self.epoch = max(self.epoch + 1, event.get("epoch", 0))
        self.driver = event.get("driver", "")
        self.ended = None
        self._index.rank((trial, self._score(trial)) for trial in self._index.ended)
        # Whoever goes on has done something about them.
        self.failures_in_a_row, self.longest_row = [], []
        for trial in self._index.open.values():
            trial.running = False

    def _created(self, event: Event) -> None:
        if event["trial"] in self.trials:
            self._warn_once(f"the ledger creates {event['trial']} twice")
            return
        if (of := event.get("of")) is not None and of not in self.trials:
            self._warn_once(f"the ledger has {event['trial']} of {of}, which is not there")
            return
        trial = TrialState(
            id=event["trial"],
            number=event["number"],
            params=event["params"],
            settings=event["settings"],
            origin=event["origin"],
            of=event.get("of"),
            seed=event["seed"],
            created=event["time"],
            order=self.events,
            length=event.get("length"),
            level=event.get("level", 0),
        )
        self.trials[trial.id] = trial
        self._index.created(trial)

    def _of_trial(self, trial: TrialState, event: Event) -> None:
        name = event["event"]
        if not self.takes(name, trial.id):
            return
        if name == "started":
            trial.attempts = max(trial.attempts, event["attempt"] + 1)
            trial.losses += trial.running  # started again, and nobody had stopped it
            trial.running, trial.paused, trial.frozen = True, False, False
        elif name == "evaluated":
            if not all(is_judged(event, goal) for goal in self.objectives):
                self._warn_once(f"the ledger has evaluations of {trial.id} without its objective")
                return
            before = trial.examples
            trial.evaluated(event)
            self.reports.append(event)
            self._index.examples += max(0, trial.examples - before)
        elif name == "paused":
            trial.running, trial.paused = False, True
        elif name == "frozen":
            trial.running, trial.frozen = False, True
        elif name == "promoted":
            trial.level, trial.frozen = event["level"], False
        elif name == "removed":
            trial.removed.update(event["checkpoints"])
        else:
            self._close(trial, event)

    def _close(self, trial: TrialState, event: Event) -> None:
        trial.status = event["event"]
        trial.closed, trial.closed_order = event["time"], self.events
        trial.running = trial.paused = trial.frozen = False
        trial.reason, trial.kind = event.get("reason", ""), event.get("kind")
        trial.traceback, trial.rung = event.get("traceback", ""), event.get("rung")
        if trial.status != "failed":
            self.failures_in_a_row = []
        elif trial.kind != INFRASTRUCTURE:
            self.failures_in_a_row = [*self.failures_in_a_row, trial.id]
            self.longest_row = max(self.longest_row, self.failures_in_a_row, key=len)
        self._index.closed(trial, self._score(trial))

    def _score(self, trial: TrialState) -> float | None:
        """What a trial is ranked by; None if it is not."""
        best = trial.best(self.goal) if trial.status == "finished" else None
        return None if best is None else objective_value(best, self.goal)

    # --- what is asked of it ----------------------------------------------------------------

    @property
    def goal(self) -> str:
        """What trials are ranked by: the one objective, or overall where there are several."""
        return self.objectives[0] if len(self.objectives) == 1 else OVERALL

    @property
    def search_trials(self) -> list[TrialState]:
        """One for each configuration: further runs of one are not among them."""
        return list(self._index.search)

    @property
    def repeats(self) -> list[TrialState]:
        return list(self._index.repeats)

    @property
    def further_seeds(self) -> list[TrialState]:
        """Of finals: the same settings and length, and another seed."""
        return list(self._index.further)

    def has_another_seed(self, trial: TrialState) -> bool:
        """Than the trial that its settings were first tried in."""
        return trial.seed != self.trials.get(trial.configuration, trial).seed

    @property
    def distilled(self) -> list[TrialState]:
        return list(self._index.distilled)

    def runs_of(self, configuration: str) -> Sequence[TrialState]:
        """The trial and the longer runs of its settings, with the same seed, as they came."""
        return self._index.runs[configuration]

    def is_default(self, trial: TrialState) -> bool:
        first = self.trials.get(trial.configuration, trial)
        return first.origin == DEFAULT

    def at_rung(self, configuration: str, level: int) -> tuple[TrialState, Event] | None:
        """The run and the evaluation that a configuration is ranked by at a rung."""
        for trial in self.runs_of(configuration):
            entry = None
            if self.promotion == "continue" and level < len(self.rungs):
                examples, _ = self.rungs[level]
                entry = next((e for e in trial.evaluations if e["examples"] >= examples), None)
            elif trial.level == level and trial.status == "finished":
                entry = trial.chosen(self.objectives)
            if entry is not None:
                return trial, entry
        return None

    @property
    def open_trials(self) -> list[TrialState]:
        return list(self._index.open.values())

    @property
    def closed_trials(self) -> Sequence[TrialState]:
        """In the order in which they closed; only ever grows. Not to be changed."""
        return self._index.ended

    @property
    def missing(self) -> int:
        """Trials still to be created; those that failed count as done."""
        return max(0, self.num_samples - self._index.counts.total())

    @property
    def next_number(self) -> int:
        return self._index.last_number + 1

    @property
    def next_id(self) -> str:
        return trial_id(self._index.last_id + 1)

    def counts(self) -> dict[str, int]:
        """Trials of the search by status, every status named."""
        return {status: self._index.counts[status] for status in get_args(Status)}

    def outcome(self, trial: TrialState) -> Outcome:
        """How it ended, in the one word that everybody who shows a trial uses.

        The settings of a run that is shorter than the finals were promoted, if a longer run has
        them; else it waits until that is decided, and then it was pruned.
        """
        if trial.status == "failed":
            return "lost" if trial.kind == INFRASTRUCTURE else "failed"
        if trial.status == "stopped":
            return "pruned"
        over = self.ended in OVER
        if trial.status == "open":
            return ("pruned" if over else "waiting") if trial.frozen else "running"
        above = trial.level + 1
        if trial.is_repeat or above >= len(self.rungs):
            return "finished"
        if any(run.level >= above for run in self.runs_of(trial.configuration)):
            return "promoted"
        full = self._index.entered[above] >= self.rungs[above][1]
        return "pruned" if over or full else "waiting"

    def outcomes(self) -> dict[Outcome, int]:
        """Configurations by what became of them: the longest run that was no failure says it."""
        found: Counter[Outcome] = Counter()
        for first in self.search_trials:
            if first.origin != EXPECTED:  # no one of those that were asked for
                ends = [self.outcome(run) for run in self._index.runs.get(first.id, [first])]
                good = [end for end in ends if end not in ("failed", "lost", "running")]
                found[[*ends, *good][-1]] += 1
        return {outcome: found[outcome] for outcome in OUTCOMES}

    def outcomes_text(self) -> str:
        """3 finished, 2 pruned"""
        return ", ".join(f"{n} {outcome}" for outcome, n in self.outcomes().items() if n)

    @property
    def examples(self) -> int:
        """Examples that all trials were trained on, up to their last evaluations."""
        return self._index.examples

    def ranked(self) -> list[TrialState]:
        """Finished trials, the longest trained first, then the best, then the earliest."""
        return [trial for *_, trial in self._index.ranked]

    def best_trial(self) -> TrialState | None:
        ranked = self._index.ranked
        return ranked[0][-1] if ranked else None
