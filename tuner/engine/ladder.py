"""Who goes on: promotion by successive halving, with examples seen as the resource.

Configurations are ranked at each rung by the score that they have there; with several objectives
those on the Pareto front come first, and of these the best in each objective. A configuration goes
on to the next rung as soon as it is sure to be among the best, or among the best `1 / reduction` of
those that are through while a slot would be idle otherwise. Nobody is judged by less than the rung
has seen, and everything follows from the results, so the ledger gives the same decisions again.

The default configuration goes along up to the last rung before the finals: it is what all others
are compared with. So does the first start point, which is known from training in full: a score
after a small part of it is a weak reason to drop it. A final is given to another only if that is
better by more than chance. Neither takes the place of who is best in one of several objectives.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.engine.stages import Stages

# Of a score's noise, so much a configuration must lead the default by. The noise is 1.96 standard
# errors of one score; two scores on the same examples differ by chance with about half of that.
MARGIN = 0.5
# A start point is known from training in full, and stays unless one is ahead by all of the noise.
STAYS = 1.0


@dataclass(frozen=True, order=True)
class RungResult:
    """A configuration at a rung. Sorted, the best come first; of equals the earlier one.

    With several objectives that is by how many others are better in all of them, so that those on
    the Pareto front come first; of these who is best in one of them; and only then by the mean.
    """

    beaten: int  # by how many
    follows: bool  # of several objectives it is the best in none
    rank: float  # the score, turned round
    order: int
    configuration: str = field(compare=False)
    noise: float = field(compare=False, default=0.0)  # how far the score may be off
    values: tuple[float, ...] = field(compare=False, default=())  # of several objectives

    @property
    def score(self) -> float:
        return -self.rank


@dataclass
class Level:
    """What has happened at one rung."""

    entered: set[str] = field(default_factory=set)  # configurations
    running: set[str] = field(default_factory=set)  # of these, without a result so far
    failed: set[str] = field(default_factory=set)  # of these, without one for ever
    results: list[RungResult] = field(default_factory=list)  # best first
    waiting: list[RungResult] = field(default_factory=list)  # of these, what may still go on

    def add(self, new: RungResult, *, waits: bool) -> None:
        insort(self.results, new)
        if waits:
            insort(self.waiting, new)
        if new.values:  # which may leave others behind
            self.results = self._ranked(new)
            there = {each.configuration for each in self.waiting}
            self.waiting = [each for each in self.results if each.configuration in there]

    def _ranked(self, new: RungResult) -> list[RungResult]:
        beaten = [
            replace(each, beaten=each.beaten + dominates(new.values, each.values))
            for each in self.results
        ]
        # Of equals the better one in all, which is on the front.
        best = {
            min(beaten, key=lambda r, n=n: (-r.values[n], r.beaten, r.rank, r.order)).configuration  # type: ignore[misc]
            for n in range(len(new.values))
        }
        return sorted(replace(each, follows=each.configuration not in best) for each in beaten)


def dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """As good in all objectives, and better in one."""
    return one != other and bool(one) and all(a >= b for a, b in zip(one, other, strict=True))


class Ladder:
    def __init__(
        self, stages: Stages, reduction: float, default: str | None = None, objectives: int = 1
    ) -> None:
        self.stages = stages
        self.reduction = reduction
        self.default = default
        self.objectives = objectives
        self.start: str | None = None  # the first start point
        self.levels = [Level() for _ in stages.rungs]
        self.order: dict[str, int] = {}  # of configurations, as they were created

    def enter(self, configuration: str, level: int) -> None:
        at = self.levels[level]
        self.order.setdefault(configuration, len(self.order))
        if configuration not in at.entered:
            at.entered.add(configuration)
            at.running.add(configuration)
            self.leave(configuration, level - 1)

    def result(
        self,
        configuration: str,
        level: int,
        score: float,
        noise: float = 0.0,
        values: tuple[float, ...] = (),
    ) -> None:
        """The first one counts: a report that comes again changes nothing."""
        at = self.levels[level]
        if configuration in at.running:
            at.running.remove(configuration)
            beaten = sum(dominates(each.values, values) for each in at.results)
            order = self.order[configuration]
            found = RungResult(beaten, False, -score, order, configuration, noise, values)
            above = self.levels[level + 1].entered if level < self.stages.top else set()
            at.add(found, waits=configuration not in above)

    def fail(self, configuration: str, level: int) -> None:
        """It has no result at this rung, and will have none: its place is another's."""
        at = self.levels[level]
        if configuration in at.running:
            at.running.remove(configuration)
            at.failed.add(configuration)
            if level < self.stages.top:  # nobody waits for it
                self.default = None if configuration == self.default else self.default
                self.start = None if configuration == self.start else self.start

    def leave(self, configuration: str, level: int) -> None:
        """It goes no further than this rung, or has gone on."""
        if level >= 0:
            waiting = self.levels[level].waiting
            waiting[:] = [each for each in waiting if each.configuration != configuration]

    # --- who goes on ------------------------------------------------------------------------

    def places(self, level: int) -> int:
        return self.stages.rungs[level].places

    def is_full(self, level: int) -> bool:
        at = self.levels[level]
        return len(at.entered) - len(at.failed) >= self.places(level)

    def is_complete(self, level: int) -> bool:
        """Nothing more will be heard of this rung."""
        return self._unknown(level) == 0

    def _unknown(self, level: int) -> int:
        """Results that are still to come, at most."""
        at = self.levels[level]
        free = len(at.failed) if level else 0  # a new configuration in its place there is none
        coming = max(0, self.places(level) + free - len(at.entered))
        if coming and level and self.is_complete(level - 1):
            coming = min(coming, len(self.levels[level - 1].waiting))
        return coming + len(at.running)

    def promotion(self) -> tuple[str, int] | None:
        """A configuration that may go on now, and to which rung; finals are another matter."""
        for level in reversed(range(self.stages.top - 1)):
            at, above = self.levels[level], self.levels[level + 1]
            if not at.waiting or self.is_full(level + 1):
                continue
            places = self.places(level + 1) + len(above.failed)
            allowed = max(places - self._unknown(level), int(len(at.results) / self.reduction))
            along = self._along(level)
            best = next((each for each in at.waiting if each.configuration not in along), None)
            reserved = sum(name not in above.entered for name in along)
            free = places - len(above.entered) > reserved
            if best and free and self._rank(best, at, along) < min(places, allowed):
                return best.configuration, level + 1
            for name in along if allowed > 0 else ():
                if name not in above.entered and any(name == w.configuration for w in at.waiting):
                    return name, level + 1
        return None

    def ahead_of_time(self) -> tuple[str, int] | None:
        """Who may go on while there are configurations left to propose, and to which rung.

        What is proposed next can then follow from longer training, too: early scores alone do not
        show what climbs and what stands still. Those that go along in any case cost nothing; and
        with them the best of the first few, where two places or more are left to the others.
        """
        for level in reversed(range(self.stages.top - 1)):
            at, above, along = self.levels[level], self.levels[level + 1], self._along(level)
            waiting = [each.configuration for each in at.waiting]
            for name in along:
                if name in waiting and not self.is_full(level + 1):
                    return name, level + 1
            others = [name for name in waiting if name not in along]
            several = self.places(level + 1) - len(along) > self.objectives
            first = several and above.entered <= {*along}
            if others and first and len(at.results) * self.reduction >= self.places(level):
                return others[0], level + 1
        return None

    def _along(self, level: int) -> list[str]:
        """Who goes on from this rung whatever its score, as long as a place is left for another.

        With several objectives, for the best in each of them.
        """
        names = (name for name in (self.default, self.start) if name is not None)
        coming = [name for name in names if self._may_come(name, level)]
        places = self.places(level + 1)
        return coming[
            : max(0, places - self.objectives) if self.objectives > 1 else max(1, places - 1)
        ]

    def _may_come(self, name: str, level: int) -> bool:
        """Whether it goes on from this rung, or still may: no place is kept for one that cannot."""
        at = self.levels[level]
        if name in self.levels[level + 1].entered or name in at.running:
            return True
        if name in at.entered:
            return any(name == each.configuration for each in at.waiting)
        return not self.is_complete(level)

    def _rank(self, result: RungResult, at: Level, along: Sequence[str]) -> int:
        """From 0, with those that go along before all others."""
        place = bisect_left(at.results, result)
        ahead = sum(each.configuration in along for each in at.results[:place])
        return place - ahead + len(along)

    def hopeless(self, level: int) -> list[str]:
        """Those that wait at this rung with enough others ahead of them, whatever is to come."""
        if level + 1 >= self.stages.top:  # who gets a final is decided when all is known
            return []
        results, waiting = self.levels[level].results, self.levels[level].waiting
        if len(results) <= self.places(level + 1):
            return []
        if results[0].values and not self.is_complete(level):
            return []  # of several objectives, one that is to come may beat all that lead now
        behind = waiting[bisect_left(waiting, results[self.places(level + 1)]) :]
        along = self._along(level)
        return [each.configuration for each in behind if each.configuration not in along]

    # --- the finals -------------------------------------------------------------------------

    def finalists(
        self, repeats: Mapping[str, Sequence[float]], starts: Sequence[str] = ()
    ) -> list[str]:
        """Configurations in the order in which finals are given to them, once all below is known.

        `repeats` has scores of the same length with further seeds; the mean of all counts, and one
        lucky score of a configuration that was not run again does not go before it. Where nothing
        beats the default by more than chance, the default is the first. `starts` are the start
        points, of which the first is thought best: a score after a part of the training is weak
        evidence against it.
        """
        order, first = list(self._means(repeats)), self.stays(repeats, starts)
        return order if first is None else self.put_first(first, order)

    def stays(
        self, repeats: Mapping[str, Sequence[float]], starts: Sequence[str] = ()
    ) -> str | None:
        """The default, or else the first start point, that nothing is clearly above."""
        means = self._means(repeats)
        for name, best in list(means.items())[:1]:
            noise = next(each.noise for each in self._last() if each.configuration == name)
            margin = noise / (1 + len(repeats.get(name, ()))) ** 0.5
            if self.default in means and best - means[self.default] <= MARGIN * margin:
                return self.default
            near = (n for n in starts if n in means and best - means[n] <= STAYS * margin)
            return next(near, None)
        return None

    def _means(self, repeats: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Of all seeds of each configuration, best first."""
        found = {each.configuration: each for each in self._last()}
        means = {n: mean([each.score, *repeats.get(n, ())]) for n, each in found.items()}
        raced = {name for name in repeats if name != self.default}  # which is in it in any case

        def place(name: str) -> tuple[int, bool, bool, float]:
            each = found[name]
            return each.beaten, each.follows, bool(raced) and name not in raced, -means[name]

        # Stable: of equals the better of one seed comes first.
        return {name: means[name] for name in sorted(means, key=place)}

    def put_first(self, name: str, order: Sequence[str]) -> list[str]:
        """Before all others but those that are best in one of several objectives."""
        leads = {each.configuration for each in self._last() if each.values and not each.follows}
        before = [each for each in order if each in leads]
        return list(dict.fromkeys([*before, name, *order]))

    def _last(self) -> list[RungResult]:
        """At the longest rung before the finals that has any."""
        return next(
            (at.results for at in reversed(self.levels[: self.stages.top]) if at.results), []
        )


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
