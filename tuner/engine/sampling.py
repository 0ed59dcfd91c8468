"""The next point to try, from the ledger's state alone.

Optuna is asked with a sampler that is seeded by the run's seed and the trial's number, about a
study that holds what the ledger does. So a search that was killed and rebuilt suggests what it
would have suggested, and whatever a sampler hides in a study (CMA-ES pickles itself into it)
never reaches the disk. `task_gp` is a sampler of our own and follows from the ledger as they do.

No point is tried twice: all trials of a search have one seed, so the second would tell nothing.

What a sampler is shown has a bound (`tuner.engine.study.SHOWN`), or the time of all suggestions
together would grow with the square of their number. Beyond it, it sees the trials that are open,
the best, and the latest. TPE loses little by that: it looks for points like the best 25, which it
still has, and unlike the others, of which older ones weigh less in any case.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import optuna
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as S

from tuner.engine.points import Points
from tuner.engine.study import (
    INFEASIBLE,
    SHOWN,
    STATEFUL,
    TASK_GP,
    SearchSpace,
    freeze,
    lost,
    make_sampler,
    new_study,
    quiet,
    seed_for,
)
from tuner.engine.task_gp import propose
from tuner.runs.state import RunState, TrialState, objective_score, objective_value
from tuner.space.space import Space

TRIES = 10  # suggestions of a sampler, before a draw takes its place
DRAWS = 100  # of points that were all tried before; then they are gone through one by one
BEST = 50  # of those shown; twice as many as TPE takes for the best


@dataclass(frozen=True)
class Suggestion:
    number: int
    params: dict[str, Any]  # labels and numbers, as Optuna has them
    settings: dict[str, Any]  # what they mean


class Suggester:
    """What to try next, again and again while the state grows, without starting over each time.

    What it suggests is to be created before it is asked again.
    """

    def __init__(self, state: RunState, space: SearchSpace) -> None:
        self.state = state
        self.space = space
        self.past = VisibleHistory(state, space)
        self.noted: StatefulSampler | None = None
        self.tried: set[frozenset[tuple[str, Any]]] = set()
        self.heard = 0  # trials of the state whose points are among them

    @cached_property
    def points(self) -> Points:
        assert isinstance(self.space, Space)
        return Points(self.space)

    def next(self, fixed: Mapping[str, Any] | None = None) -> Suggestion | None:
        """None where every point of the space has been tried."""
        number = self.state.next_number
        self._hear()
        with quiet():
            for attempt in range(1 if self.state.sampler in STATEFUL else TRIES):
                found = self._suggest(number, attempt, fixed)
                if _key(found.params) not in self.tried:
                    return found
                if fixed and found.params.keys() <= fixed.keys():
                    fixed = None  # a known point that was tried already
            self.noted = None  # it took notes of a suggestion that is not followed
            return self._untried(number, fixed) or (self._untried(number) if fixed else None)

    def _untried(self, number: int, fixed: Mapping[str, Any] | None = None) -> Suggestion | None:
        """A point of those that are left, at random; None only where there is none.

        To go through the points takes no longer than it took to try them: the first that is not
        among those that were tried ends it.
        """
        rng = np.random.default_rng(seed_for(self.state.seed, number))
        given = self.space.settings(fixed) if fixed else {}
        drawn = (self.space.draw(rng, given) for _ in range(DRAWS))
        for settings in chain(drawn, self.space.every(rng, given)):
            params = self.space.params(settings)
            if _key(params) not in self.tried:
                return Suggestion(number, params, settings)
        return None

    def _suggest(self, number: int, attempt: int, fixed: Mapping[str, Any] | None) -> Suggestion:
        if self.state.sampler == TASK_GP:
            rng = np.random.default_rng(seed_for(self.state.seed, number, attempt))
            given = self.space.settings(fixed) if fixed else {}
            settings = propose(self.state, self.points, rng, given)
            return Suggestion(number, self.space.params(settings), settings)
        if self.state.sampler not in STATEFUL:
            study = self.past.study(SHOWN[self.state.sampler])
            return ask(study, self.state, self.space, number, fixed, attempt)
        if self.noted is None:
            self.noted = StatefulSampler(self.state, self.space)
        return self.noted.next(number, fixed)

    def _hear(self) -> None:
        if not self.tried:
            self.tried.add(_key(self._default()))
        trials = self.state.search_trials
        self.tried.update(_key(trial.params) for trial in trials[self.heard :])
        self.heard = len(trials)

    def _default(self) -> Mapping[str, Any]:
        """The default's params, if the space has them all; it is the first trial of a search."""
        point = self.space.default_point()
        return {} if self.space.missing(point) else self.space.params(point)


