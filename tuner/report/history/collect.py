"""How a search went: curves, the best so far, who ran when and where, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import optuna

from tuner.engine.study import quiet
from tuner.report.run import ReportedRun
from tuner.runs.ledger import Event
from tuner.runs.state import CLOSING, RunState, TrialState, objective_value

RUNNING, LOST, PAUSED = "running", "lost", "paused"


@dataclass(frozen=True)
class Curve:
    trial: str
    end: str  # its outcome
    examples: list[int]
    scores: list[float]
    reason: str = ""


@dataclass(frozen=True)
class BestSoFar:
    """When trials finished, and how good the best one was from then on."""

    minutes: list[float]
    scores: list[float]
    trials: list[str]
    best: list[float]
    default: float | None
    hypervolume: list[float] = field(default_factory=list)  # where there are several objectives


@dataclass(frozen=True)
class Stretch:
    """A trial at work, from a start to whatever ended it."""

    trial: str
    slot: str
    start: float  # minutes since the search began
    end: float
    how: str  # the trial's outcome, or paused


@dataclass(frozen=True)
class Cost:
    wall: float  # seconds from the first event to the last
    work: float  # seconds that slots were busy
    slots: int
    examples: int
    wasted: int  # examples of trials that failed
    evaluations: int

    @property
    def busy(self) -> float:
        """The share of their time that the slots worked."""
        return min(1.0, self.work / (self.wall * self.slots)) if self.wall and self.slots else 0.0


@dataclass(frozen=True)
class History:
    goal: str
    curves: list[Curve]
    best: str | None  # the best trial
    so_far: BestSoFar
    stretches: list[Stretch]
    cost: Cost
    tracebacks: list[tuple[str, str]] = field(default_factory=list)  # the first of each group


def collect_history(run: ReportedRun) -> History:
    state, summary = run.state, run.summary
    stretches = stretches_of(run.events, state)
    best = state.best_trial()
    trials = state.trials.values()
    firsts = [failures.trials[0] for failures in summary.failures]
    return History(
        goal=summary.goal,
        curves=[
            _curve(trial, state) for trial in trials if trial.evaluations and not trial.is_repeat
        ],
        best=best.id if best else None,
        so_far=_best_so_far(state, run.events, summary.goal),
        stretches=stretches,
        cost=Cost(
            wall=summary.seconds,
            work=60 * sum(each.end - each.start for each in stretches),
            slots=len({each.slot for each in stretches}),
            examples=summary.examples,
            wasted=sum(trial.examples for trial in trials if trial.status == "failed"),
            evaluations=sum(len(trial.evaluations) for trial in trials),
        ),
        tracebacks=[
            (name, state.trials[name].traceback) for name in firsts if state.trials[name].traceback
        ],
    )


def _curve(trial: TrialState, state: RunState) -> Curve:
    goal = state.goal
    return Curve(
        trial.id,
        state.outcome(trial),
        [int(entry["examples"]) for entry in trial.evaluations],
        [objective_value(entry, goal) for entry in trial.evaluations],
        trial.reason,
    )


def _best_so_far(state: RunState, events: list[Event], goal: str) -> BestSoFar:
    began = events[0]["time"] if events else 0.0
    finished = sorted(state.ranked(), key=lambda trial: (trial.closed or 0, trial.order))
    scores = [
        objective_value(entry, goal)
        for trial in finished
        if (entry := trial.chosen(state.objectives)) is not None
    ]
    best: list[float] = []
    for score in scores:
        best.append(max(score, best[-1] if best else score))
    default = next((i for i, trial in enumerate(finished) if trial.origin == "default"), None)
    return BestSoFar(
        [((trial.closed or began) - began) / 60 for trial in finished],
        scores,
        [trial.id for trial in finished],
        best,
        None if default is None else scores[default],
        hypervolumes(state, finished) if len(state.objectives) > 1 else [],
    )


def hypervolumes(state: RunState, finished: list[TrialState]) -> list[float]:
    """How much of all that could be had is behind the Pareto front, after each of these."""
    goals = state.objectives
    with quiet():
        study = optuna.create_study(directions=["maximize"] * len(goals))
        for trial in finished:
            entry = trial.chosen(goals)
            assert entry is not None  # else it would not be ranked
            values = [max(0.0, objective_value(entry, goal)) for goal in goals]
            study.add_trial(optuna.trial.create_trial(values=values))
        picture = optuna.visualization.plot_hypervolume_history(study, [0.0] * len(goals))
    return [float(value) for trace in picture.data for value in trace.y]


# --- who ran when and where -----------------------------------------------------------------------


@dataclass
class _Piece:
    trial: str
    node: str
    pid: int
    start: float
    end: float = 0.0
    how: str = RUNNING


def stretches_of(events: list[Event], state: RunState) -> list[Stretch]:
    """Every time that a trial ran, on the slots that the machines must have had."""
    pieces: list[_Piece] = []
    going: dict[str, _Piece] = {}
    began = last = events[0]["time"] if events else 0.0
    for event in events:
        now, name = event["time"], event["event"]
        ended: Iterable[_Piece | None] = ()
        how = LOST
        if name == "run":  # a driver begins: whatever was under way before has ended
            ended, now = list(going.values()), last
        elif name == PAUSED:
            ended, how = [going.get(event["trial"])], PAUSED
        elif name in CLOSING and event["trial"] in state.trials:
            ended = [going.get(event["trial"])]
            how = state.outcome(state.trials[event["trial"]])
        elif name == "started":
            ended = [going.get(event["trial"])]
        for piece in ended:
            if piece is not None:
                piece.end, piece.how = now, how
                del going[piece.trial]
        if name == "started":
            piece = _Piece(
                event["trial"], str(event.get("node") or "here"), int(event.get("pid") or 0), now
            )
            going[piece.trial] = piece
            pieces.append(piece)
        last = max(last, event["time"])
    for piece in going.values():
        piece.end = last
    slots = _slots(pieces)
    return [
        Stretch(piece.trial, slot, (piece.start - began) / 60, (piece.end - began) / 60, piece.how)
        for piece, slot in zip(pieces, slots, strict=True)
    ]


def _slots(pieces: list[_Piece]) -> list[str]:
    """A slot for each piece: that of its worker where it is free, else the first free one."""
    nodes: dict[str, list[tuple[float, int]]] = {}  # (busy until, pid) of each slot
    found = []
    for piece in pieces:  # in the order of their starts
        of_node = nodes.setdefault(piece.node, [])
        free = [place for place, (until, _) in enumerate(of_node) if until <= piece.start]
        same = [place for place in free if of_node[place][1] == piece.pid]
        place = (same or free or [len(of_node)])[0]
        of_node[place : place + 1] = [(piece.end, piece.pid)]
        found.append((piece.node, place))
    several = len(nodes) > 1
    return [f"{node} {place + 1}" if several else f"slot {place + 1}" for node, place in found]
