from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.common.errors import InputError
from tuner.engine.stages import (
    EXPLORED,
    FEW_TRIALS,
    FINAL_SHARE,
    SHORTEST,
    THREADS_HELP,
    Rung,
    Stages,
    for_budget,
    for_time,
    for_trials,
    in_full,
    stages_of,
)
from tuner.runs.request import PromotionName, SearchRequest

PROMOTIONS: list[PromotionName] = ["restart", "continue"]
budgets = st.integers(100, 2_000_000)


def rungs(stages: Stages) -> list[tuple[int, int]]:
    return [(rung.examples, rung.places) for rung in stages.rungs]


def planned(**request: Any) -> Stages:
    return stages_of(SearchRequest(**request), examples=2400, budget=9000)


def grows(stages: Stages) -> bool:
    lengths = [rung.examples for rung in stages.rungs]
    return lengths == sorted(set(lengths)) and lengths[0] >= 1


# --- a budget -----------------------------------------------------------------------------------


@given(budgets, st.sampled_from(PROMOTIONS), st.sampled_from([1.5, 2.0, 3.0, 4.0]))
def test_a_budget_is_kept_and_most_of_it_goes_into_the_finals(
    budget: int, promotion: PromotionName, reduction: float
) -> None:
    stages = for_budget(budget, promotion=promotion, reduction=reduction)
    assert grows(stages)
    assert stages.cost() <= budget
    finals = stages.final.places * stages.final.examples
    assert finals >= FINAL_SHARE * budget - stages.final.places  # whole examples only


@given(budgets, st.floats(0.02, 0.5), st.none() | st.integers(1, 3))
def test_finals_of_a_given_length_are_as_many_as_the_budget_allows(
    budget: int, share: float, finals: int | None
) -> None:
    examples = max(1, int(budget * share))
    stages = for_budget(budget, examples=examples, finals=finals)
    assert grows(stages) and stages.final.examples == examples
    assert stages.final.places == (finals or max(1, int(FINAL_SHARE * budget / examples)))


@given(st.integers(5_000, 2_000_000))
def test_no_rung_is_too_short_to_say_something_where_there_are_several(budget: int) -> None:
    stages = for_budget(budget)
    if stages.top > 1:
        assert stages.rungs[0].examples >= SHORTEST - 1


@given(budgets, st.integers(1, 40))
def test_as_many_configurations_are_tried_as_were_asked_for(budget: int, trials: int) -> None:
    stages = for_budget(budget, trials=trials)
    assert not stages.top or stages.trials == trials


def test_there_are_more_rungs_the_larger_the_budget() -> None:
    tops = [for_budget(budget).top for budget in (500, 9_000, 60_000, 300_000)]
    assert tops == sorted(tops) and tops[0] <= 1 and tops[-1] >= 3


def test_only_large_budgets_pay_for_further_seeds() -> None:
    assert for_budget(9_000).race == (0, 0)
    best, seeds = for_budget(300_000).race
    assert best and seeds
    assert for_budget(300_000, race=(0, 0)).race == (0, 0)


# --- a number of trials -------------------------------------------------------------------------


@given(st.integers(1, 200), st.integers(1, 100_000), st.sampled_from([1.5, 2.0, 3.0, 10.0]))
def test_trials_and_their_length_hold_and_each_rung_has_fewer(
    trials: int, examples: int, reduction: float
) -> None:
    stages = for_trials(trials, examples, reduction=reduction)
    lengths, places = zip(*rungs(stages), strict=True)
    assert stages.final.examples == examples
    assert list(lengths) == sorted(lengths)
    assert list(places) == sorted(places, reverse=True)
    assert stages.trials == trials
    assert all(count >= 2 for count in places[:-1])  # the default, and one to compare


def test_nine_configurations_are_three_and_then_one() -> None:
    assert rungs(for_trials(9, 900)) == [(100, 9), (300, 3), (900, 1)]
    assert rungs(for_trials(8, 5, reduction=10)) == [(5, 8)]  # none of no examples
    assert rungs(for_trials(9, 900, shortest=300)) == [(300, 9), (900, 3)]
    assert rungs(for_trials(8, 1600, reduction=2, shortest=400)) == [(400, 8), (800, 4), (1600, 2)]
    assert rungs(for_trials(9, 900, finals=2)) == [(100, 9), (300, 3), (900, 2)]
    assert rungs(for_trials(1, 900)) == [(900, 1)]


