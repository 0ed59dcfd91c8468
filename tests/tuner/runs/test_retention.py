from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.tuner.made_up_runs import begin, close, create, evaluate, live_through
from tuner.runs.ledger import Ledger, read_events
from tuner.runs.retention import CheckpointStore, delete, drop_states, surplus, wanted
from tuner.runs.state import CLOSING, RunState, TrialState


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        begin(ledger)
        yield ledger


def trial(ledger: Ledger, *scores: float, end: str = "finished", **tasks: float) -> str:
    name = create(ledger)
    for number, score in enumerate(scores, 1):
        evaluate(ledger, name, 100 * number, score, **tasks)
    if end:
        close(ledger, name, end)
    return name


def test_the_best_and_the_best_of_each_task_are_wanted(ledger: Ledger) -> None:
    best = trial(ledger, 0.5, 0.9, 0.7, mood=0.1, near=0.1)
    trial(ledger, 0.2, mood=0.2, near=0.2)
    at_mood = trial(ledger, 0.3, mood=0.9, near=0.2)
    second = trial(ledger, 0.8, mood=0.1, near=0.1)
    at_near = trial(ledger, 0.1, mood=0.1, near=0.5)
    assert wanted(ledger.state, 2) == {
        best: {"c000200"},
        second: {"c000100"},
        at_mood: {"c000100"},
        at_near: {"c000100"},
    }


def test_failed_and_open_trials_and_repeats_are_never_chosen(ledger: Ledger) -> None:
    trial(ledger, 0.9, end="failed")
    trial(ledger, 0.8, end="")
    good = trial(ledger, 0.1, end="stopped")
    repeat = create(ledger, number=None, origin="confirm", of=good)
    evaluate(ledger, repeat, 100, 0.95)
    close(ledger, repeat, "finished")
    assert set(wanted(ledger.state, 5)) == {good}


def test_of_a_distilled_run_the_last_checkpoint_is_kept_and_stands_for_it(ledger: Ledger) -> None:
    """Its best would be a choice by dev that no cross-fitting knows of."""
    good = trial(ledger, 0.5)
    taught = create(ledger, number=None, origin="distilled", of=good)
    for examples, score in ((100, 0.9), (200, 0.6)):
        evaluate(ledger, taught, examples, score)
    close(ledger, taught, "finished")
    assert wanted(ledger.state, 5)[taught] == {"c000200"}
    stands = ledger.state.trials[taught].chosen(["overall"])
    assert stands is not None and stands["checkpoint"] == "c000200"


def test_the_trial_ranked_first_keeps_the_checkpoint_it_stands_by(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        begin(ledger, objectives=["mood"])
        first, lucky, overall = create(ledger), create(ledger), create(ledger)
        for examples, score, mood in ((100, 0.5, 0.3), (200, 0.55, 0.6), (300, 0.6, 0.5)):
            evaluate(ledger, first, examples, score, mood=mood)
        close(ledger, first, "finished")
        evaluate(ledger, lucky, 100, 0.4, mood=0.62)  # early, and never confirmed
        close(ledger, lucky, "stopped")
        evaluate(ledger, overall, 300, 0.7, mood=0.4)
        close(ledger, overall, "finished")
        best = ledger.state.ranked()[0]
        entry = best.chosen(ledger.state.objectives)
        assert best.id == first and entry is not None and entry["checkpoint"] == "c000200"
        assert wanted(ledger.state, 1) == {first: {"c000200"}}


def test_of_equals_the_one_that_ranks_first_is_kept(ledger: Ledger) -> None:
    first = trial(ledger, 0.5)
    trial(ledger, 0.5)
    assert ledger.state.ranked()[0].id == first
    assert wanted(ledger.state, 1) == {first: {"c000100"}}


def test_the_default_is_kept_however_bad(ledger: Ledger) -> None:
    default = create(ledger, number=None, origin="default", params={}, settings={})
    evaluate(ledger, default, 100, 0.01)
    close(ledger, default, "finished")
    trial(ledger, 0.9)
    assert default in wanted(ledger.state, 1)


def test_of_a_final_the_last_checkpoints_are_kept_too(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl") as ledger:
        begin(ledger, rungs=[[100, 3], [500, 1]])
        short = trial(ledger, 0.9)
        final = create(ledger, level=1, length=500)
        for number, score in enumerate((0.8, 0.3, 0.5, 0.6, 0.4), 1):
            evaluate(ledger, final, 100 * number, score)
        close(ledger, final, "finished")
        found = wanted(ledger.state, 2)
        assert found == {final: {"c000100", "c000300", "c000400", "c000500"}, short: {"c000100"}}
        ledger.append("removed", trial=final, checkpoints=["c000400"])  # by an earlier version
        assert "c000400" not in wanted(ledger.state, 2)[final]


def checkpoint(run: Path, name: str, step: int) -> Path:
    place = run / "trials" / name / "checkpoints" / f"step-{step:08d}"
    (place / "model").mkdir(parents=True)
    (place / "state").mkdir()
    return place


def test_surplus_is_what_closed_trials_have_on_disk_and_nobody_wants(
    ledger: Ledger, tmp_path: Path
) -> None:
    failed = trial(ledger, 0.9, end="failed")
    still = trial(ledger, 0.8, end="")
    checkpoint(tmp_path, failed, 1)
    checkpoint(tmp_path, still, 1)
    trials = ledger.state.trials.values()
    chosen = wanted(ledger.state, 5)
    assert surplus(trials, chosen, CheckpointStore(tmp_path)) == {failed: ["step-00000001"]}


def test_deleting_takes_the_model_with_the_last_checkpoint(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint(tmp_path, "t0000", step)
    place = tmp_path / "trials" / "t0000"
    (place / "model").mkdir()
    drop_states(place)
    assert not list(place.rglob("state"))
    delete(place, ["step-00000001"])
    assert (place / "model").exists()
    delete(place, ["step-00000002", "step-00000009"])
    assert not (place / "model").exists()


def test_deleting_takes_the_model_with_the_checkpoint_it_was_linked_to(tmp_path: Path) -> None:
    trial = tmp_path / "trials" / "t0000"
    places = [checkpoint(tmp_path, "t0000", step) / "model" for step in (1, 2, 3)]
    for place in places:
        (place / "model.safetensors").write_text(str(place))
    (trial / "model").mkdir()
    os.link(places[1] / "model.safetensors", trial / "model" / "model.safetensors")
    delete(trial, ["step-00000001"])
    assert (trial / "model").exists()
    delete(trial, ["step-00000002"])
    assert not (trial / "model").exists() and places[2].exists()


@pytest.mark.parametrize("keep", [1, 3])
def test_it_is_enough_to_look_at_what_was_wanted_before_and_what_closed_since(
    tmp_path: Path, keep: int
) -> None:
    live_through(tmp_path / "lived.jsonl", moves=400, seed=keep)
    state = RunState()
    kept: list[TrialState] = []
    closed = 0
    for event in read_events(tmp_path / "lived.jsonl"):
        state.apply(event)
        if event["event"] in CLOSING:
            trials = [*kept, state.trials[event["trial"]]]
            chosen = wanted(state, keep, trials)
            assert chosen == wanted(state, keep)
            kept = [trial for trial in trials if trial.id in chosen]
            closed += 1
    assert closed > 40
