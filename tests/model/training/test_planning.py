from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config.parse import parse_settings
from model.data.batches import Assembler, TaskStream
from model.data.tokens import Tokens
from model.objectives.schedules import JOINT, SCHEDULES, STAGED
from model.tasks.task_set import TaskSet, load_task_set, take_tasks
from model.training.planning import (
    FEWEST_EVALUATIONS,
    evaluation_points,
    plan_rounds,
    untrained,
    walk,
)

TASKS = load_task_set("sample")


def stream(rows: int, size: int) -> TaskStream:
    """A stream of so many rows; only their number matters here."""
    tokens = Tokens(
        ids1=np.ones(rows, np.int32),
        offsets1=np.arange(rows + 1, dtype=np.int64),
        ids2=np.empty(0, np.int32),
        offsets2=np.zeros(rows + 1, np.int64),
        pair=False,
    )
    assembler: Any = None
    assert isinstance(assembler, Assembler | None)
    return TaskStream(
        tokens, np.zeros(rows), size, seed_key=(0,), layout="single", assembler=assembler
    )


def planned(
    schedule: str,
    rows: tuple[int, int, int] = (300, 400, 100),
    extra: int = 0,
    tasks: TaskSet = TASKS,
    **changes: Any,
) -> tuple[Any, Any, int, dict[str, TaskStream]]:
    """The config, the plan, its rounds and the streams; `extra` rows are augmentation."""
    given = {"schedule.name": schedule, "batch.sizes": [16, 10, 7]}
    config = parse_settings(given | {k.replace("__", "."): v for k, v in changes.items()}, tasks)
    sizes = config.batch_sizes(tasks)
    real = dict(zip(tasks.names, rows, strict=True))
    streams = {
        name: stream(real[name] + (extra if number == 0 else 0), size)
        for number, (name, size) in enumerate(zip(tasks.names, sizes, strict=True))
    }
    plan, steps = plan_rounds(config, tasks, streams, real)
    return config, plan, steps, streams


def seen_by(config: Any, plan: Any, steps: int, streams: dict[str, TaskStream]) -> list[int]:
    """The examples seen by the end of every round."""
    walked = walk(config.schedule.name, plan, list(streams.values()))
    return [seen for _, seen in islice(walked, steps)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=150)
@given(data=st.data())
def test_a_budget_of_examples_is_met_within_a_round(schedule: str, data: st.DataObject) -> None:
    rows = tuple(data.draw(st.integers(1, 500)) for _ in range(3))
    sizes = [data.draw(st.integers(1, 40)) for _ in range(3)]
    examples = data.draw(st.integers(1, 4000))
    extra = data.draw(st.sampled_from([0, 0, 90, 1000]))
    config, plan, steps, streams = planned(
        schedule,
        rows,  # type: ignore[arg-type]
        extra,
        budget__epochs=None,
        budget__examples=examples,
        batch__sizes=sizes,
    )
    seen = seen_by(config, plan, steps, streams)
    assert len(seen) == steps
    assert seen[-1] >= examples
    assert len(seen) == 1 or seen[-2] < examples
    assert seen[-1] - examples < (sum(sizes) if schedule in JOINT else max(sizes))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_epochs_alone_run_to_their_end(schedule: str) -> None:
    config, plan, steps, _ = planned(schedule, budget__epochs=2)
    assert plan.epochs == 2
    assert steps == len(list(SCHEDULES[schedule](plan)))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_of_two_budgets_the_smaller_ends_the_run(schedule: str) -> None:
    _, _, whole, _ = planned(schedule, budget__epochs=2)
    config, plan, steps, streams = planned(schedule, budget__epochs=2, budget__examples=100)
    assert steps < whole
    seen = seen_by(config, plan, steps, streams)
    assert seen[-1] >= 100
    assert len(seen) == 1 or seen[-2] < 100
    assert planned(schedule, budget__epochs=2, budget__examples=10**6)[2] == whole


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_walk_counts_what_the_streams_give(schedule: str) -> None:
    config, plan, steps, streams = planned(schedule, budget__epochs=1.5)
    drawn = dict.fromkeys(streams, 0)
    total = 0
    walked = walk(schedule, plan, list(streams.values()))
    for tasks, seen in islice(walked, steps):
        for task in tasks:
            name = TASKS.names[task]
            total += len(streams[name].rows(drawn[name]))
            drawn[name] += 1
        assert seen == total


