"""What a free slot is for: a new configuration, a promotion, a repeat, a final.

Between a run's state and the ladder of its rungs: everything here follows from the state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from model.cli.text import short
from model.common.errors import InputError
from tuner.engine.ladder import Ladder
from tuner.engine.points import Points
from tuner.engine.results import Settings, settings_of
from tuner.engine.stages import Stages
from tuner.engine.task_gp import key_of, model_of, most_expected
from tuner.runs.state import (
    DEFAULT,
    EXPECTED,
    START,
    RunState,
    TrialState,
    noise_of,
    objective_score,
    objective_value,
)

SURE = 0.8  # probability from which on the model goes before the ranks
SURER = 0.95  # and before a start point, which is known from training in full
DRAWS = 2000


@dataclass(frozen=True)
class NextStep:
    configuration: str | None = None  # None: a new one
    level: int = 0
    seed: int | None = None  # of a repeat


class Promotion:
    """`points` are given where a model of the results has a say."""

    def __init__(
        self, state: RunState, stages: Stages, reduction: float, points: Points | None = None
    ) -> None:
        self.state = state
        self.stages = stages
        self.points = points
        # After so many closed trials: to fit the model takes a while.
        self._sure_of: tuple[int, str | None] | None = None
        self._expected: tuple[int, Settings | None] | None = None
        self._started = False  # whether the first start point has been
        self.ladder = Ladder(stages, reduction, objectives=len(state.objectives))
        for trial in state.trials.values():
            self.enter(trial)
            self.rank(trial)

    # --- what happened ----------------------------------------------------------------------

    def enter(self, trial: TrialState) -> None:
        """It begins the way to its rung."""
        if self._takes_part(trial):
            if trial.origin == DEFAULT:
                self.ladder.default = trial.id
            if trial.origin == START and not self._started:
                self._started, self.ladder.start = True, trial.id
            # One that goes on has been, or will be, at all rungs below; a run of its own is not.
            below = self.stages.promotion == "continue" and not trial.of
            for level in range(0 if below else trial.level, trial.level + 1):
                self.ladder.enter(trial.configuration, level)

    def rank(self, trial: TrialState) -> None:
        """Tell the rungs of what the trial has reached."""
        if not self._takes_part(trial):
            return
        name, goals = trial.configuration, self.state.objectives
        for level in range(trial.level + 1):
            if found := self.state.at_rung(name, level):
                _, entry = found
                score, noise = objective_score(entry, goals), noise_of(entry, goals)
                values = tuple(objective_value(entry, goal) for goal in goals)
                self.ladder.result(name, level, score, noise, values if len(goals) > 1 else ())
        if trial.status != "open":
            self.ladder.fail(name, trial.level)  # unless it has a result there
        if trial.status == "stopped":
            self.ladder.leave(name, trial.level)

    def _takes_part(self, trial: TrialState) -> bool:
        another = self.state.has_another_seed(trial)
        return not (trial.is_repeat or another) and trial.level <= self.stages.top

    # --- trials that rest -------------------------------------------------------------------

    def rung(self, trial: TrialState) -> int:
        return self.stages.rungs[min(trial.level, self.stages.top)].examples

    def rests(self, trial: TrialState) -> bool:
        """Whether it has reached its rung, and waits for the others there."""
        below = self.stages.promotion == "continue" and trial.level < self.stages.top
        return below and not trial.is_repeat and trial.examples >= self.rung(trial)

    def standing(self, trial: TrialState) -> str:
        results = self.ladder.levels[min(trial.level, self.stages.top)].results
        names = [result.configuration for result in results]
        if trial.id not in names:  # in a ledger that no search wrote
            return f"no result at {self.rung(trial):,} examples"
        rank = names.index(trial.id) + 1
        return f"number {rank} of {len(names)} at {self.rung(trial):,} examples"

    def rank_text(self, trial: TrialState) -> str:
        """Where its configuration stands among those at its rung; nothing if it stands alone."""
        level = min(trial.level, self.stages.top)
        results = self.ladder.levels[level].results
        names = [result.configuration for result in results]
        if len(names) < 2 or trial.configuration not in names:
            return ""
        so_far = "" if self.ladder.is_complete(level) else " so far"
        return f"rank {names.index(trial.configuration) + 1} of {len(names)}{so_far}"

    def hopeless(self, level: int) -> list[str]:
        return self.ladder.hopeless(level)

    # --- who goes no further ----------------------------------------------------------------

    def pruned(self) -> list[tuple[str, int]]:
        """Configurations that go no further, and from which rung, as far as that is decided."""
        found = []
        for level in range(self.stages.top):
            names = self.ladder.hopeless(level)
            if self.ladder.is_full(level + 1):
                names = [each.configuration for each in self.ladder.levels[level].waiting]
            found += [(name, level) for name in names]
        return found

    def pruned_text(self, trial: TrialState) -> str:
        """pruned at 80 examples: .357 ± .029, rank 4 of 5, cutoff .396

        There is no cutoff where it was not the score that decided: then who goes on, and why.
        """
        level = self.ladder.levels[min(trial.level, self.stages.top)]
        own = next((r for r in level.results if r.configuration == trial.configuration), None)
        if own is None or trial.level >= self.stages.top:  # in a ledger that no search wrote
            return f"pruned: {self.standing(trial)}"
        around = f" ± {short(own.noise)}" if own.noise else ""
        parts = [f"{short(own.score)}{around}", self.rank_text(trial)]
        above = self.ladder.levels[trial.level + 1].entered
        if self.ladder.is_full(trial.level + 1):
            ahead = [result for result in level.results if result.configuration in above]
        else:
            ahead = level.results[: self.ladder.places(trial.level + 1)]
        said = f"pruned at {trial.examples:,} examples: "
        if ahead and own not in ahead and ahead == level.results[: len(ahead)]:
            parts.append(f"cutoff {short(min(result.score for result in ahead))}")
        said += ", ".join(filter(None, parts))
        others = [
            f"{result.configuration} ({self._why(result.configuration, trial)})"
            for result in ahead
            if result > own and own not in ahead
        ]
        on = f"{' and '.join(others)} {'goes' if len(others) == 1 else 'go'} on"
        return f"{said}; {on}" if others else said

    def _why(self, name: str, pruned: TrialState) -> str:
        """Why a configuration goes on in place of one that ranks above it."""
        known = {self.ladder.default: "the default", self.ladder.start: "the first start point"}
        if pruned.level + 1 < self.stages.top:
            return f"{known[name]}, in any case" if name in known else "it was ahead then"
        repeats, starts = self._repeated(), self._starts()
        order = self.ladder.finalists(repeats, starts)
        if order.index(pruned.configuration) < order.index(name):
            if name in self.finalists()[: self.stages.finals]:
                return "the model of the results expects more of it in full"
            return "it was ahead then"
        if name == self.ladder.stays(repeats, starts):
            return f"{known.get(name, 'a start point')}, and nothing is clearly above it"
        return "by its mean over further seeds"

    # --- what is next -----------------------------------------------------------------------

    def next(self) -> NextStep | None:
        """None while there is nothing to do but to wait, or all is done."""
        if self.state.missing:
            early = None if self.points is None else self.ladder.ahead_of_time()
            return NextStep(*early) if early else NextStep()
        if promoted := self.ladder.promotion():
            return NextStep(*promoted)
        if not all(map(self.ladder.is_complete, range(self.stages.top or 1))):
            return None
        return self._repeat() or self._final()

    def _repeat(self) -> NextStep | None:
        """The best before the finals again, over seeds that the search has not seen.

        Before finals the default is one of them: another gets a final only if it beats that.
        """
        best, seeds = self.stages.race
        level = max(0, self.stages.top - 1)
        if not best or any(not t.is_repeat for t in self.state.open_trials if not t.frozen):
            return None
        there = {(trial.of, trial.seed) for trial in self.state.repeats}
        ranked = [result.configuration for result in self.ladder.levels[level].results]
        names = ranked[:best]
        if self.stages.top and best > 1 and self.ladder.default in ranked[best:]:
            names[-1] = self.ladder.default
        wanted = (
            NextStep(name, level, self.state.seed + offset)
            for name in names
            for offset in range(1, seeds + 1)
        )
        return next((step for step in wanted if (step.configuration, step.seed) not in there), None)

    def _final(self) -> NextStep | None:
        """One for each of the best; where one fails, the next best has its place.

        Of several, one is for what the model of the results expects most of, if that was not tried.
        Where there are more places than configurations, the best run again with further seeds:
        they cost no time on machines that would be idle, and a soup of them is worth more training.
        One of these that fails is not made up for.
        """
        top = self.stages.top
        if not top or any(trial.is_repeat for trial in self.state.open_trials):
            return None
        entered, failed = self.ladder.levels[top].entered, self.ladder.levels[top].failed
        further = [trial for trial in self.state.further_seeds if trial.level == top]
        if len(entered) - len(failed) + len(further) >= self.stages.final.places:
            return None
        names = self.finalists()
        goes_on = self.stages.promotion == "continue"
        trials = self.state.trials
        left = [n for n in names if n not in entered and not (goes_on and trials[n].closed)]
        if entered and self.expected_best() is not None:
            return NextStep(None, top)
        if left:
            return NextStep(left[0], top)
        again = [name for name in names if name not in failed]
        if goes_on or not again:
            return None
        times = Counter(trial.of for trial in further)
        name = min(again, key=lambda each: times[each])  # of equals the better one
        return NextStep(name, top, self.state.seed + 1 + times[name])

    def expected_best(self) -> Settings | None:
        """Of all settings those that the model expects most of in full; None if there is no place
        for them, if they were tried, or if it expects more of the first of the finalists."""
        several = self.stages.final.places > 1 and len(self.state.objectives) == 1
        there = any(trial.origin == EXPECTED for trial in self.state.search_trials)
        if not several or self.stages.promotion != "restart" or there:
            return None
        done = len(self.state.closed_trials)
        if self._expected is None or self._expected[0] != done:
            self._expected = done, self._most_expected(self.finalists()[0])
        return self._expected[1]

    def _most_expected(self, first: str) -> Settings | None:
        model, points = self.points and model_of(self.state, self.points), self.points
        if not model or not points or points.space.listed or first not in model.tried:
            return None
        best = most_expected(self.state, points, model, np.random.default_rng(self.state.seed))
        tried = {
            key_of(points, settings_of(self.state, points, trial.id))
            for trial in self.state.search_trials
        }
        lead, _ = model.surrogate.lead(points.encode(best)[None], model.tried[first])
        try:
            points.space.params(best)
        except InputError:  # near to settings that are from outside the space
            return None
        return best if lead[0] > 0 and key_of(points, best) not in tried else None

    def finalists(self) -> list[str]:
        """By rank at the last rung, unless the model of the results is sure of another one.

        A rank compares what was reached after a part of the training, the model what will be
        after all of it.
        """
        ranked = self.ladder.finalists(self._repeated(), self._starts())
        if self.points is None or len(ranked) < 2:
            return ranked
        done = len(self.state.closed_trials)
        if self._sure_of is None or self._sure_of[0] != done:
            self._sure_of = done, self._better(ranked)
        better = self._sure_of[1]
        return ranked if better is None else self.ladder.put_first(better, ranked)

    def _better(self, ranked: list[str]) -> str | None:
        """Which configuration is surely better in full than the one that ranks first, if any."""
        model = None if self.points is None else model_of(self.state, self.points)
        if model is None or ranked[0] not in model.tried:
            return None
        names = list(model.tried if self.stages.promotion == "restart" else ranked)
        names = [name for name in names if name in model.tried]  # of very many, not all are
        at = np.stack([model.tried[name] for name in names])
        drawn = model.surrogate.draw(at, DRAWS, np.random.default_rng(self.state.seed))
        best = names[int(drawn.mean(0).argmax())]
        wins = (drawn[:, names.index(best)] > drawn[:, names.index(ranked[0])]).mean()
        sure = SURER if self.state.trials[ranked[0]].origin == START else SURE
        return best if wins >= sure and best != ranked[0] else None

    def _starts(self) -> list[str]:
        return [trial.id for trial in self.state.search_trials if trial.origin == START]

    def _repeated(self) -> dict[str, list[float]]:
        """Scores with further seeds, by configuration."""
        found: dict[str, list[float]] = {}
        for trial in self.state.repeats:
            entry = trial.chosen(self.state.objectives) if trial.status == "finished" else None
            if entry is not None and trial.of is not None:
                score = objective_score(entry, self.state.objectives)
                found.setdefault(trial.of, []).append(score)
        return found
