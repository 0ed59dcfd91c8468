"""Answers about a run that would otherwise take a walk over all its trials, at every event."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.runs.state import TrialState


class Index:
    """Follows from the trials alone, and is kept up as they are created and closed.

    A trial that is closed does not change any more. What is asked of it is in `RunState`.
    """

    def __init__(self) -> None:
        self.search: list[TrialState] = []  # one for each configuration
        self.repeats: list[TrialState] = []
        self.distilled: list[TrialState] = []
        self.further: list[TrialState] = []  # finals with another seed than their configuration's
        self.runs: dict[str, list[TrialState]] = {}  # of each configuration, with its own seed
        self.open: dict[str, TrialState] = {}  # in the order of their creation
        self.ended: list[TrialState] = []  # in the order of their closing
        self.counts: Counter[str] = Counter()  # of the search, by status
        self.entered: Counter[int] = Counter()  # configurations at each level, failed ones apart
        # By length, score and creation. Repeats are apart: they are no part of the search.
        self.ranked: list[tuple[int, float, int, TrialState]] = []
        self.last_number = self.last_id = -1
        self.examples = 0

    def created(self, trial: TrialState) -> None:
        self.open[trial.id] = trial
        if trial.is_repeat:
            (self.distilled if trial.origin == "distilled" else self.repeats).append(trial)
        elif (runs := self.runs.setdefault(trial.configuration, [])) and runs[0].seed != trial.seed:
            self.further.append(trial)
        else:
            runs.append(trial)
            self.entered[trial.level] += 1
        if trial.of is None:
            self.search.append(trial)
            self.counts["open"] += trial.origin != "expected"  # no one of those that were asked for
        if trial.number is not None:
            self.last_number = max(self.last_number, trial.number)
        if trial.id[1:].isdigit():
            self.last_id = max(self.last_id, int(trial.id[1:]))

    def closed(self, trial: TrialState, score: float | None) -> None:
        del self.open[trial.id]
        self.ended.append(trial)
        if trial.status == "failed" and trial in self.runs.get(trial.configuration, ()):
            self.entered[trial.level] -= 1
        if trial.of is None and trial.origin != "expected":
            self.counts["open"] -= 1
            self.counts[trial.status] += 1
        self._place(trial, score)

    def rank(self, trials: Iterable[tuple[TrialState, float | None]]) -> None:
        """Anew: a run that goes on may have other objectives."""
        self.ranked = []
        for trial, score in trials:
            self._place(trial, score)

    def _place(self, trial: TrialState, score: float | None) -> None:
        if score is not None and not trial.is_repeat:
            insort(self.ranked, (-(trial.length or 0), -score, trial.order, trial))
