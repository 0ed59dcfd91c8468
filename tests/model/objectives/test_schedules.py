from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.objectives.schedules import (
    BY_EPOCH,
    JOINT,
    SCHEDULES,
    STAGED,
    RoundPlan,
    annealed_probabilities,
    plan_for_examples,
)

# Three tasks of 2, 5 and 3 batches; the second is by far the largest.
PLAN = RoundPlan(rows=(20, 500, 30), batches=(2, 5, 3), epochs=2)


def tasks(name: str, plan: RoundPlan) -> list[int]:
    """The schedule as one flat list, for schedules of single tasks."""
    rounds = list(SCHEDULES[name](plan))
    assert all(len(one) == 1 for one in rounds)
    return [one[0] for one in rounds]


@st.composite
def plans(draw: st.DrawFn, tasks: int | None = None) -> RoundPlan:
    count = draw(st.integers(1, 4)) if tasks is None else tasks
    sizes = st.tuples(*[st.integers(1, 40)] * count)
    one = st.none() | st.integers(0, count - 1)
    return RoundPlan(
        rows=draw(st.tuples(*[st.integers(1, 5000)] * count)),
        batches=draw(sizes),
        epochs=draw(st.floats(0.01, 4)),
        parts=draw(st.none() | st.integers(1, 6)),
        seed=draw(st.integers(0, 9)),
        first=draw(one),
        anchor=draw(one),
        first_epochs=draw(st.floats(0, 2)),
        epoch_steps=draw(st.none() | st.integers(1, 50)),
    )


@pytest.mark.parametrize("name", SCHEDULES)
@settings(deadline=None, derandomize=True, max_examples=50)
@given(plan=plans())
def test_a_schedule_keeps_its_promises(name: str, plan: RoundPlan) -> None:
    rounds = list(SCHEDULES[name](plan))
    count = len(plan.rows)
    assert rounds, "at least one round"
    assert rounds == list(SCHEDULES[name](plan)), "the same plan, the same rounds"
    for one in rounds:
        assert list(one) == sorted(set(one)) and 0 <= one[0] and one[-1] < count
        assert type(one[0]) is int
    assert all(len(one) in (1, count) for one in rounds)
    if name not in JOINT:
        assert all(len(one) == 1 for one in rounds)
    if name not in ("uniform", "annealed"):
        assert {task for one in rounds for task in one} == set(range(count)), "no task left out"


@pytest.mark.parametrize("name", SCHEDULES)
def test_resuming_is_skipping(name: str) -> None:
    whole = list(SCHEDULES[name](PLAN))
    for done in (0, 1, 3, len(whole)):
        assert list(islice(SCHEDULES[name](PLAN), done, None)) == whole[done:]


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_task_alone_is_trained_in_every_round(name: str) -> None:
    plan = RoundPlan(rows=(50,), batches=(5,), epochs=2, first_epochs=1)
    extra = 5 if name in STAGED else 0
    assert list(SCHEDULES[name](plan)) == [(0,)] * (10 + extra)


def test_sequential_finishes_a_task_before_the_next() -> None:
    assert tasks("sequential", PLAN) == [0] * 4 + [1] * 10 + [2] * 6
    assert tasks("sequential", replace(PLAN, order=(2, 0, 1))) == [2] * 6 + [0] * 4 + [1] * 10
    assert tasks("sequential", replace(PLAN, epochs=0.1)) == [0, 1, 2]


def test_epoch_round_robin_passes_over_each_task_in_each_epoch() -> None:
    epoch = [0] * 2 + [1] * 5 + [2] * 3
    assert tasks("epoch_round_robin", PLAN) == epoch * 2
    other = [1] * 5 + [0] * 2 + [2] * 3
    assert tasks("epoch_round_robin", replace(PLAN, order=(1, 0, 2))) == other * 2
    twice = tasks("epoch_round_robin", replace(PLAN, order=(0, 1, 2, 0)))
    assert Counter(twice)[0] == 2 * Counter(tasks("epoch_round_robin", PLAN))[0]
    half = [0] * 1 + [1] * 3 + [2] * 2
    assert tasks("epoch_round_robin", replace(PLAN, epochs=1.5)) == epoch + half