def test_names_become_numbers_in_a_plan() -> None:
    _, plan, _, _ = planned(
        "sequential",
        extra=37,
        schedule__order=["similarity", "sentiment", "paraphrase"],
        schedule__first="paraphrase",
        schedule__anchor="similarity",
        schedule__first_epochs=2,
        schedule__epoch_steps=50,
        schedule__epochs=4,
        seed=9,
    )
    assert (plan.order, plan.first, plan.anchor) == ((2, 0, 1), 1, 2)
    assert (plan.first_epochs, plan.epoch_steps, plan.parts, plan.seed) == (2, 50, 4, 9)
    assert plan.rows == (300, 400, 100)  # real rows only
    assert plan.batches == (22, 40, 15)  # of all 337 of the first
    assert planned("uniform")[1].first is None


# --- when it is evaluated -----------------------------------------------------------------------


def evaluations(schedule: str, **changes: Any) -> int:
    """How often a run that evaluates at every crossing, and at its end, does so."""
    config, plan, steps, streams = planned(schedule, **changes)
    every = evaluation_points(config, plan, steps, streams).eval_every
    assert every is not None
    seen = seen_by(config, plan, steps, streams)
    before = [0, *seen[:-1]]
    marks = [now // every > was // every for was, now in zip(before, seen, strict=True)]
    return sum(marks[:-1]) + 1


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("epochs", [0.5, 1, 2, 3, 4, 7])
def test_a_run_is_evaluated_once_an_epoch_and_three_times_at_least(
    schedule: str, epochs: float
) -> None:
    of_first_stage = 1 if schedule in STAGED else 0
    wanted = max(FEWEST_EVALUATIONS, round(epochs + of_first_stage))
    assert evaluations(schedule, budget__epochs=epochs) == wanted


@pytest.mark.parametrize("schedule", STAGED)
@pytest.mark.parametrize("first", [0, 2, 5])
def test_the_epochs_of_a_first_stage_are_evaluated_too(schedule: str, first: float) -> None:
    found = evaluations(schedule, budget__epochs=4, schedule__first_epochs=first)
    assert found == 4 + first


def test_what_was_asked_for_stays() -> None:
    config, plan, steps, streams = planned("uniform", budget__eval_every=123, budget__eval_rows=9)
    assert evaluation_points(config, plan, steps, streams) is config.budget


def test_other_settings_of_the_budget_stay() -> None:
    config, plan, steps, streams = planned("uniform", budget__epochs=2, budget__eval_rows=9)
    found = evaluation_points(config, plan, steps, streams)
    assert (found.epochs, found.eval_rows, found.examples) == (2, 9, None)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_smallest_run_is_evaluated_too(schedule: str) -> None:
    config, plan, steps, streams = planned(schedule, budget__epochs=None, budget__examples=1)
    assert steps == 1
    found = evaluation_points(config, plan, steps, streams)
    assert found.eval_every is not None and found.eval_every >= 1


# --- some tasks only ----------------------------------------------------------------------------


@pytest.mark.parametrize("only", [(0,), (2,), (0, 2)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_some_tasks_alone_are_as_a_set_of_these(name: str, only: tuple[int, ...]) -> None:
    rows, sizes = (300, 400, 100), (16, 10, 7)
    names = [TASKS.names[n] for n in only]
    _, plan, steps, streams = planned(
        name, rows, schedule__only=names, budget__examples=900, budget__epochs=None
    )
    whole = list(islice(walk(name, plan, list(streams.values())), steps))
    small = take_tasks(TASKS, names)
    given = {"schedule.name": name, "batch.sizes": [sizes[n] for n in only], "budget.examples": 900}
    config = parse_settings(given, small)
    own = {task: streams[task] for task in names}
    alone, length = plan_rounds(
        config, small, own, {task: rows[TASKS.index(task)] for task in names}
    )
    part = list(islice(walk(name, alone, list(own.values())), length))
    assert [(tuple(only[t] for t in round_), seen) for round_, seen in part] == whole


def test_of_some_tasks_none_of_the_others_is_missed() -> None:
    config, plan, steps, _ = planned("sequential", schedule__only=["sentiment"])
    assert untrained(config.schedule.name, plan, steps, TASKS) == []
    assert untrained("sequential", plan, 0, TASKS) == ["sentiment"]


def test_a_first_task_or_an_order_of_tasks_that_are_not_trained_does_no_harm() -> None:
    for name in ("staggered", "pretrain_then_simultaneous", "epoch_round_robin"):
        config, plan, steps, streams = planned(
            name,
            schedule__only=["sentiment"],
            schedule__first="paraphrase",
            schedule__anchor="similarity",
            schedule__order=["similarity", "paraphrase", "sentiment"],
        )
        rounds = {r for r, _ in islice(walk(name, plan, list(streams.values())), steps)}
        assert rounds == {(0,)}
