"""Who goes on: promotion by successive halving, with examples seen as the resource.

Configurations are ranked at each rung by the score that they have there. A configuration goes on
to the next rung as soon as it is sure to be among the best, or among the best `1 / reduction` of
those that are through while a slot would be idle otherwise. Nobody is judged by less than the rung
has seen, and everything follows from the results, so the ledger gives the same decisions again.

The default configuration goes along up to the last rung before the finals: it is what all others
are compared with. A final is given to another only if that is better by more than chance.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tuner.engine.stages import Stages

# Of a score's noise, so much a configuration must lead the default by. The noise is 1.96 standard
# errors of one score; two scores on the same examples differ by chance with about half of that.
MARGIN = 0.5


@dataclass(frozen=True, order=True)
class Result:
    """A configuration at a rung. Sorted, the best come first; of equals the earlier one."""

    rank: float  # the score, turned round
    order: int
    configuration: str = field(compare=False)
    noise: float = field(compare=False, default=0.0)  # how far the score may be off

    @property
    def score(self) -> float:
        return -self.rank


@dataclass
class Level:
    """What has happened at one rung."""

    entered: set[str] = field(default_factory=set)  # configurations
    running: set[str] = field(default_factory=set)  # of these, without a result so far
    failed: set[str] = field(default_factory=set)  # of these, without one for ever
    results: list[Result] = field(default_factory=list)  # best first
    waiting: list[Result] = field(default_factory=list)  # of these, what may still go on
    default: Result | None = None  # of the default configuration


class Ladder:
    def __init__(self, stages: Stages, reduction: float, default: str | None = None) -> None:
        self.stages = stages
        self.reduction = reduction
        self.default = default
        self.levels = [Level() for _ in stages.rungs]
        self.order: dict[str, int] = {}  # of configurations, as they were created

    def enter(self, configuration: str, level: int) -> None:
        at = self.levels[level]
        self.order.setdefault(configuration, len(self.order))
        if configuration not in at.entered:
            at.entered.add(configuration)
            at.running.add(configuration)
            self.leave(configuration, level - 1)

    def result(self, configuration: str, level: int, score: float, noise: float = 0.0) -> None:
        """The first one counts: a report that comes again changes nothing."""
        at = self.levels[level]
        if configuration in at.running:
            at.running.remove(configuration)
            found = Result(-score, self.order[configuration], configuration, noise)
            insort(at.results, found)
            at.default = found if configuration == self.default else at.default
            above = self.levels[level + 1].entered if level < self.stages.top else set()
            if configuration not in above:
                insort(at.waiting, found)

    def fail(self, configuration: str, level: int) -> None:
        """It has no result at this rung, and will have none: its place is another's."""
        at = self.levels[level]
        if configuration in at.running:
            at.running.remove(configuration)
            at.failed.add(configuration)
            if configuration == self.default:  # nobody waits for it
                self.default = None

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
            for each in at.waiting[:2]:  # of which one may be the default
                if self._rank(each, at) < min(places, allowed):
                    return each.configuration, level + 1
            if allowed > 0 and at.default in at.waiting:
                return str(self.default), level + 1
        return None

    def _rank(self, result: Result, at: Level) -> int:
        """From 0, with the default before all others, as it goes along."""
        if result.configuration == self.default:
            return 0
        place = bisect_left(at.results, result)
        behind = at.default is None or at.default > result
        return place + 1 if self.default is not None and behind else place

    def hopeless(self, level: int) -> list[str]:
        """Those that wait at this rung with enough others ahead of them, whatever is to come."""
        if level + 1 >= self.stages.top:  # who gets a final is decided when all is known
            return []
        results, waiting = self.levels[level].results, self.levels[level].waiting
        if len(results) <= self.places(level + 1):
            return []
        behind = waiting[bisect_left(waiting, results[self.places(level + 1)]) :]
        return [each.configuration for each in behind if each.configuration != self.default]

    # --- the finals -------------------------------------------------------------------------

    def finalists(self, repeats: Mapping[str, Sequence[float]]) -> list[str]:
        """Configurations in the order in which finals are given to them, once all below is known.

        `repeats` has scores of the same length with further seeds; the mean of all counts. Where
        nothing beats the default by more than chance, the default is the first.
        """
        if not self.stages.top:
            return []
        level = next((n for n in reversed(range(self.stages.top)) if self.levels[n].results), None)
        if level is None:
            return []
        found = self.levels[level].results
        means = {
            each.configuration: mean([each.score, *repeats.get(each.configuration, ())])
            for each in found
        }
        noise = {
            each.configuration: each.noise / (1 + len(repeats.get(each.configuration, ()))) ** 0.5
            for each in found
        }
        order = sorted(means, key=lambda name: -means[name])  # stable: the better of one seed first
        if self.default in means:
            lead = means[order[0]] - means[self.default]
            if order[0] != self.default and lead <= MARGIN * noise[order[0]]:
                order.remove(self.default)
                order.insert(0, self.default)
        return order


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