def test_batch_round_robin_ends_with_the_shortest_task() -> None:
    assert list(SCHEDULES["batch_round_robin"](PLAN)) == [(0, 1, 2)] * 4


def test_sampled_round_robin_ends_when_all_but_the_largest_are_used_up() -> None:
    epoch = [0, 1, 2, 0, 1, 2, 1, 2]
    assert tasks("sampled_round_robin", PLAN) == epoch * 2
    assert tasks("sampled_round_robin", replace(PLAN, epochs=1.3)) == epoch + [0, 1, 2]


def test_sampled_round_robin_keeps_the_largest_in_turn_even_if_it_is_short() -> None:
    plan = RoundPlan(rows=(20, 500), batches=(4, 2), epochs=1)
    assert tasks("sampled_round_robin", plan) == [0, 1] * 4


def test_max_size_cycle_ends_with_the_longest_task() -> None:
    assert tasks("max_size_cycle", PLAN) == [0, 1, 2] * 10


# --- epochs that are shorter than a pass, or longer ---------------------------------------------

LONG = replace(PLAN, batches=(20, 50, 30))


@pytest.mark.parametrize("name", ["epoch_round_robin", "sampled_round_robin"])
def test_epochs_a_tenth_as_long_are_as_those_of_a_tenth_of_the_data(name: str) -> None:
    assert tasks(name, replace(LONG, epochs=0.2, parts=2)) == tasks(name, PLAN)


def test_below_one_pass_sequential_and_epoch_round_robin_differ_only_by_parts() -> None:
    short = replace(LONG, epochs=0.5)
    assert tasks("sequential", short) == tasks("epoch_round_robin", short)
    divided = replace(short, parts=5)
    assert tasks("sequential", divided) == tasks("sequential", short)
    assert tasks("epoch_round_robin", divided) == ([0] * 2 + [1] * 5 + [2] * 3) * 5


def test_annealing_takes_as_many_epochs_as_there_are_parts() -> None:
    plan = replace(PLAN, epochs=1, epoch_steps=120_000, parts=3, anneal=1.0)
    drawn = np.array(tasks("annealed", plan)).reshape(3, 40_000)
    for epoch in range(3):
        shares = np.bincount(drawn[epoch], minlength=3) / 40_000
        expected = annealed_probabilities(PLAN.rows, epoch + 1, 3, 1.0)
        assert np.abs(shares - expected).max() < 0.0125  # five sigma


@pytest.mark.parametrize("name", sorted(set(SCHEDULES) - BY_EPOCH))
def test_to_other_schedules_parts_are_nothing(name: str) -> None:
    assert list(SCHEDULES[name](replace(LONG, parts=7))) == list(SCHEDULES[name](LONG))


@pytest.mark.parametrize("examples", [1_500, 20_000])
@pytest.mark.parametrize("name", sorted(BY_EPOCH))
def test_a_budget_in_examples_is_divided_into_the_parts(name: str, examples: int) -> None:
    rows, sizes = (854, 5_000, 604), (16, 16, 10)
    plan = RoundPlan(rows=rows, batches=(54, 313, 61), epochs=1, parts=10)
    plan = plan_for_examples(name, plan, sizes, examples)
    assert plan.parts == 10
    assert examples <= examples_of(name, plan, sizes) <= 1.1 * examples + 4 * sum(sizes)
    if name == "epoch_round_robin":
        assert sum(a > b for a, b in pairwise(tasks(name, plan))) == 9  # each begins anew


