"""Who goes on: promotion by successive halving, with examples seen as the resource.

Configurations are ranked at each rung by the score that they have there. A configuration goes on
to the next rung as soon as it is sure to be among the best, or among the best `1 / reduction` of
those that are through while a slot would be idle otherwise. Nobody is judged by less than the rung
has seen, and everything follows from the results, so the ledger gives the same decisions again.

The default configuration goes along up to the last rung before the finals: it is what all others
are compared with. A final is given to another only if that is better by more than chance.
"""

from __future__ import annotations

from bisect import insort
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

    entered: dict[str, None] = field(default_factory=dict)  # configurations, as they came
    results: list[Result] = field(default_factory=list)  # best first
    through: set[str] = field(default_factory=set)  # with a result, or failed


class Ladder:
    def __init__(self, stages: Stages, reduction: float, default: str | None = None) -> None:
        self.stages = stages
        self.reduction = reduction
        self.default = default
        self.levels = [Level() for _ in stages.rungs]

    def enter(self, configuration: str, level: int) -> None:
        self.levels[level].entered.setdefault(configuration)

    def result(self, configuration: str, level: int, score: float, noise: float = 0.0) -> None:
        """The first one counts: a report that comes again changes nothing."""
        at = self.levels[level]
        if configuration not in at.through:
            at.through.add(configuration)
            order = len(at.through)
            insort(at.results, Result(-score, order, configuration, noise))

    def fail(self, configuration: str, level: int) -> None:
        self.levels[level].through.add(configuration)

    # --- who goes on ------------------------------------------------------------------------

    def places(self, level: int) -> int:
        return self.stages.rungs[level].places

    def is_complete(self, level: int) -> bool:
        """Nothing more will be heard of this rung."""
        return self._unknown(level) == 0

    def _unknown(self, level: int) -> int:
        """Results that are still to come at most."""
        at = self.levels[level]
        coming = self.places(level) - len(at.entered)
        if level and self.is_complete(level - 1):
            coming = min(coming, len(self._candidates(level - 1)) - len(at.entered))
        return max(0, coming) + len(at.entered.keys() - at.through)

    def _candidates(self, level: int) -> Sequence[Result]:
        """At a rung, in the order in which they are promoted: the default goes along."""
        results = self.levels[level].results
        first = [each for each in results if each.configuration == self.default]
        return [*first, *(each for each in results if each.configuration != self.default)]

    def promotion(self) -> tuple[str, int] | None:
        """A configuration that may go on now, and to which rung; finals are another matter."""
        for level in reversed(range(self.stages.top - 1)):
            above = self.levels[level + 1]
            count = len(self.levels[level].results)
            sure = self.places(level + 1) - self._unknown(level)
            allowed = min(self.places(level + 1), max(sure, int(count / self.reduction)))
            if len(above.entered) < allowed:
                for each in self._candidates(level)[:allowed]:
                    if each.configuration not in above.entered:
                        return each.configuration, level + 1
        return None

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
