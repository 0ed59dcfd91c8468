"""What a sampler is shown, and that it does not depend on when the driver began."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from benchmarks.repeats import new_state, tried
from tests.tuner.made_up_runs import (
    FakeSpace,
    begin,
    close,
    create,
    evaluate,
    live_through,
    suggest_next,
)
from tuner.engine import sampling as module
from tuner.engine.sampling import Suggester, VisibleHistory
from tuner.engine.study import (
    AUTO,
    FEW,
    SAMPLERS,
    STATEFUL,
    TASK_GP,
    choose_sampler,
    make_sampler,
    quiet,
    rebuild_study,
    seed_for,
)
from tuner.runs.ledger import Ledger, RunState, read_events
from tuner.runs.state import TrialState
from tuner.space.space import load_space, shipped_spaces

SPACE = FakeSpace()


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    begin(ledger)
    return ledger


def add(ledger: Ledger, score: float, how: str = "finished", **tasks: float) -> int:
    rng = random.Random(score)
    params = {"rate": 10 ** rng.uniform(-5, -2), "weight": rng.uniform(0, 10), "sizes": "4-4-4"}
    name = create(ledger, params=params)
    evaluate(ledger, name, 100, score, **tasks)
    if how:
        close(ledger, name, how)
    number = ledger.state.trials[name].number
    assert number is not None
    return number


def shown(state: RunState, bound: int) -> list[str]:
    with quiet():
        return [
            trial.user_attrs["trial"] for trial in VisibleHistory(state, SPACE).study(bound).trials
        ]


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_below_the_bound_a_sampler_suggests_what_it_would_in_the_whole_study(
    tmp_path: Path, name: str
) -> None:
    state = live_through(tmp_path / "ledger.jsonl", moves=90, seed=7, sampler=name)
    with quiet():
        study = rebuild_study(state, SPACE, for_sampler=True)
        study.sampler = make_sampler(name, seed_for(state.seed, state.next_number))
        asked = study.ask()
        settings = SPACE.suggest(asked)
    found = suggest_next(state, SPACE)
    assert found is not None and found.settings == settings


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "gp"])
@pytest.mark.parametrize("bound", [500, 6])
def test_a_driver_that_lived_suggests_what_a_new_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    if name in STATEFUL and bound < 500:
        pytest.skip("it has no bound")
    monkeypatch.setitem(module.SHOWN, name, bound)
    path = tmp_path / "ledger.jsonl"
    live_through(path, moves=150, seed=11, sampled=True, sampler=name)
    state = RunState()
    living = Suggester(state, SPACE)
    asked = 0
    for event in read_events(path):
        if event["event"] == "created":
            new = suggest_next(state, SPACE)
            old = living.next()
            assert old is not None and old == new
            assert old.params == event["params"]
            asked += 1
        state.apply(event)
    assert asked > 12


def test_beyond_the_bound_the_best_the_latest_and_the_open_are_shown(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEST", 2)
    scores = [0.3, 0.9, 0.5, 0.8, 0.1, 0.2, 0.4]
    for score in scores:
        add(ledger, score)
    add(ledger, 0.95, "stopped")  # an early value that nothing confirmed
    add(ledger, 0.99, "")
    add(ledger, 0.98, "failed")
    assert shown(ledger.state, 500) == [f"t{n:04d}" for n in range(9)]
    assert shown(ledger.state, 4) == ["t0001", "t0003", "t0006", "t0007", "t0008"]


def test_what_did_not_fit_into_memory_ranks_last_and_is_shown_while_it_is_late(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEST", 1)
    close(ledger, create(ledger), "failed", "memory")
    for score in (0.1, 0.2):
        add(ledger, score)
    assert shown(ledger.state, 3) == ["t0000", "t0001", "t0002"]
    assert shown(ledger.state, 2) == ["t0001", "t0002"]


def test_with_several_objectives_the_best_of_each_are_shown(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEST", 3)
    begin(ledger, resumed=True, objectives=["mood", "near"])
    add(ledger, 0.5, mood=0.9, near=0.1)
    add(ledger, 0.5, mood=0.2, near=0.8)
    add(ledger, 0.5, mood=0.7, near=0.7)
    for _ in range(5):
        add(ledger, 0.5, mood=0.1, near=0.1)
    best, latest = ["t0000", "t0001", "t0002"], ["t0005", "t0006", "t0007"]
    assert shown(ledger.state, 6) == best + latest


def test_the_ranks_are_those_of_tpe(tmp_path: Path) -> None:
    from optuna.samplers._tpe.sampler import _split_trials

    state = live_through(tmp_path / "ledger.jsonl", moves=400, seed=5)
    past = VisibleHistory(state, SPACE)
    with quiet():
        study = past.study(500)
    for count in (1, 5, 12, 25):
        closed = [trial for trial in study.trials if trial.state.is_finished()]
        below, _ = _split_trials(study, closed, count)
        (ranks,) = past.best.values()
        names = {state_of(state, int(rank[-1])).id for rank in ranks[:count]}
        assert {trial.user_attrs["trial"] for trial in below} == names


def state_of(state: RunState, number: int) -> TrialState:
    return next(trial for trial in state.search_trials if trial.number == number)


# --- no point twice -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(shipped_spaces()))
def test_no_shipped_space_is_searched_for_a_point_twice_by_tpe(name: str, seed: int) -> None:
    points = tried(load_space(name), "tpe", seed, 30)
    assert len(points) == len(set(points)) == 30


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(shipped_spaces()))
def test_no_shipped_space_is_searched_for_a_point_twice_by_task_gp(name: str) -> None:
    """benchmarks/repeats.py: 30 points of the papers' spaces too, and three seeds."""
    count = 12 if name.startswith("paper") else 30
    points = tried(load_space(name), TASK_GP, 0, count)
    assert len(points) == len(set(points)) == count


