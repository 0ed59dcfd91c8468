"""The ways to make one answer out of many checkpoints. Each is a choice made on some dev rows.

A method sees the rows through a `DevScorer` and nothing else, so the same code chooses on all of
dev and, for the cross-fitted score, on halves of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.soup.combinations import (
    MEAN,
    VOTE,
    WEIGHTS,
    Combination,
    DevScorer,
    TaskCombinations,
    combine,
    single,
)
from tuner.soup.greedy import Step, chosen_by, greedy

SINGLE, PREDICTIONS = "single", "predictions"


@dataclass(frozen=True)
class Method:
    kind: str  # single | weights | predictions
    about: str
    choose: Callable[[DevScorer], TaskCombinations]
    expensive: bool = False  # runs averages of its own by the dozen: not at the end of a search
    fixed: bool = False  # an average that no row chooses: as many halvings as wanted cost nothing


def prior(order: Sequence[int]) -> dict[int, float]:
    """Prior weights: the best of K counts K times, the next K - 1 times, and the last once."""
    return {member: float(len(order) - place) for place, member in enumerate(order)}


# --- weights ------------------------------------------------------------------------------------


def best_single(scorer: DevScorer) -> TaskCombinations:
    return _everywhere(scorer, single(scorer.order(scorer.evaluator.singles)[0]))


def greedy_steps(scorer: DevScorer) -> list[Step]:
    """The greedy soup ingredient by ingredient."""
    order = scorer.order(scorer.evaluator.group)
    return greedy(order, lambda chosen: scorer.score(combine(WEIGHTS, chosen)))


def greedy_soup(scorer: DevScorer) -> TaskCombinations:
    return _everywhere(scorer, combine(WEIGHTS, chosen_by(greedy_steps(scorer))))


def uniform_soup(scorer: DevScorer) -> TaskCombinations:
    return _everywhere(scorer, combine(WEIGHTS, scorer.evaluator.group))


def weighted_soup(scorer: DevScorer) -> TaskCombinations:
    order = scorer.order(scorer.evaluator.group)
    weight = prior(order)

    def soup(chosen: Sequence[int]) -> Combination:
        return combine(WEIGHTS, chosen, [weight[member] for member in chosen])

    steps = greedy(order, lambda chosen: scorer.score(soup(chosen)))
    return _everywhere(scorer, soup(chosen_by(steps)))


def task_soups(scorer: DevScorer) -> TaskCombinations:
    return {name: _greedy_on(scorer, name, WEIGHTS) for name in scorer.tasks.names}


def trunk_soup(scorer: DevScorer) -> TaskCombinations:
    chosen = chosen_by(greedy_steps(scorer))
    group = scorer.evaluator.group
    heads = {name: scorer.order(group, name)[0] for name in scorer.tasks.names}
    return {name: combine(WEIGHTS, chosen, head=head) for name, head in heads.items()}


# --- one model per task, and predictions --------------------------------------------------------


def best_per_task(scorer: DevScorer) -> TaskCombinations:
    members = scorer.evaluator.members
    return {name: single(scorer.order(members, name)[0]) for name in scorer.tasks.names}


def unweighted(rule: str) -> Callable[[DevScorer], TaskCombinations]:
    return lambda scorer: _everywhere(scorer, combine(rule, scorer.evaluator.members))


def weighted(rule: str) -> Callable[[DevScorer], TaskCombinations]:
    def choose(scorer: DevScorer) -> TaskCombinations:
        combinations = {}
        for name in scorer.tasks.names:
            weight = prior(scorer.order(scorer.evaluator.members, name))
            combinations[name] = combine(rule, list(weight), list(weight.values()))
        return combinations

    return choose


def greedy_ensemble(scorer: DevScorer) -> TaskCombinations:
    return {name: _greedy_on(scorer, name, MEAN) for name in scorer.tasks.names}


def _greedy_on(scorer: DevScorer, task: str, rule: str) -> Combination:
    """Greedy selection by one task alone."""
    members = scorer.evaluator.group if rule == WEIGHTS else scorer.evaluator.members
    order = scorer.order(members, task)
    return combine(
        rule, chosen_by(greedy(order, lambda some: scorer.task(task, combine(rule, some))))
    )


def _everywhere(scorer: DevScorer, of: Combination) -> TaskCombinations:
    return dict.fromkeys(scorer.tasks.names, of)


BEST, GREEDY = "best single", "greedy soup"
METHODS: dict[str, Method] = {
    BEST: Method(SINGLE, "the best trial's best checkpoint", best_single),
    GREEDY: Method(WEIGHTS, "weights averaged, each kept only if it helps", greedy_soup),
    "uniform soup": Method(WEIGHTS, "weights of all averaged", uniform_soup, fixed=True),
    "weighted soup": Method(
        WEIGHTS, "greedy, the better counting more", weighted_soup, expensive=True
    ),
    "trunk soup": Method(WEIGHTS, "greedy soup with the best head of each task", trunk_soup),
    "task soups": Method(WEIGHTS, "a greedy soup for each task", task_soups, expensive=True),
    "best per task": Method(SINGLE, "the best checkpoint for each task", best_per_task),
    "mean": Method(PREDICTIONS, "mean of the probabilities and values", unweighted(MEAN)),
    "weighted mean": Method(PREDICTIONS, "the same, the better counting more", weighted(MEAN)),
    "vote": Method(PREDICTIONS, "mode of the classes, median of the values", unweighted(VOTE)),
    "weighted vote": Method(PREDICTIONS, "the same, the better counting more", weighted(VOTE)),
    "greedy ensemble": Method(PREDICTIONS, "greedy mean for each task", greedy_ensemble),
}
QUICK = [name for name, method in METHODS.items() if not method.expensive]