@pytest.mark.parametrize("scale", [1, 0.1])
@pytest.mark.parametrize("name", STAGED)
def test_a_first_stage_in_parts_keeps_its_share(name: str, scale: float) -> None:
    sizes, plan = (10, 10, 10), replace(LONG, rows=(200, 9_000, 300), batches=(20, 900, 30))
    plan = replace(plan, first_epochs=2, parts=10)
    later = 10 * (200 + 300 + 300 if name == "staggered" else 3 * 300)  # as long as the third
    whole = 2 * 9_000 + later
    found = plan_for_examples(name, plan, sizes, round(scale * whole))
    assert found.first_epochs == pytest.approx(2 * scale)
    assert found.epochs == pytest.approx(10 * scale, rel=0.1)


@pytest.mark.parametrize("name", STAGED)
def test_a_staged_schedule_starts_with_one_task_alone(name: str) -> None:
    rest = list(SCHEDULES[STAGED[name]](PLAN))
    assert list(SCHEDULES[name](PLAN)) == [(1,)] * 5 + rest
    assert list(SCHEDULES[name](replace(PLAN, first=2, first_epochs=2))) == [(2,)] * 6 + rest
    assert list(SCHEDULES[name](replace(PLAN, first_epochs=0))) == rest


def test_a_simultaneous_epoch_is_a_pass_of_the_largest_but_one() -> None:
    assert list(SCHEDULES["simultaneous"](PLAN)) == [(0, 1, 2)] * 6
    assert list(SCHEDULES["simultaneous"](replace(PLAN, anchor=0))) == [(0, 1, 2)] * 4
    assert list(SCHEDULES["simultaneous"](replace(PLAN, epochs=0.5))) == [(0, 1, 2)] * 2


@pytest.mark.parametrize("name", ["uniform", "annealed"])
def test_drawn_epochs_have_their_length_and_a_cut_one_begins_alike(name: str) -> None:
    whole = tasks(name, PLAN)
    assert len(whole) == 20
    assert len(tasks(name, replace(PLAN, epoch_steps=7))) == 14
    assert whole[:10] != whole[10:], "every epoch has its own draws"
    assert len(tasks(name, replace(PLAN, epochs=1.5))) == 15
    if name == "uniform":
        assert tasks(name, replace(PLAN, epochs=1.5)) == whole[:15]
    assert tasks(name, replace(PLAN, seed=1)) != whole


def test_uniform_draws_each_task_equally_often() -> None:
    counts = Counter(tasks("uniform", replace(PLAN, epoch_steps=15_000)))
    assert all(abs(count - 10_000) < 400 for count in counts.values())  # five sigma


def test_annealing_happens_within_one_epoch_too() -> None:
    """A short trial is less than an epoch; it must not be all proportional to size."""
    plan = RoundPlan(rows=(1_000, 100_000), batches=(600, 60_000), epochs=0.1)
    drawn = tasks("annealed", plan)
    third = len(drawn) // 3
    first, last = drawn[:third].count(0), drawn[-third:].count(0)
    assert last > 4 * first > 0
    assert len(drawn) == pytest.approx(6_060, abs=10)


def test_annealed_probabilities_by_hand() -> None:
    rows, epochs = (8_544, 141_498, 6_040), 25
    for epoch in range(1, epochs + 1):
        powers = [n ** (1 - 0.8 * (epoch - 1) / (epochs - 1)) for n in rows]
        expected = [power / sum(powers) for power in powers]
        assert annealed_probabilities(rows, epoch, epochs, 0.8) == pytest.approx(expected)
    first = annealed_probabilities(rows, 1, epochs)
    assert first == pytest.approx([n / sum(rows) for n in rows])
    assert annealed_probabilities(rows, 1, 1) == pytest.approx(first)


def test_annealed_draws_follow_the_probabilities_of_their_epoch() -> None:
    steps, epochs = 40_000, 3
    plan = replace(PLAN, epochs=epochs, epoch_steps=steps, anneal=1.0)
    drawn = np.array(tasks("annealed", plan)).reshape(epochs, steps)
    for epoch in range(epochs):
        shares = np.bincount(drawn[epoch], minlength=3) / steps
        expected = annealed_probabilities(PLAN.rows, epoch + 1, epochs, 1.0)
        assert np.abs(shares - expected).max() < 0.0125  # five sigma
    assert expected == pytest.approx([1 / 3] * 3)