SMALL = """
tasks: sample
base: {encoder.name: tiny}
parameters:
  encoder.dropout: {choice: [0, 0.2]}
  batch.sizes: {choice: [4, 8, 16]}
"""


@pytest.mark.parametrize("sampler", [TASK_GP, *(name for name in SAMPLERS if name != "cmaes")])
def test_a_small_space_is_tried_whole_and_then_there_is_nothing(
    sampler: str, tmp_path: Path
) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    points = tried(load_space(str(path)), sampler, 0, 30)
    assert len(points) == len(set(points)) == 6


MANY = """
tasks: sample
base: {encoder.name: tiny}
parameters:
  loss.smoothing: {choice: [0, 0.1]}
  smart.weight: {choice: [0, 0.5, 1]}
  smart.steps: {int: [1, 3], when: {smart.weight: "> 0"}}
  smart.every: {int: [1, 40], when: {smart.steps: 3}}
  batch.sizes: {int: [1, 20]}
"""


def many(tmp_path: Path) -> tuple[Suggester, list[frozenset[tuple[str, object]]]]:
    (tmp_path / "many.yaml").write_text(MANY, encoding="utf-8")
    space = load_space(tmp_path / "many.yaml")
    points = [space.params(each) for each in space.every(np.random.default_rng(0))]
    suggester = Suggester(new_state("random"), space)
    return suggester, [frozenset(each.items()) for each in points]


def test_all_points_of_a_space_are_gone_through_each_once(tmp_path: Path) -> None:
    _, points = many(tmp_path)
    assert len(points) == len(set(points)) == 2 * (1 + 2 * (1 + 1 + 40)) * 20


def test_of_thousands_of_points_the_last_is_found_and_then_there_is_nothing(
    tmp_path: Path,
) -> None:
    suggester, points = many(tmp_path)
    suggester.next()
    suggester.tried |= set(points[:-1])
    found = suggester.next()
    assert found is not None and frozenset(found.params.items()) == points[-1]
    suggester.tried.add(points[-1])
    assert suggester.next() is None


def test_a_start_point_whose_every_completion_was_tried_does_not_end_a_search(
    tmp_path: Path,
) -> None:
    suggester, points = many(tmp_path)
    suggester.next()
    suggester.tried |= {each for each in points if ("loss.smoothing", 0.1) in each}
    found = suggester.next({"loss.smoothing": 0.1})
    assert found is not None and found.params["loss.smoothing"] == 0


def test_where_a_range_has_no_steps_there_is_always_another_point() -> None:
    space = load_space("default")
    points = [space.params(each) for each in islice(space.every(np.random.default_rng(0)), 50)]
    assert len({frozenset(each.items()) for each in points}) == 50


def test_what_auto_takes_depends_on_the_number_of_trials() -> None:
    assert choose_sampler(AUTO, FEW) == TASK_GP and choose_sampler(AUTO, FEW + 1) == "tpe"
    assert choose_sampler("random", 5) == "random"
