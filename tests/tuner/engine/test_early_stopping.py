from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.common.errors import InputError
from tests.tuner.made_up_runs import begin, create, evaluate, live_through
from tuner.engine.early_stopping import MARGIN, Decision, Report, Rungs, reports_of
from tuner.runs.ledger import Ledger

scores = st.floats(0, 1) | st.sampled_from([0.25, 0.5, math.nan, math.inf])
reports = st.lists(
    st.tuples(
        st.sampled_from([f"t{i:04d}" for i in range(12)]),
        st.integers(1, 3000),
        scores,
        st.sampled_from([0.0, 0.02, 0.2]),
    ),
    max_size=60,
)


def test_rungs_are_powers_below_the_maximum() -> None:
    assert Rungs(1000, 9000, 3).levels == [1000, 3000]
    assert Rungs(1000, 9001, 3).levels == [1000, 3000, 9000]
    assert Rungs(100, 1000, 2).levels == [100, 200, 400, 800]
    assert Rungs(100, 1000, 2.5).levels == [100, 250, 625]
    assert Rungs(1000, 1000, 3).levels == []


def test_no_rung_is_lost_to_rounding() -> None:
    assert Rungs(5, 5 * 3**12 + 1, 3).levels[-1] == 5 * 3**12
    assert Rungs(10, 10_001, 10).levels == [10, 100, 1000, 10_000]


def test_settings_that_make_no_sense_are_all_named() -> None:
    with pytest.raises(InputError) as caught:
        Rungs(0, 0, 1)
    assert len(caught.value.faults) == 3
    with pytest.raises(InputError, match="does not tell rungs apart"):
        Rungs(1, 1000, 1.01)


def test_the_best_of_each_three_go_on() -> None:
    rungs = Rungs(100, 1000, 3)
    scored = [0.5, 0.4, 0.3, 0.6, 0.1, 0.45, 0.55, 0.2]
    stops = [rungs.report(f"t{i}", 100, score).stop for i, score in enumerate(scored)]
    # By hand: five go free; 0.45 is third of 6 (2 go on), 0.55 second of 7 (3), 0.2 seventh of
    # 8 (3).
    assert stops == [*[False] * 5, True, False, True]


def test_what_may_be_as_good_as_the_mark_goes_on() -> None:
    def stops(score: float, noise: float) -> bool:
        rungs = Rungs(100, 1000, 2)
        for i, other in enumerate((0.7, 0.6, 0.5)):
            rungs.report(f"t{i}", 100, other, 0.01)
        return rungs.report("new", 100, score, noise).stop  # the mark is 0.6

    assert stops(0.58, 0.02)
    assert stops(0.58, 0.039)  # half of its noise counts
    assert not stops(0.58, 0.041)
    assert not stops(0.6, 0.0)
    assert stops(0.599, 0.0)


def test_a_report_between_rungs_counts_at_those_below_it() -> None:
    rungs = Rungs(1000, 20_000, 2)
    assert rungs.report("a", 1050, 0.5).rung == 1000
    decision = rungs.report("b", 4999, 0.4)
    assert decision.rung == 4000
    assert [len(rungs.passed[level]) for level in rungs.levels] == [2, 1, 1, 0, 0]
    rungs.report("d", 1000, 0.6)
    assert not rungs.report("c", 999, 0.1).stop
    assert rungs.report("c", 1500, 0.1).stop


def test_a_tie_goes_on() -> None:
    rungs = Rungs(10, 100, 2)
    assert not any(rungs.report(f"t{i}", 10, 0.5).stop for i in range(10))


def test_a_trial_at_its_end_is_not_stopped() -> None:
    rungs = Rungs(10, 100, 2)
    for i in range(4):
        rungs.report(f"t{i}", 10, 0.9)
    assert rungs.report("late", 100, 0.1) == Decision(stop=False)
    assert rungs.passed[10]["late"] == 0.1


