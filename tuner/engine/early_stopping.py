"""Early stopping: asynchronous successive halving, with examples seen as the resource.

A trial is judged whenever it passes a rung, against those that passed it before: it goes on if
its score is among the best `1 / reduction` of them, or as good as that for all that dev can tell:
only those are stopped whose score is below the mark by more than chance (`MARGIN`). The first few
go on in any case, as they would be judged by each other alone. Nobody waits for anybody, and
everything follows from the reports in their order, so replaying the ledger gives the same
decisions.

With several objectives the score is their mean (`tuner.runs.state.merit`).
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass

from model.common.errors import InputError
from tuner.runs.state import RunState, noise_of, objective_score


@dataclass(frozen=True)
class Decision:
    """What becomes of a trial after a report. `rung` is the one it was judged at, if any."""

    stop: bool
    rung: int | None = None
    reason: str = ""


# Of a score's noise, so far below the mark it may be. The noise is 1.96 standard errors of one
# score; two scores on the same examples differ by chance with about half of that.
MARGIN = 0.5
GO_ON = Decision(stop=False)
Report = tuple[str, int, float, float]  # trial, examples, score and its noise


class Rungs:
    """The rungs at `grace * reduction^k` examples below `maximum`, and who passed them how."""

    def __init__(self, grace: int, maximum: int, reduction: float = 3) -> None:
        faults = []
        if grace < 1:
            faults.append(f"the grace period is {grace} examples; it must be at least 1")
        if maximum < 1:
            faults.append(f"the maximum is {maximum} examples; it must be at least 1")
        if not (math.isfinite(reduction) and reduction > 1):
            faults.append(f"the reduction factor is {reduction}; it must be above 1")
        if faults:
            raise InputError("early stopping", faults)
        self.maximum, self.reduction = maximum, reduction
        self.levels: list[int] = []
        # Rounded from the exact power, so that no error builds up and loses the top rung.
        while (level := round(grace * reduction ** len(self.levels))) < maximum:
            if self.levels and level <= self.levels[-1]:
                fault = f"a reduction factor of {reduction} does not tell rungs apart; raise it"
                raise InputError("early stopping", [fault])
            self.levels.append(level)
        self.passed: dict[int, dict[str, float]] = {level: {} for level in self.levels}
        self._sorted: dict[int, list[float]] = {level: [] for level in self.levels}  # lowest first

    def report(self, trial: str, examples: int, score: float, noise: float = 0.0) -> Decision:
        """Record the score at every rung newly passed, and judge at the highest of them.

        `noise` is how far the score may be off: half of its interval's width. A rung passed
        before is left as it was, so a report that comes again changes nothing.
        """
        if not math.isfinite(score):
            return GO_ON  # such a trial fails; it must not set the mark for others
        new = [
            level for level in self.levels if level <= examples and trial not in self.passed[level]
        ]
        for level in new:
            self.passed[level][trial] = score
            insort(self._sorted[level], score)
        if not new or examples >= self.maximum:
            return GO_ON
        return self._judge(new[-1], examples, score, noise)

    def _judge(self, level: int, examples: int, score: float, noise: float) -> Decision:
        scores = self._sorted[level]
        count = len(scores)
        if count < 2 * self.reduction:
            return Decision(False, level, f"one of the first {count} at {level:,} examples")
        # The count above the (1 - 1/reduction) quantile, the trial itself included.
        places = math.ceil(count / self.reduction)
        mark = scores[-places]
        ahead = count - bisect_right(scores, score)
        give = MARGIN * noise
        chance = f" give or take {give:.4f}" if give else ""
        reason = (
            f"score {score:.4f}{chance} at {examples:,} examples is number {ahead + 1} of {count} "
            f"at the rung of {level:,}; the best {places} go on (from {mark:.4f})"
        )
        return Decision(score + give < mark, level, reason)

    def replay(self, reports: Iterable[Report]) -> dict[str, Decision]:
        """Take in past reports. Returns the decisions to stop, by trial.

        A trial among them that is still open was about to be stopped when its driver died.
        """
        stops: dict[str, Decision] = {}
        for trial, examples, score, noise in reports:
            decision = self.report(trial, examples, score, noise)
            if decision.stop:
                stops[trial] = decision
        return stops


def reports_of(state: RunState) -> list[Report]:
    """What the rungs heard in a run: the search's trials only, as repeats are never stopped."""
    return [
        (
            event["trial"],
            event["examples"],
            objective_score(event, state.objectives),
            noise_of(event, state.objectives),
        )
        for event in state.reports
        if not state.trials[event["trial"]].is_repeat
    ]