# --- what it takes ------------------------------------------------------------------------------


def test_the_cost_is_what_all_rungs_take_by_hand() -> None:
    three = (Rung(100, 9), Rung(300, 3), Rung(900, 1))
    assert Stages(three).cost() == 900 + 900 + 900
    assert Stages(three, "continue").cost() == 900 + 3 * 200 + 600
    assert Stages(three, race=(3, 2)).cost() == 2700 + 3 * 2 * 300
    assert in_full(6, 400, (2, 2)).cost() == 6 * 400 + 4 * 400


def test_only_what_goes_on_waits_with_its_state() -> None:
    three = (Rung(100, 9), Rung(300, 3), Rung(900, 1))
    assert Stages(three).most_frozen == 0
    assert Stages(three, "continue").most_frozen == 9 + 3
    assert Stages(three[1:], "continue").most_frozen == 3
    assert in_full(6, 400).most_frozen == 0


def test_finals_that_go_on_have_what_the_rungs_saved() -> None:
    again, on = (for_budget(36_000, promotion=how) for how in ("restart", "continue"))
    assert on.rungs[:-1] == again.rungs[:-1]
    assert again.cost() <= on.cost() <= 36_000 and on.cost() > 35_990
    assert on.final.examples > again.final.examples
    fixed = for_budget(36_000, promotion="continue", examples=20_000)
    assert fixed.final.examples == 20_000


def test_stages_are_told_in_words() -> None:
    three = (Rung(100, 9), Rung(300, 3), Rung(5400, 1))
    assert Stages(three).text() == (
        "9 configurations of 100 examples, 3 of 300, one final of 5,400"
    )
    assert Stages(three, race=(3, 1)).text() == (
        "9 configurations of 100 examples, 3 of 300, the best 3 again over 1 further seed, "
        "one final of 5,400"
    )
    two = (Rung(1200, 6), Rung(5400, 2))
    assert Stages(two, race=(2, 2)).text() == (
        "6 configurations of 1,200 examples, the best 2 again over 2 further seeds, "
        "2 finals of 5,400"
    )
    assert in_full(6, 2400).text() == "6 configurations of 2,400 examples"


def test_further_seeds_run_side_by_side_where_points_are_few() -> None:
    assert in_full(1, 2400, (1, 5)).at_once == 5
    assert in_full(3, 2400, (3, 2)).at_once == 6
    assert in_full(8, 2400, (2, 2)).at_once == in_full(8, 2400).at_once == 8
    assert in_full(1, 2400, (3, 2)).at_once == 2  # of the best three there is one


# --- what was asked for -------------------------------------------------------------------------


def test_without_a_word_the_spaces_budget_is_divided() -> None:
    assert planned() == for_budget(9000)
    assert planned(budget_examples=60_000) == for_budget(60_000)


def test_a_space_without_a_budget_has_finals_as_long_as_its_trainings() -> None:
    for request, runs in (({}, 1), ({"finals": 2}, 2), ({"finals": 2, "distill": True}, 3)):
        stages = stages_of(SearchRequest(**request), examples=30_000, budget=None)
        assert stages.final.examples == 30_000 and stages.cost() <= (stages.budget or 0)
        assert runs * 30_000 == pytest.approx(FINAL_SHARE * (stages.budget or 0), rel=1e-4)
    assert stages.trials > stages.rungs[1].places > stages.final.places


def test_a_number_of_trials_or_their_length_takes_the_place_of_the_spaces_budget() -> None:
    assert planned(num_samples=9) == for_trials(9, 2400)
    assert planned(max_examples=900) == for_trials(FEW_TRIALS, 900)
    both = planned(num_samples=9, max_examples=900, budget_examples=9000)
    assert (both.trials, both.final.examples, both.budget) == (9, 900, 9000)