def test_the_reason_says_where_and_by_how_much() -> None:
    rungs = Rungs(1000, 9000, 2)
    for name, score in (("a", 0.7), ("b", 0.65), ("c", 0.4)):
        rungs.report(name, 1000, score)
    assert rungs.report("d", 1050, 0.5, 0.02).reason == (
        "score 0.5000 give or take 0.0100 at 1,050 examples is number 3 of 4 at the rung of "
        "1,000; the best 2 go on (from 0.6500)"
    )


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_leaves_no_mark(score: float) -> None:
    rungs = Rungs(10, 100, 2)
    assert rungs.report("a", 50, score) == Decision(stop=False)
    assert not any(rungs.passed.values())


@given(reports)
def test_the_best_so_far_is_never_stopped(reports: list[Report]) -> None:
    rungs = Rungs(100, 2500, 3)
    for trial, examples, score, noise in reports:
        decision = rungs.report(trial, examples, score, noise)
        if decision.stop:
            assert decision.rung is not None
            others = rungs.passed[decision.rung].values()
            assert score < max(others) and len(others) >= 6
            above = sum(other > score + MARGIN * noise for other in others)
            assert above >= math.ceil(len(others) / 3)


@given(reports)
def test_a_trial_counts_once_at_a_rung_and_by_its_first_report(reports: list[Report]) -> None:
    rungs = Rungs(100, 2500, 3)
    first: dict[tuple[int, str], float] = {}
    for trial, examples, score, noise in reports:
        rungs.report(trial, examples, score, noise)
        if math.isfinite(score):
            for level in (100, 300, 900):
                if examples >= level:
                    first.setdefault((level, trial), score)
    found = {(level, t): s for level, passed in rungs.passed.items() for t, s in passed.items()}
    assert {key: value for key, value in found.items() if key[0] < 2500} == first
    assert rungs.levels == [100, 300, 900]


@given(reports, st.integers(0, 60))
def test_a_replay_decides_the_same(reports: list[Report], cut: int) -> None:
    whole = Rungs(100, 2500, 2)
    decisions = [whole.report(*report) for report in reports]
    rebuilt = Rungs(100, 2500, 2)
    rebuilt.replay(reports[:cut])
    assert [rebuilt.report(*report) for report in reports[cut:]] == decisions[cut:]
    assert rebuilt.passed == whole.passed
    assert rebuilt.replay(reports) == {}  # all of it again: nothing new


def test_rungs_are_rebuilt_from_the_ledger(tmp_path: Path) -> None:
    state = live_through(tmp_path / "ledger.jsonl", moves=120, seed=2)
    live, rebuilt = Rungs(100, 1000, 2), Rungs(100, 1000, 2)
    heard = reports_of(state)
    stops = {r[0]: d for r in heard if (d := live.report(*r)).stop}
    assert rebuilt.replay(heard) == stops
    assert rebuilt.passed == live.passed
    assert len(live.passed[100]) > 5


def test_repeats_are_not_judged_and_objectives_are_averaged(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        begin(ledger, objectives=["mood", "near"])
        evaluate(ledger, create(ledger), 100, 0.9, mood=0.2, near=0.6)
        repeat = create(ledger, number=None, origin="confirm", of="t0000")
        evaluate(ledger, repeat, 100, 0.9, mood=1.0, near=1.0)
    assert reports_of(ledger.state) == [("t0000", 100, 0.4, 0.0)]


def test_the_noise_is_half_of_the_objectives_interval() -> None:
    from tuner.runs.state import noise_of

    event = {"interval": [0.4, 0.5], "tasks": {"mood": {"interval": [0.1, 0.5]}, "near": {}}}
    assert noise_of(event, ["overall"]) == pytest.approx(0.05)
    assert noise_of(event, ["mood"]) == pytest.approx(0.2)
    assert noise_of(event, ["mood", "near"]) == pytest.approx(0.1)
    assert noise_of({}, ["overall"]) == 0
