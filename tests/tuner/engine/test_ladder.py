"""Who goes on, driven by results alone: no trial is trained here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.engine.ladder import MARGIN, Ladder
from tuner.engine.stages import Rung, Stages

DEFAULT = "t0000"
THREE = Stages((Rung(100, 9), Rung(300, 3), Rung(900, 1)))
NAMES = [f"t{number:04d}" for number in range(9)]
SHAPES = [
    THREE,
    Stages((Rung(100, 9), Rung(300, 3), Rung(500, 3), Rung(900, 1))),
    Stages((Rung(100, 9), Rung(300, 2), Rung(500, 2), Rung(900, 1))),
]
NEVER = 1000.0  # of so many the best one goes on before the rung is complete


def ladder_of(
    scores: Sequence[float | None],
    *,
    order: Sequence[int] | None = None,
    default: str | None = DEFAULT,
    start: str | None = None,
    reduction: float = NEVER,
    noise: float = 0.0,
    stages: Stages = THREE,
) -> Ladder:
    """With these results at the shortest rung; None for a trial that failed there."""
    ladder = Ladder(stages, reduction, default)
    ladder.start = start
    for name in NAMES:
        ladder.enter(name, 0)
    for place in order or range(len(scores)):
        tell(ladder, NAMES[place], 0, scores[place], noise)
    return ladder


def tell(ladder: Ladder, name: str, level: int, score: float | None, noise: float = 0.0) -> None:
    ladder.fail(name, level) if score is None else ladder.result(name, level, score, noise)


def promote_all(ladder: Ladder) -> list[tuple[str, int]]:
    found = []
    while (promotion := ladder.promotion()) is not None:
        ladder.enter(*promotion)
        found.append(promotion)
    return found


def promoted(ladder: Ladder) -> set[str]:
    return {name for name, _ in promote_all(ladder)}


LOW_DEFAULT = [0.1, 0.5, 0.9, 0.3, 0.8, 0.4, 0.7, 0.6, 0.2]


def test_the_best_go_on_with_the_default_among_them() -> None:
    assert promoted(ladder_of(LOW_DEFAULT)) == {DEFAULT, "t0002", "t0004"}
    assert promoted(ladder_of(LOW_DEFAULT, default=None)) == {"t0002", "t0004", "t0006"}


def test_the_first_start_point_goes_along_where_that_leaves_a_place_for_another() -> None:
    ladder = ladder_of(LOW_DEFAULT, start="t0003")
    assert "t0003" not in ladder.hopeless(0)
    assert promoted(ladder) == {DEFAULT, "t0003", "t0002"}
    assert promoted(ladder_of(LOW_DEFAULT, start="t0003", default=None)) == {
        *("t0003", "t0002", "t0004")
    }
    two = Stages((Rung(100, 9), Rung(300, 2), Rung(900, 1)))
    assert promoted(ladder_of(LOW_DEFAULT, start="t0003", stages=two)) == {DEFAULT, "t0002"}


def test_its_place_is_kept_for_a_start_point_that_comes_last() -> None:
    ladder = Ladder(SHAPES[1], 3.0, DEFAULT)
    ladder.start = "t0001"
    for name in NAMES:
        ladder.enter(name, 0)
    going = []
    for score, name in enumerate([n for n in NAMES if n != "t0001"] + ["t0001"]):
        tell(ladder, name, 0, 0.1 * score)  # each better than all before it
        going += promote_all(ladder)
    assert {DEFAULT, "t0001"} < {name for name, _ in going} and len(going) == 3
    for name, level in going:  # grows
        tell(ladder, name, level, 0.5)
        going += promote_all(ladder)
    assert ladder.is_complete(2) and len(ladder.levels[2].entered) == 3


def test_no_place_is_kept_for_a_start_point_that_was_stopped_below() -> None:
    ladder = ladder_of(LOW_DEFAULT, start="t0003", stages=SHAPES[1])
    ladder.leave("t0003", 0)
    going = promote_all(ladder)
    assert {name for name, _ in going} == {DEFAULT, "t0002", "t0004"}
    for name, level in going:  # grows
        tell(ladder, name, level, 0.5)
        going += promote_all(ladder)
    assert ladder.is_complete(2) and len(ladder.levels[2].entered) == 3


def test_a_start_point_that_failed_keeps_no_place() -> None:
    scores = [None if name == "t0003" else 0.1 * n for n, name in enumerate(NAMES)]
    assert promoted(ladder_of(scores, start="t0003")) == {DEFAULT, "t0008", "t0007"}


@given(
    st.lists(st.none() | st.sampled_from([0.2, 0.4, 0.4, 0.6, 0.8]), min_size=9, max_size=9),
    st.permutations(range(9)),
)
def test_the_order_of_results_does_not_matter_where_nobody_goes_on_before_all_are_there(
    scores: list[float | None], order: list[int]
) -> None:
    straight, mixed = ladder_of(scores), ladder_of(scores, order=order)
    assert promoted(straight) == promoted(mixed)
    for name in sorted(straight.levels[1].entered):
        tell(straight, name, 1, 0.5)
    for name in sorted(mixed.levels[1].entered, reverse=True):
        tell(mixed, name, 1, 0.5)
    assert straight.finalists({}) == mixed.finalists({})


@given(
    st.lists(st.none() | st.floats(0, 1), min_size=9, max_size=9),
    st.permutations(range(9)),
    st.sampled_from([2.0, 3.0, NEVER]),
    st.sampled_from([None, NAMES[1], NAMES[5]]),
    st.sampled_from(SHAPES),
    st.data(),
)
def test_a_search_gets_to_its_finals_whatever_happens_on_the_way(
    scores: list[float | None],
    order: list[int],
    reduction: float,
    start: str | None,
    stages: Stages,
    data: st.DataObject,
) -> None:
    ladder = Ladder(stages, reduction, DEFAULT)
    ladder.start = start
    going: list[tuple[str, int]] = []
    for name in NAMES:
        ladder.enter(name, 0)
    for place in order:
        tell(ladder, NAMES[place], 0, scores[place])
        going += promote_all(ladder)
    running = list(going)
    while running:  # whoever is done first
        name, level = running.pop(data.draw(st.integers(0, len(running) - 1)))
        tell(ladder, name, level, data.draw(st.none() | st.floats(0, 1)))
        running += (more := promote_all(ladder))
        going += more
    assert all(map(ladder.is_complete, range(stages.top)))
    there = [name for name, score in zip(NAMES, scores, strict=True) if score is not None]
    for level, rung in list(enumerate(stages.rungs))[1:-1]:
        at = ladder.levels[level]
        assert len(at.entered - at.failed) <= rung.places
    assert bool(ladder.finalists({})) == bool(there)
    along = [DEFAULT, start][: max(1, stages.rungs[1].places - 1)]
    for name in set(along) & set(there):
        assert (name, 1) in going
    assert len(set(going)) == len(going)


def test_nobody_is_sure_to_go_on_before_enough_results_are_there() -> None:
    ladder = Ladder(THREE, NEVER, DEFAULT)
    for name in NAMES:
        ladder.enter(name, 0)
    for name, score in list(zip(NAMES, LOW_DEFAULT, strict=True))[:6]:
        tell(ladder, name, 0, score)
        assert ladder.promotion() is None  # three are to come, and there are three places
    tell(ladder, "t0006", 0, LOW_DEFAULT[6])
    assert ladder.promotion() == (DEFAULT, 1)  # which goes along in any case
    ladder.enter(DEFAULT, 1)
    assert ladder.promotion() is None
    tell(ladder, "t0007", 0, LOW_DEFAULT[7])
    assert ladder.promotion() == ("t0002", 1)  # one more may come, and it would still be third


def test_one_of_three_may_go_on_while_others_are_still_running() -> None:
    ladder = Ladder(THREE, 3.0, None)
    for name in NAMES:
        ladder.enter(name, 0)
    for name, score in zip(NAMES[:3], (0.5, 0.7, 0.6), strict=True):
        assert ladder.promotion() is None
        tell(ladder, name, 0, score)
    assert promote_all(ladder) == [("t0001", 1)]


def test_what_is_told_again_changes_nothing() -> None:
    ladder = ladder_of(LOW_DEFAULT)
    ladder.result("t0008", 0, 0.99)
    ladder.enter("t0008", 0)
    assert promoted(ladder) == {DEFAULT, "t0002", "t0004"}
    assert promote_all(ladder) == []


# --- what fails ---------------------------------------------------------------------------------


def test_what_fails_at_a_rung_is_not_waited_for() -> None:
    scores: list[float | None] = [0.1, 0.5, None, 0.3, None, 0.4, 0.7, 0.6, 0.2]
    assert promoted(ladder_of(scores)) == {DEFAULT, "t0006", "t0007"}


def test_what_fails_after_its_promotion_gives_its_place_to_the_next() -> None:
    ladder = ladder_of(LOW_DEFAULT)
    promote_all(ladder)
    ladder.fail("t0002", 1)
    assert promote_all(ladder) == [("t0006", 1)]
    assert not ladder.is_complete(1)
    for name in (DEFAULT, "t0004", "t0006"):
        ladder.result(name, 1, 0.5)
    assert ladder.is_complete(1) and promote_all(ladder) == []


@pytest.mark.parametrize("level", [0, 1])
def test_a_default_that_failed_keeps_no_place(level: int) -> None:
    scores: list[float | None] = [None, *LOW_DEFAULT[1:]] if level == 0 else [*LOW_DEFAULT]
    ladder = ladder_of(scores)
    promote_all(ladder)
    ladder.fail(DEFAULT, level)
    promote_all(ladder)
    alive = ladder.levels[1].entered - {DEFAULT}
    assert alive == {"t0002", "t0004", "t0006"}
    for name in alive:
        ladder.result(name, 1, 0.5)
    assert ladder.is_complete(1)
    assert ladder.finalists({})[0] == "t0002"


def test_a_final_that_failed_frees_its_place() -> None:
    ladder = ladder_of(LOW_DEFAULT)
    for name, _ in promote_all(ladder):
        ladder.result(name, 1, 0.5)
    ladder.enter("t0002", 2)
    assert ladder.is_full(2)
    ladder.fail("t0002", 2)
    assert not ladder.is_full(2)


def test_where_all_have_failed_there_is_no_final() -> None:
    ladder = ladder_of([None] * 9)
    assert ladder.promotion() is None
    assert ladder.is_complete(0) and ladder.is_complete(1)
    assert ladder.finalists({}) == []


def test_where_all_promoted_ones_failed_a_final_is_given_by_the_rung_below() -> None:
    ladder = ladder_of([None, None, 0.9, None, 0.8, None, None, None, None])
    for name, level in promote_all(ladder):
        ladder.fail(name, level)
    assert ladder.is_complete(1)
    assert ladder.finalists({}) == ["t0002", "t0004"]


# --- the hopeless -------------------------------------------------------------------------------


def test_those_with_enough_others_ahead_have_no_hope() -> None:
    ladder = Ladder(THREE, NEVER, DEFAULT)
    for name in NAMES:
        ladder.enter(name, 0)
    for name, score in zip(NAMES[:3], (0.1, 0.9, 0.8), strict=True):
        tell(ladder, name, 0, score)
    assert ladder.hopeless(0) == []
    for name, score in zip(NAMES[3:6], (0.7, 0.3, 0.6), strict=True):
        tell(ladder, name, 0, score)
    assert ladder.hopeless(0) == ["t0005", "t0004"]  # and not the default, which is last
    ladder.leave("t0005", 0)
    assert ladder.hopeless(0) == ["t0004"]


def test_before_the_finals_everybody_has_hope() -> None:
    ladder = ladder_of(LOW_DEFAULT)
    for name, _ in promote_all(ladder):
        ladder.result(name, 1, 0.5)
    assert ladder.hopeless(1) == [] == ladder.hopeless(2)


# --- the finals ---------------------------------------------------------------------------------


def contest(default: float, best: float, noise: float) -> Ladder:
    """The last rung before the finals, with the default and two others."""
    ladder = ladder_of(LOW_DEFAULT)
    promote_all(ladder)
    for name, score in ((DEFAULT, default), ("t0002", best), ("t0004", 0.1)):
        ladder.result(name, 1, score, noise)
    return ladder


def test_a_final_goes_to_the_default_unless_it_is_beaten_by_more_than_chance() -> None:
    near, far = 0.5 + 0.04 * MARGIN - 0.001, 0.5 + 0.04 * MARGIN + 0.001
    assert contest(0.5, near, 0.04).finalists({}) == [DEFAULT, "t0002", "t0004"]
    assert contest(0.5, far, 0.04).finalists({}) == ["t0002", DEFAULT, "t0004"]
    assert contest(0.5, 0.4, 0.04).finalists({}) == [DEFAULT, "t0002", "t0004"]
    assert contest(0.5, 0.501, 0.0).finalists({})[0] == "t0002"


def test_a_lucky_score_that_was_not_tried_again_does_not_go_before_the_race() -> None:
    ladder = ladder_of(LOW_DEFAULT)
    promote_all(ladder)
    for name, score in (("t0002", 0.8), ("t0004", 0.78), (DEFAULT, 0.5)):
        ladder.result(name, 1, score, 0.0)
    assert ladder.finalists({"t0002": [0.74]}) == ["t0002", "t0004", DEFAULT]
    assert ladder.finalists({"t0002": [0.74], "t0004": [0.78]})[0] == "t0004"
    with_default = {"t0002": [0.74], DEFAULT: [0.5]}  # which is in the race whatever its score
    assert ladder.finalists(with_default) == ["t0002", "t0004", DEFAULT]
    with_default[DEFAULT] = [1.06]  # so that its mean is .78
    assert ladder.finalists(with_default)[0] == DEFAULT


def test_with_several_objectives_who_leads_one_is_not_passed_over_for_its_mean() -> None:
    ladder = Ladder(Stages((Rung(100, 6), Rung(300, 3), Rung(900, 2))), 3.0)
    scored = {
        "a": (0.9, 0.1),
        "b": (0.6, 0.6),
        "c": (0.55, 0.59),
        "d": (0.5, 0.55),
        "e": (0.1, 0.8),
    }
    for name in (*scored, "f"):
        ladder.enter(name, 0)
    for name, values in scored.items():
        ladder.result(name, 0, sum(values) / 2, 0.0, values)
    ladder.result("f", 0, 0.3, 0.0, (0.3, 0.3))
    assert [each.configuration for each in ladder.levels[0].results] == list("aebcdf")
    promoted = []
    while (step := ladder.promotion()) is not None:
        ladder.enter(*step)
        promoted.append(step[0])
    assert promoted == ["a", "e", "b"]  # c and d have better means than a and e
    for name in promoted:
        ladder.result(name, 1, sum(scored[name]) / 2, 0.0, scored[name])
    assert ladder.finalists({}) == ["a", "e", "b"]


def test_of_a_front_larger_than_the_places_the_best_in_each_objective_go_on() -> None:
    """The default and the start point, which are better in the mean, take no place of theirs."""
    front = {n: (0.1 * k, 0.9 - 0.1 * k) for k, n in enumerate(NAMES)}  # all means are alike
    front[NAMES[4]], front[NAMES[5]] = (0.5, 0.6), (0.6, 0.5)
    ladder = Ladder(Stages((Rung(100, 9), Rung(300, 3), Rung(900, 2))), NEVER, NAMES[4], 2)
    ladder.start = NAMES[5]
    for name in NAMES:
        ladder.enter(name, 0)
    for name, values in front.items():
        ladder.result(name, 0, sum(values) / 2, 0.1, values)
    assert promoted(ladder) == {NAMES[0], NAMES[8], NAMES[4]}
    for name in ladder.levels[1].entered:
        ladder.result(name, 1, sum(front[name]) / 2, 0.1, front[name])
    assert ladder.finalists({}, [NAMES[5]]) == [NAMES[0], NAMES[8], NAMES[4]]
    assert ladder.put_first(NAMES[3], [NAMES[0], NAMES[4]]) == [NAMES[0], NAMES[3], NAMES[4]]


def test_who_is_best_in_an_objective_gives_way_to_a_better_one() -> None:
    ladder = Ladder(THREE, NEVER, objectives=2)
    for name, values in zip("abc", ((0.9, 0.2), (0.5, 0.5), (0.95, 0.1)), strict=True):
        ladder.enter(name, 0)
        ladder.result(name, 0, sum(values) / 2, 0.0, values)
    found = {each.configuration: (each.beaten, each.follows) for each in ladder.levels[0].results}
    assert found == {"a": (0, True), "b": (0, False), "c": (0, False)}


# --- ahead of time ------------------------------------------------------------------------------


def test_those_that_go_along_and_one_more_go_on_before_all_were_proposed() -> None:
    ladder = Ladder(Stages((Rung(100, 9), Rung(300, 4), Rung(900, 1))), 3.0, DEFAULT)
    for name in NAMES[:5]:
        ladder.enter(name, 0)
    assert ladder.ahead_of_time() is None
    tell(ladder, DEFAULT, 0, 0.1)
    assert ladder.ahead_of_time() == (DEFAULT, 1)
    ladder.enter(DEFAULT, 1)
    tell(ladder, "t0001", 0, 0.4)
    assert ladder.ahead_of_time() is None  # two of nine say too little
    tell(ladder, "t0002", 0, 0.5)
    assert ladder.ahead_of_time() == ("t0002", 1)
    ladder.enter("t0002", 1)
    tell(ladder, "t0003", 0, 0.9)
    assert ladder.ahead_of_time() is None  # the others go on when more is known


def test_where_one_place_is_left_for_the_best_nobody_has_it_ahead_of_time() -> None:
    ladder = ladder_of(LOW_DEFAULT, start="t0003")
    ahead = []
    while (step := ladder.ahead_of_time()) is not None:
        ladder.enter(*step)
        ahead.append(step[0])
    assert ahead == [DEFAULT, "t0003"]


def test_a_start_point_stays_unless_it_is_clearly_behind() -> None:
    ladder = contest(0.1, 0.62, 0.04)
    ladder.result("t0004", 1, 0.1)  # what came first counts
    ladder.levels[1].running.add("t0001")
    ladder.result("t0001", 1, 0.59, 0.04)
    assert ladder.finalists({})[0] == "t0002"
    assert ladder.finalists({}, ["t0001", "t0002"]) == ["t0001", "t0002", DEFAULT, "t0004"]
    assert ladder.finalists({}, ["t0004", "t0002"])[0] == "t0002"
    assert ladder.finalists({"t0002": [0.62] * 3}, ["t0001"])[0] == "t0002"  # surer by now


def test_without_a_default_the_best_has_the_final() -> None:
    ladder = contest(0.5, 0.501, 0.04)
    ladder.default = None
    assert ladder.finalists({})[0] == "t0002"


def test_further_seeds_count_with_the_first_and_make_for_less_noise() -> None:
    ladder = contest(0.5, 0.6, 0.04)
    assert ladder.finalists({"t0002": [0.3, 0.3]})[0] == DEFAULT  # a mean of .4
    assert ladder.finalists({"t0004": [0.95, 0.95]})[0] == "t0004"  # of .67
    ladder = contest(0.5, 0.515, 0.04)
    assert ladder.finalists({})[0] == DEFAULT
    assert ladder.finalists({"t0002": [0.515] * 3})[0] == "t0002"


def test_a_search_without_rungs_has_no_finals() -> None:
    ladder = Ladder(Stages((Rung(900, 2),)), 3.0)
    ladder.enter("t0000", 0)
    ladder.result("t0000", 0, 0.5)
    assert ladder.finalists({}) == [] and ladder.promotion() is None


def test_nobody_is_given_up_for_a_front_that_may_still_change() -> None:
    ladder = Ladder(THREE, NEVER)
    for name in NAMES:
        ladder.enter(name, 0)
    values = [(0.9, 0.1), (0.1, 0.9), (0.5, 0.5), (0.4, 0.4)]
    for name, own in zip(NAMES, values, strict=False):
        ladder.result(name, 0, sum(own) / 2, 0.0, own)
    assert ladder.hopeless(0) == []
    for name in NAMES[4:]:  # all worse than all of them
        ladder.result(name, 0, 0.0, 0.0, (0.0, 0.0))
    assert set(ladder.hopeless(0)) == {*NAMES[3:]}