def examples_of(name: str, plan: RoundPlan, sizes: tuple[int, ...]) -> float:
    """Counted batch by batch; the last batch of each pass is short."""
    done = [0] * len(sizes)
    total = 0
    for one in SCHEDULES[name](plan):
        for task in one:
            at = done[task] % plan.batches[task]
            total += min(sizes[task], plan.rows[task] - at * sizes[task])
            done[task] += 1
    return total


@pytest.mark.parametrize("examples", [1, 100, 1_000, 20_000])
@pytest.mark.parametrize("sizes", [(16, 16, 10), (4, 32, 8)])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_budget_in_examples_is_reached_and_not_much_more(
    name: str, sizes: tuple[int, ...], examples: int
) -> None:
    rows = (854, 5_000, 604)
    batches = tuple(math.ceil(n / size) for n, size in zip(rows, sizes, strict=True))
    plan = plan_for_examples(name, RoundPlan(rows=rows, batches=batches, epochs=1), sizes, examples)
    seen = examples_of(name, plan, sizes)
    assert examples <= seen <= 1.1 * examples + 4 * sum(sizes)


@pytest.mark.parametrize("name", SCHEDULES)
@settings(deadline=None, derandomize=True, max_examples=50)
@given(plan=plans(tasks=2), examples=st.integers(1, 3_000), size=st.integers(1, 20))
def test_any_budget_in_examples_is_reached(
    name: str, plan: RoundPlan, examples: int, size: int
) -> None:
    rows = tuple(batches * size for batches in plan.batches)
    plan = replace(plan, rows=rows, parts=None)  # an epoch has a batch of each task at least
    sizes = (size, size)
    found = plan_for_examples(name, plan, sizes, examples)
    assert examples <= examples_of(name, found, sizes) <= 1.1 * examples + 8 * size


@pytest.mark.parametrize("name", STAGED)
def test_a_first_stage_takes_at_most_half_of_a_budget(name: str) -> None:
    sizes = (10, 100, 10)
    found = list(SCHEDULES[name](plan_for_examples(name, PLAN, sizes, 400)))
    alone = len(found) - len(
        list(SCHEDULES[STAGED[name]](plan_for_examples(name, PLAN, sizes, 400)))
    )
    assert found[:alone] == [(1,)] * 2  # 200 examples rather than the pass of 500
    assert {task for one in found for task in one} == {0, 1, 2}


def test_augmented_batches_are_not_taken_for_real_rows() -> None:
    plan = RoundPlan(rows=(100, 100), batches=(20, 10), epochs=1)  # the first task's rows, doubled
    found = plan_for_examples("epoch_round_robin", plan, (10, 10), 3_000)
    assert found.epochs == pytest.approx(10, rel=0.06)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batches": (1, 2)}, "rows and batches of every task"),
        ({"rows": (), "batches": ()}, "rows and batches of every task"),
        ({"batches": (0, 1, 1)}, "no task may be empty"),
        ({"epochs": 0}, "epochs must be above 0, but got 0"),
        ({"epochs": math.nan}, "epochs must be above 0, but got nan"),
        ({"parts": 0}, "parts must be 1 or more, but got 0"),
        ({"first_epochs": -1}, "first_epochs must be 0 or more"),
        ({"order": (0, 1)}, "order must name each of 3 tasks"),
        ({"first": 3}, "first must be one of 3 tasks, but got 3"),
        ({"anchor": -1}, "anchor must be one of 3 tasks, but got -1"),
        ({"epoch_steps": 0}, "epoch_steps must be 1 or more"),
    ],
)
def test_faults_of_a_plan_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PLAN, **changes)  # type: ignore[arg-type]


def test_faults_of_a_budget_are_named() -> None:
    with pytest.raises(ValueError, match="at least one example"):
        plan_for_examples("uniform", PLAN, (1, 1, 1), 0)
    with pytest.raises(ValueError, match="a batch size is needed for every task"):
        plan_for_examples("uniform", PLAN, (1, 1), 10)
