"""The ways to make one answer out of many checkpoints. Each is a choice made on some dev rows.

A method sees the rows through a `Judge` and nothing else, so the same code chooses on all of dev
and, for the cross-fitted score, on halves of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.dishes import MEAN, VOTE, WEIGHTS, Dish, Judge, Menu, dish, single
from tuner.greedy import Step, chosen_by, greedy

SINGLE, PREDICTIONS = "single", "predictions"


@dataclass(frozen=True)
class Method:
    kind: str  # single | weights | predictions
    about: str
    choose: Callable[[Judge], Menu]
    dear: bool = False  # runs averages of its own by the dozen: not at the end of a search
    fixed: bool = False  # an average that no row chooses: as many halvings as wanted cost nothing


def prior(order: Sequence[int]) -> dict[int, float]:
    """Prior weights: the best of K counts K times, the next K - 1 times, and the last once."""
    return {member: float(len(order) - place) for place, member in enumerate(order)}


# --- weights ------------------------------------------------------------------------------------


def best_single(judge: Judge) -> Menu:
    return _everywhere(judge, single(judge.order(judge.kitchen.singles)[0]))


def greedy_steps(judge: Judge) -> list[Step]:
    """The greedy soup ingredient by ingredient."""
    order = judge.order(judge.kitchen.group)
    return greedy(order, lambda chosen: judge.score(dish(WEIGHTS, chosen)))


def greedy_soup(judge: Judge) -> Menu:
    return _everywhere(judge, dish(WEIGHTS, chosen_by(greedy_steps(judge))))


def uniform_soup(judge: Judge) -> Menu:
    return _everywhere(judge, dish(WEIGHTS, judge.kitchen.group))


def weighted_soup(judge: Judge) -> Menu:
    order = judge.order(judge.kitchen.group)
    weight = prior(order)

    def soup(chosen: Sequence[int]) -> Dish:
        return dish(WEIGHTS, chosen, [weight[member] for member in chosen])

    steps = greedy(order, lambda chosen: judge.score(soup(chosen)))
    return _everywhere(judge, soup(chosen_by(steps)))


def task_soups(judge: Judge) -> Menu:
    return {name: _greedy_on(judge, name, WEIGHTS) for name in judge.tasks.names}


def trunk_soup(judge: Judge) -> Menu:
    chosen = chosen_by(greedy_steps(judge))
    group = judge.kitchen.group
    heads = {name: judge.order(group, name)[0] for name in judge.tasks.names}
    return {name: dish(WEIGHTS, chosen, head=head) for name, head in heads.items()}


# --- one model per task, and predictions --------------------------------------------------------


def best_per_task(judge: Judge) -> Menu:
    members = judge.kitchen.members
    return {name: single(judge.order(members, name)[0]) for name in judge.tasks.names}


def plain(how: str) -> Callable[[Judge], Menu]:
    return lambda judge: _everywhere(judge, dish(how, judge.kitchen.members))


def weighted(how: str) -> Callable[[Judge], Menu]:
    def choose(judge: Judge) -> Menu:
        menu = {}
        for name in judge.tasks.names:
            weight = prior(judge.order(judge.kitchen.members, name))
            menu[name] = dish(how, list(weight), list(weight.values()))
        return menu

    return choose


def greedy_ensemble(judge: Judge) -> Menu:
    return {name: _greedy_on(judge, name, MEAN) for name in judge.tasks.names}


def _greedy_on(judge: Judge, task: str, how: str) -> Dish:
    """Greedy selection by one task alone."""
    members = judge.kitchen.group if how == WEIGHTS else judge.kitchen.members
    order = judge.order(members, task)
    return dish(how, chosen_by(greedy(order, lambda some: judge.task(task, dish(how, some)))))


def _everywhere(judge: Judge, of: Dish) -> Menu:
    return dict.fromkeys(judge.tasks.names, of)


BEST, GREEDY = "best single", "greedy soup"
METHODS: dict[str, Method] = {
    BEST: Method(SINGLE, "the best trial's best checkpoint", best_single),
    GREEDY: Method(WEIGHTS, "weights averaged, each kept only if it helps", greedy_soup),
    "uniform soup": Method(WEIGHTS, "weights of all averaged", uniform_soup, fixed=True),
    "weighted soup": Method(WEIGHTS, "greedy, the better counting more", weighted_soup, dear=True),
    "trunk soup": Method(WEIGHTS, "greedy soup with the best head of each task", trunk_soup),
    "task soups": Method(WEIGHTS, "a greedy soup for each task", task_soups, dear=True),
    "best per task": Method(SINGLE, "the best checkpoint for each task", best_per_task),
    "mean": Method(PREDICTIONS, "mean of the probabilities and values", plain(MEAN)),
    "weighted mean": Method(PREDICTIONS, "the same, the better counting more", weighted(MEAN)),
    "vote": Method(PREDICTIONS, "mode of the classes, median of the values", plain(VOTE)),
    "weighted vote": Method(PREDICTIONS, "the same, the better counting more", weighted(VOTE)),
    "greedy ensemble": Method(PREDICTIONS, "greedy mean for each task", greedy_ensemble),
}
QUICK = [name for name, method in METHODS.items() if not method.dear]