def _key(params: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(params.items())


def ask(
    study: optuna.Study,
    state: RunState,
    space: SearchSpace,
    number: int,
    fixed: Mapping[str, Any] | None,
    attempt: int = 0,
) -> Suggestion:
    study.sampler = make_sampler(
        state.sampler, seed_for(state.seed, number, attempt), objectives=len(state.objectives)
    )
    if fixed:
        study.enqueue_trial(dict(fixed))
    trial = study.ask()
    _ = trial.relative_params  # samplers take their notes here, also when all is fixed
    settings = space.suggest(trial)
    return Suggestion(number, dict(trial.params), settings)


# --- what a sampler is shown --------------------------------------------------------------------


class VisibleHistory:
    """The trials of a run as samplers see them, each made once into one of Optuna's."""

    def __init__(self, state: RunState, space: SearchSpace) -> None:
        self.state = state
        self.space = space
        self.heard = 0  # closed trials of the state that were taken in
        self.closed: dict[int, TrialState] = {}  # by number
        self.numbers: list[int] = []  # of the closed ones, in order
        self.best: dict[tuple[str, ...], list[tuple[float, ...]]] = {}  # ranks, each ends in number
        self.made: dict[tuple[int, str, int], NoCopyTrial] = {}

    def study(self, bound: int) -> optuna.Study:
        """The open trials, and at most `bound` closed ones, in the order of their numbers."""
        self._take_in()
        storage = InMemoryStorage()
        study = new_study(self.state, storage)
        if bound:  # else the sampler looks at nothing
            for trial in self._shown(bound):
                storage.create_new_trial(study._study_id, trial)
        return study

    def _shown(self, bound: int) -> Iterable[NoCopyTrial]:
        trials = {number: self.closed[number] for number in self._chosen(bound)}
        numbered = [(t.number, t) for t in self.state.open_trials if t.number is not None]
        resting = [(number, t) for number, t in numbered if t.frozen]
        trials |= dict(resting[-bound:]) | {n: t for n, t in numbered if not t.frozen}
        keyed = {self._key(number, trial): trial for number, trial in sorted(trials.items())}
        self.made = {key: self.made.get(key) or self._make(t) for key, t in keyed.items()}
        return self.made.values()

    def _key(self, number: int, trial: TrialState) -> tuple[int, str, int]:
        """Another one once there is more to show of the configuration."""
        runs = self.state.runs_of(trial.id)
        open_ = sum(run.status == "open" and not run.frozen for run in runs)
        return number, f"{trial.status} {open_}", sum(run.examples for run in runs)

    def _make(self, trial: TrialState) -> NoCopyTrial:
        frozen = freeze(trial, self.space, self.state, for_sampler=True)
        frozen.__class__ = NoCopyTrial
        assert isinstance(frozen, NoCopyTrial)
        return frozen

    def _chosen(self, bound: int) -> set[int]:
        """Numbers of closed trials: all, or the best and the latest."""
        if len(self.numbers) <= bound:
            return set(self.numbers)
        places = min(BEST, bound // 2) // len(self.best)  # for each objective, and for their mean
        best = {int(rank[-1]) for ranks in self.best.values() for rank in ranks[:places]}
        others = (number for number in reversed(self.numbers) if number not in best)
        return best.union(islice(others, bound - len(best)))

    def _take_in(self) -> None:
        ended = self.state.closed_trials
        for trial in ended[self.heard :]:
            seen = trial.status != "failed" or trial.kind in INFEASIBLE  # of others they see none
            if seen and trial.number is not None:
                self.closed[trial.number] = trial
                insort(self.numbers, trial.number)
                self._rank(trial, trial.number)
        self.heard = len(ended)

    def _rank(self, trial: TrialState, number: int) -> None:
        """As TPE ranks: finished ones by value, then stopped ones by how far they got."""
        goals = self.state.objectives
        full = trial.status == "finished" and trial.level >= len(self.state.rungs) - 1
        standing = trial.chosen(goals) if full else None
        last = trial.evaluations[-1] if trial.status != "failed" and trial.evaluations else None
        for names in {tuple(goals), *((name,) for name in goals)}:
            rank: tuple[float, ...] = (2, number)
            if standing is not None:
                rank = (0, -objective_score(standing, names), number)
            elif last is not None:
                rank = (1, -trial.examples, -objective_score(last, names), number)
            ranks = self.best.setdefault(names, [])
            insort(ranks, rank)
            del ranks[BEST:]


class NoCopyTrial(FrozenTrial):
    """A trial that a study in memory takes as it is, where it would make a deep copy of another.

    Hundreds of copies at every ask take ten times as long as the ask itself.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> NoCopyTrial:
        return self


# --- samplers that keep notes -------------------------------------------------------------------


class StatefulSampler:
    """A study with a sampler's own notes in it: every ask and tell, in the ledger's order.

    It is never cut short, so these samplers take longer the more trials there are.
    """

    def __init__(self, state: RunState, space: SearchSpace) -> None:
        self.state = state
        self.space = space
        self.study = new_study(state)
        self.next_number = 0  # trials of the study
        self.created = 0  # trials of the state that were taken in, and how many of them closed
        self.closed = 0

    def next(self, number: int, fixed: Mapping[str, Any] | None) -> Suggestion:
        self._catch_up()
        self._fill(number)
        self.next_number = number + 1
        return ask(self.study, self.state, self.space, number, fixed)

    def _catch_up(self) -> None:
        trials, ended = self.state.search_trials, self.state.closed_trials
        moves = [(trial.order, trial) for trial in trials[self.created :]]
        moves += [(trial.closed_order or 0, trial) for trial in ended[self.closed :]]
        self.created, self.closed = len(trials), len(ended)
        for order, trial in sorted(moves, key=lambda move: move[0]):
            if trial.number is None:
                continue
            if order != trial.order:
                self._tell(trial, trial.number)
            elif trial.number >= self.next_number:  # not one that was asked here
                self._fill(trial.number)
                self.next_number = trial.number + 1
                frozen = freeze(trial, self.space, self.state)
                if frozen.params or not trial.params:
                    ask(self.study, self.state, self.space, trial.number, trial.params)
                else:
                    self.study.add_trial(frozen)

    def _tell(self, trial: TrialState, number: int) -> None:
        """The trial's own result: all of them were trained on the same examples."""
        chosen = trial.chosen(self.state.objectives) if trial.status == "finished" else None
        state, values = S.PRUNED if trial.status == "stopped" else S.FAIL, None
        if chosen is not None:
            state = S.COMPLETE
            values = [objective_value(chosen, name) for name in self.state.objectives]
        self.study.tell(number, values, state=state, skip_if_finished=True)

    def _fill(self, number: int) -> None:
        """Numbers that the ledger has lost keep their places."""
        for _ in range(self.next_number, number):
            self.study.add_trial(lost())
