"""What a run is to a tracker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.tuner.export.trackers.runs import (
    SECRET,
    events_of,
    recorded,
    snapshot_of,
    until,
    write_events,
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return recorded(tmp_path)


def test_a_trial_has_parameters_curves_with_intervals_and_a_status(run: Path) -> None:
    now = snapshot_of(run)
    first, second = now.trials["t0000"], now.trials["t0001"]
    assert second.params["optim.learning_rate"] == 0.0002 and second.params["seed"] == 5
    assert [point.step for point in first.points] == [192, 336, 480]
    values = first.points[0].values
    assert values["dev/overall_low"] < values["dev/overall"] < values["dev/overall_high"]
    assert {"dev/sentiment", "dev_loss/sentiment", "train_loss/sentiment"} <= values.keys()
    # It got worse after its first evaluation, which stands for it.
    assert first.points[-1].values["best/overall"] == values["dev/overall"]
    assert first.points[-1].values["dev/overall"] < values["dev/overall"]
    assert first.outcome == "finished" and now.search.outcome == "finished"


def test_the_default_has_the_values_that_it_was_trained_with(run: Path) -> None:
    params = snapshot_of(run).trials["t0000"].params
    assert params.keys() >= {"optim.learning_rate", "seed"}


def test_keys_stay_when_a_run_is_moved_and_differ_between_runs(run: Path) -> None:
    moved = Path(shutil.copytree(run, run.parent / "elsewhere" / "other-name"))
    before, after = snapshot_of(run), snapshot_of(moved)
    assert before.search.key == after.search.key
    keys = [each.key for each in (before.search, *before.trials.values())]
    assert keys == [each.key for each in (after.search, *after.trials.values())]
    assert len(set(keys)) == 4
    events = events_of(run)
    write_events(run, [{**events[0], "time": events[0]["time"] + 1}, *events[1:]])
    assert snapshot_of(run).search.key != before.search.key


def test_what_was_exported_early_is_part_of_what_is_exported_late(run: Path) -> None:
    """Points are only ever added: a tool that cannot change one never has to."""
    whole = until(run, 24)
    last = snapshot_of(run)
    for count in range(3, len(whole), 4):
        until(run, count, whole)
        now = snapshot_of(run)
        for name, record in now.trials.items():
            assert last.trials[name].points[: len(record.points)] == record.points
        assert last.search.points[: len(now.search.points)] == now.search.points


def test_a_trial_that_is_open_when_the_search_ends_is_not_running(run: Path) -> None:
    events = events_of(run)[:5]
    write_events(run, events)
    assert snapshot_of(run).trials["t0000"].outcome == "running"
    end = {"event": "end", "time": events[-1]["time"] + 1, "reason": "interrupted"}
    write_events(run, [*events, end])
    now = snapshot_of(run)
    assert now.trials["t0000"].outcome == now.search.outcome == "interrupted"


def test_nothing_secret_is_in_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    events = events_of(run)
    events[8]["params"]["encoder.name"] = f"https://me:{SECRET}@host/model"
    failed = {"event": "failed", "time": events[11]["time"], "trial": "t0001", "kind": "code"}
    events[11:] = [{**failed, "reason": f"refused {SECRET}", "traceback": ""}]
    write_events(run, events)
    now = snapshot_of(run)
    assert now.trials["t0001"].tags["reason"] == "refused ***"
    assert SECRET not in repr(now.search) + repr(now.trials)
    assert b"a page with a ***" in now.files["report.html"]
    assert SECRET.encode() not in b"".join(now.files.values())