def test_without_early_stopping_all_are_trained_in_full() -> None:
    assert planned(early_stopping=False, num_samples=5) == in_full(5, 2400)
    assert planned(early_stopping=False, confirm=(2, 3)).race == (2, 3)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"budget_examples": 900, "max_examples": 900}, "and the budget is 900; raise"),
        ({"budget_examples": 900, "num_samples": 999}, "examples, and the budget is 900"),
        ({"budget_examples": 9000, "max_examples": 5000, "finals": 2}, "and the budget is 9,000"),
        ({"budget_examples": 9000, "confirm": (90, 90)}, "and the budget is 9,000"),
        ({"grace_examples": 5000}, "leaves 750 for the shortest training"),
        ({"finals": 4, "num_samples": 3}, "--finals 4 is above --num-samples 3"),
    ],
)
def test_what_does_not_go_together_is_refused(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        planned(**request_)
    assert message in str(refused.value)


@given(
    st.integers(1, 50_000),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 20_000),
    st.none() | st.integers(1, 3),
    st.sampled_from(PROMOTIONS),
    st.sampled_from([None, (0, 0), (2, 2)]),
)
def test_any_request_with_a_budget_is_within_it_or_refused(
    budget: int,
    trials: int | None,
    examples: int | None,
    finals: int | None,
    promotion: PromotionName,
    race: tuple[int, int] | None,
) -> None:
    try:
        stages = planned(
            budget_examples=budget,
            num_samples=trials,
            max_examples=examples,
            finals=finals,
            promotion=promotion,
            confirm=race,
        )
    except InputError:
        return
    assert stages.cost() <= budget and grows(stages)


@given(
    seconds=st.floats(60, 1e6),
    speed=st.floats(1, 3000),
    slots=st.integers(1, 64),
    finals=st.integers(1, 8),
    threads=st.integers(1, 4),
    distill=st.booleans(),
)
def test_a_search_by_the_clock_keeps_to_its_time(
    seconds: float, speed: float, slots: int, finals: int, threads: int, distill: bool
) -> None:
    stages = for_time(
        seconds, speed, speed, slots=slots, finals=finals, threads=threads, distill=distill
    )
    assert stages.rungs[0].examples == SHORTEST  # as trials had begun before the speed was known
    lengths = [rung.examples for rung in stages.rungs]
    assert lengths == sorted(lengths)
    assert stages.final.places == finals
    explored = stages.cost() - (finals + distill) * stages.final.examples
    alone = 1 / threads**THREADS_HELP  # of the time, with all threads
    in_turn = alone if finals == 1 else math.ceil(finals / slots)
    finals_take = stages.final.examples * (in_turn + distill * alone) / speed
    took = explored / (slots * speed) + finals_take
    smallest = (2 * EXPLORED + in_turn + 1) * SHORTEST / speed  # what cannot be cut any more
    assert took <= max(seconds, smallest)


def test_a_distillation_is_part_of_the_budget_and_costs_as_much_as_a_final() -> None:
    plain, more = planned(), planned(distill=True)
    assert more.final.examples == int(9000 * FINAL_SHARE / 2) == plain.final.examples // 2
    assert more.cost() <= 9000 and more.final.places == 1
    assert more.text().endswith("one final of 3,375, then one taught by them, of 3,375")
    long = {"budget_examples": 9000, "max_examples": 1800}
    assert planned(**long).final.places == 3 and planned(distill=True, **long).final.places == 2
    # Without a budget it comes on top.
    asked = {"num_samples": 4, "max_examples": 500}
    assert planned(distill=True, **asked).cost() == planned(**asked).cost() + 500
    full = planned(budget_examples=8000, num_samples=8, early_stopping=False, distill=True)
    assert full.cost() <= 8000 and full.trials == 8


@given(st.integers(1, 11), st.integers(0, 3), st.integers(0, 6))
def test_further_seeds_cost_no_more_than_the_configurations_that_are_not_there(
    missing: int, best: int, seeds: int
) -> None:
    stages = Stages((Rung(100, 12), Rung(300, 3), Rung(900, 1)), race=(best, seeds))
    fewer = stages.without(missing)
    assert fewer.cost() <= stages.cost() and fewer.trials == 12 - missing
