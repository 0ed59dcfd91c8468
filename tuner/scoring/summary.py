"""The result of a search, for a person to read: what happened, what is best, and how sure that is.

`tuner.scoring.summarise` makes it, `tuner.scoring.summary_text` writes it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from tuner.runs.state import Outcome
from tuner.scoring.crossfit import CrossFit, Difference


@dataclass(frozen=True)
class Failures:
    """Trials that failed alike; `reason` is that of the first."""

    kind: str
    reason: str
    trials: tuple[str, ...]


@dataclass(frozen=True)
class TrialRow:
    """A trial by the evaluation that stands for it."""

    trial: str
    overall: float
    interval: tuple[float, float] | None
    tasks: dict[str, float]
    examples: int
    origin: str
    params: dict[str, Any]


@dataclass(frozen=True)
class Spent:
    """What trials of one length took together."""

    length: int
    trials: int
    examples: int


@dataclass(frozen=True)
class Repeated:
    """A trial that was run again with other seeds."""

    trial: str
    search: float  # its score in the search, which is what it was chosen for
    scores: tuple[float, ...]  # of the repeats alone
    tie: bool | None = None  # with the first; None if it is the first, or cannot be told

    @property
    def mean(self) -> float:
        return mean(self.scores)

    @property
    def spread(self) -> float | None:
        return stdev(self.scores) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class Expected:
    """What the model of the results says of training in full."""

    examples: int
    trial: str  # whose settings are meant by "best"
    recommended: bool  # that trial's model is the one to take; if not, it is the best trial
    best: float
    best_sd: float
    default: float
    default_sd: float
    worse: float  # probability that these settings are worse than the default
    top: float  # the most that it expects of any settings of the space
    top_sd: float
    top_trial: str | None  # where those were tried
    top_changes: dict[str, tuple[Any, Any]]  # to these from the trial's settings: before, after
    # How much the runs of a warm start count, by task.
    earlier: tuple[tuple[str, dict[str, float]], ...] = ()

    @property
    def whose(self) -> str:
        return f"the {'recommended model' if self.recommended else 'best trial'}'s settings"


@dataclass(frozen=True)
class Gain:
    """What choosing brought over the default, scored on the half of dev that did not choose."""

    difference: Difference
    configurations: int  # that the choice was among
    examples: tuple[int, ...]  # of each one's training

    @property
    def verdict(self) -> str:
        if self.difference.tie:
            return "whether searching paid cannot be told"
        return "searching paid" if self.difference.low > 0 else "searching did not pay"


@dataclass(frozen=True, kw_only=True)
class Summary:
    name: str
    tasks: str
    goal: str  # what trials are ranked by: the overall score or a task
    num_samples: int  # configurations that the search is to try
    counts: dict[Outcome, int]  # of configurations
    trials: int  # trainings, with those of the same settings for other rungs and seeds
    failures: list[Failures]
    lost: list[str]  # trials that ended with their machine
    examples: int
    spent: list[Spent]
    evaluation_share: float | None  # of the trials' time
    seconds: float
    starts: int
    best: list[TrialRow]
    default: TrialRow | None
    lead: Difference | None  # of the best over the default, on the same dev rows
    lead_at: tuple[int, ...]  # the training examples of both there
    cross_fit: CrossFit | None
    expected: Expected | None
    gain: Gain | None
    repeats: list[Repeated]
    front: list[tuple[str, dict[str, float]]]  # with several objectives
    places: dict[str, Path]
    notes: list[str] = field(default_factory=list)
    next_steps: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        best = f"best {self.best[0].trial} {self.best[0].overall:.3f}" if self.best else "no best"
        return f"Summary({self.name!r}: {self.examples:,} examples, {best}; .text() is for reading)"

    def text(self) -> str:
        from tuner.scoring.summary_text import summary_text  # which needs the names in here

        return summary_text(self)
