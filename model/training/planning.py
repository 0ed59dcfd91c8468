"""How many rounds a run has, and when it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from model.config.settings import BudgetSettings, RunConfig
from model.data.batches import TaskStream
from model.objectives.schedules import STAGED, Round, RoundPlan, plan_for_examples, rounds_of
from model.tasks.task_set import TaskSet

FEWEST_EVALUATIONS = 3


def plan_rounds(
    config: RunConfig, tasks: TaskSet, streams: Mapping[str, TaskStream], real: Mapping[str, int]
) -> tuple[RoundPlan, int]:
    """The schedule's plan, and after how many rounds the budget is used up."""
    schedule, budget = config.schedule, config.budget
    trained = [task for task in tasks if task.name in (schedule.only or tasks.names)]
    place = {task.name: number for number, task in enumerate(trained)}
    order = [name for name in schedule.order or () if name in place]
    plan = RoundPlan(
        rows=tuple(real[task.name] for task in trained),
        batches=tuple(streams[task.name].per_pass for task in trained),
        epochs=budget.epochs or 1.0,
        parts=schedule.epochs,
        seed=config.seed,
        order=tuple(place[name] for name in order),
        first=None if schedule.first is None else place.get(schedule.first),
        first_epochs=schedule.first_epochs,
        anchor=None if schedule.anchor is None else place.get(schedule.anchor),
        anneal=schedule.anneal,
        epoch_steps=schedule.epoch_steps,
        numbers=() if len(trained) == len(tasks) else tuple(tasks.index(name) for name in place),
    )
    if budget.epochs is None and budget.examples is not None:
        sizes = dict(zip(tasks.names, config.batch_sizes(tasks), strict=True))
        own = [sizes[task.name] for task in trained]
        plan = plan_for_examples(schedule.name, plan, own, budget.examples)
    steps = 0
    for _, seen in walk(schedule.name, plan, list(streams.values())):
        steps += 1
        if budget.examples is not None and seen >= budget.examples:
            break
    return plan, steps


def untrained(name: str, plan: RoundPlan, steps: int, tasks: TaskSet) -> list[str]:
    """Tasks that the budget ends without."""
    seen = {task for round_ in islice(rounds_of(name, plan), steps) for task in round_}
    wanted = plan.numbers or range(len(tasks))
    return [tasks.names[number] for number in wanted if number not in seen]


def walk(name: str, plan: RoundPlan, streams: list[TaskStream]) -> Iterator[tuple[Round, int]]:
    """Every round with the examples seen by its end, without touching the data."""
    drawn = [0] * len(streams)
    seen = 0
    for tasks in rounds_of(name, plan):
        for task in tasks:
            seen += streams[task].size_of(drawn[task])
            drawn[task] += 1
        yield tasks, seen


def evaluation_points(
    config: RunConfig, plan: RoundPlan, steps: int, streams: Mapping[str, TaskStream]
) -> BudgetSettings:
    """The budget with `eval_every` filled in: once per epoch, and a few times in any run.

    The epochs of a first stage count as well as those of the second. The evaluations are as many
    examples apart from each other, however long the epochs of the two are.
    """
    if config.budget.eval_every is not None:
        return config.budget
    pairs = islice(walk(config.schedule.name, plan, list(streams.values())), steps)
    *_, (_, examples) = pairs
    first = plan.first_epochs if config.schedule.name in STAGED else 0.0
    evaluations = max(FEWEST_EVALUATIONS, round(plan.epochs + first))
    return replace(config.budget, eval_every=max(1, -(-examples // evaluations)))
