"""The ways to make one answer out of many checkpoints. Each is a choice made on some dev rows.

A method sees the rows through a `DevScorer` and nothing else, so the same code chooses on all of
dev and, for the cross-fitted score, on halves of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.soup.combinations import (
    MEAN,
    STOCK,
    VOTE,
    WEIGHTS,
    Combination,
    DevScorer,
    TaskCombinations,
    combine,
    single,
)
from tuner.soup.greedy import GreedyStep, chosen_by, greedy
from tuner.soup.learned import coefficients

SINGLE, PREDICTIONS = "single", "predictions"
PICKS = 8  # of an ensemble that is selected with replacement


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


def greedy_steps(scorer: DevScorer) -> list[GreedyStep]:
    """The greedy soup ingredient by ingredient."""
    order = scorer.order(scorer.evaluator.group)
    return greedy(order, lambda chosen: scorer.score(combine(WEIGHTS, chosen)))


def greedy_soup(scorer: DevScorer) -> TaskCombinations:
    return _everywhere(scorer, combine(WEIGHTS, chosen_by(greedy_steps(scorer))))


def uniform_soup(scorer: DevScorer) -> TaskCombinations:
    return _everywhere(scorer, combine(WEIGHTS, scorer.evaluator.group))


def weighted_soup(scorer: DevScorer) -> TaskCombinations:
    order = scorer.order(scorer.evaluator.group)
    soup = _with_prior(WEIGHTS, order)
    steps = greedy(order, lambda chosen: scorer.score(soup(chosen)))
    return _everywhere(scorer, soup(chosen_by(steps)))


def trajectory_soup(scorer: DevScorer) -> TaskCombinations:
    evaluator = scorer.evaluator
    best = scorer.order(evaluator.singles)[0]
    own = [m for m in evaluator.group if evaluator.trials[m] == evaluator.trials[best]]
    return _everywhere(scorer, combine(WEIGHTS, own or [best]))


def model_stock(scorer: DevScorer) -> TaskCombinations:
    return _everywhere(scorer, combine(STOCK, scorer.evaluator.group))


def learned_soup(scorer: DevScorer) -> TaskCombinations:
    """Learned coefficients for all weights alike, where they are better than the best alone."""
    order = scorer.order(scorer.evaluator.group)
    made, best = _learned(scorer, order, _goals(scorer)), single(order[0])
    return _everywhere(scorer, made if scorer.score(made) > scorer.score(best) else best)


def learned_heads(scorer: DevScorer) -> TaskCombinations:
    """The learned soup, and a head for each task with coefficients of its own if that helps."""
    soup = learned_soup(scorer)
    order = scorer.order(scorer.evaluator.group)
    trunk = _learned(scorer, order, _goals(scorer))
    made = {
        name: combine(WEIGHTS, trunk.members, trunk.weights, head=_learned(scorer, order, [name]))
        for name in scorer.tasks.names
    }
    return made if scorer.score(made) > scorer.score(soup) else soup


def _learned(scorer: DevScorer, members: Sequence[int], tasks: Sequence[str]) -> Combination:
    found = coefficients(scorer, members, tasks)
    return combine(WEIGHTS, list(found), list(found.values()))


def _goals(scorer: DevScorer) -> Sequence[str]:
    names = scorer.tasks.names
    return [scorer.goal] if scorer.goal in names else names


def task_soups(scorer: DevScorer) -> TaskCombinations:
    return {name: _greedy_on(scorer, name, WEIGHTS) for name in scorer.tasks.names}


def trunk_soup(scorer: DevScorer) -> TaskCombinations:
    chosen = chosen_by(greedy_steps(scorer))
    group = scorer.evaluator.group
    heads = {name: scorer.order(group, name)[0] for name in scorer.tasks.names}
    return {name: combine(WEIGHTS, chosen, head=single(head)) for name, head in heads.items()}


# --- one model per task, and predictions --------------------------------------------------------


def best_per_task(scorer: DevScorer) -> TaskCombinations:
    able = scorer.evaluator.able
    return {name: single(scorer.order(able(name), name)[0]) for name in scorer.tasks.names}


def distilled(scorer: DevScorer) -> TaskCombinations:
    number = scorer.evaluator.distilled
    assert number is not None  # or there is no such method
    return _everywhere(scorer, single(number))


def unweighted(rule: str) -> Callable[[DevScorer], TaskCombinations]:
    def choose(scorer: DevScorer) -> TaskCombinations:
        return {name: combine(rule, scorer.evaluator.able(name)) for name in scorer.tasks.names}

    return choose


def weighted(rule: str) -> Callable[[DevScorer], TaskCombinations]:
    def choose(scorer: DevScorer) -> TaskCombinations:
        combinations = {}
        for name in scorer.tasks.names:
            weight = prior(scorer.order(scorer.evaluator.able(name), name))
            combinations[name] = combine(rule, list(weight), list(weight.values()))
        return combinations

    return choose


def greedy_ensemble(scorer: DevScorer) -> TaskCombinations:
    return {name: _greedy_on(scorer, name, MEAN) for name in scorer.tasks.names}


def greedy_weighted(rule: str) -> Callable[[DevScorer], TaskCombinations]:
    """As the greedy ensemble, the better counting more.

    Whoever helps the mean is in, also where they vote then: of two members with unequal weights
    the heavier one has all votes, so by votes no second one ever helps.
    """

    def choose(scorer: DevScorer) -> TaskCombinations:
        combinations = {}
        for name in scorer.tasks.names:
            order = scorer.order(scorer.evaluator.able(name), name)
            mean = _with_prior(MEAN, order)
            steps = greedy(order, lambda some: scorer.task(name, mean(some)))  # noqa: B023
            combinations[name] = _with_prior(rule, order)(chosen_by(steps))
        return combinations

    return choose


def ensemble_selection(scorer: DevScorer) -> TaskCombinations:
    """Caruana et al. (2004): whoever helps most joins, again and again, also who is in already."""

    def selected(task: str) -> Combination:
        members = scorer.order(scorer.evaluator.able(task), task)
        counts = {members[0]: 1}
        best = single(members[0])
        for _ in range(PICKS - 1):
            tries = [{**counts, m: counts.get(m, 0) + 1} for m in members]
            made = [combine(MEAN, list(each), list(each.values())) for each in tries]
            scores = [scorer.task(task, each) for each in made]
            place = scores.index(max(scores))
            counts = tries[place]
            if scores[place] > scorer.task(task, best):
                best = made[place]
        return best

    return {name: selected(name) for name in scorer.tasks.names}


def _with_prior(rule: str, order: Sequence[int]) -> Callable[[Sequence[int]], Combination]:
    weight = prior(order)
    return lambda chosen: combine(rule, chosen, [weight[member] for member in chosen])


def _greedy_on(scorer: DevScorer, task: str, rule: str) -> Combination:
    """Greedy selection by one task alone."""
    members = scorer.evaluator.group if rule == WEIGHTS else scorer.evaluator.able(task)
    order = scorer.order(members, task)
    return combine(
        rule, chosen_by(greedy(order, lambda some: scorer.task(task, combine(rule, some))))
    )


def _everywhere(scorer: DevScorer, of: Combination) -> TaskCombinations:
    return dict.fromkeys(scorer.tasks.names, of)


BEST, GREEDY, DISTILLED = "best single", "greedy soup", "distilled"
METHODS: dict[str, Method] = {
    BEST: Method(SINGLE, "the best trial's best checkpoint", best_single),
    GREEDY: Method(WEIGHTS, "weights averaged, each kept only if it helps", greedy_soup),
    "uniform soup": Method(WEIGHTS, "mean of all weights", uniform_soup, fixed=True),
    "weighted soup": Method(
        WEIGHTS, "greedy, the better counting more", weighted_soup, expensive=True
    ),
    "trajectory soup": Method(
        WEIGHTS, "weights of the best trial's last checkpoints averaged", trajectory_soup
    ),
    "model stock": Method(
        WEIGHTS,
        "mean of all weights, pulled towards the start of training",
        model_stock,
        fixed=True,
    ),
    "learned soup": Method(WEIGHTS, "weights averaged by learned coefficients", learned_soup),
    "learned heads": Method(
        WEIGHTS, "learned coefficients, for each head its own", learned_heads, expensive=True
    ),
    "trunk soup": Method(WEIGHTS, "greedy soup with the best head of each task", trunk_soup),
    "task soups": Method(WEIGHTS, "a greedy soup for each task", task_soups, expensive=True),
    "best per task": Method(SINGLE, "the best checkpoint for each task", best_per_task),
    DISTILLED: Method(SINGLE, "one model that the best ensemble taught", distilled),
    "mean": Method(PREDICTIONS, "mean of the probabilities and values", unweighted(MEAN)),
    "weighted mean": Method(PREDICTIONS, "mean, the better counting more", weighted(MEAN)),
    "vote": Method(PREDICTIONS, "commonest class, median of the values", unweighted(VOTE)),
    "weighted vote": Method(PREDICTIONS, "vote, better models counting more", weighted(VOTE)),
    "greedy ensemble": Method(PREDICTIONS, "greedy mean for each task", greedy_ensemble),
    "prior ensemble": Method(
        PREDICTIONS, "greedy mean for each task, the better counting more", greedy_weighted(MEAN)
    ),
    "prior vote": Method(
        PREDICTIONS, "vote of the prior ensemble's members", greedy_weighted(VOTE)
    ),
    "picked ensemble": Method(
        PREDICTIONS,
        "mean for each task, by ensemble selection with replacement",
        ensemble_selection,
    ),
}
QUICK = [name for name, method in METHODS.items() if not method.expensive]
