"""Disks that fill up: a file system of a few megabytes, really full."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from model.config.parse import parse_settings
from model.tasks.task_set import load_task_set
from model.train import train
from model.training.checkpoint import checkpoints_in, load_latest
from tests.faults.faulty_trials import DiskTrial, fill, free
from tests.model.test_resume import QUICK, same_result
from tests.tuner.made_up_runs import begin, create
from tests.tuner.search_runs import settings
from tuner import run_search
from tuner.runs.ledger import Ledger, read_events


def run(out: Path, **options: Any) -> Any:
    tasks = load_task_set("sample")
    return train(parse_settings(QUICK, tasks), tasks, out=out, **options)


def no_warning(line: str) -> None:
    raise AssertionError(line)


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "in the middle of a file"])
def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(
    small_disk: Path, tmp_path: Path, checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not checked:  # as when somebody else takes the room between the look and the write
        monkeypatch.setattr("model.training.saving.check_room", lambda folder, need: None)
    out = small_disk / "run"
    records = run(out)
    next(records)
    fill(small_disk)
    with pytest.raises(Exception, match="No space left|MB are free") as raised:
        list(records)
    if checked:
        assert isinstance(raised.value, OSError) and raised.value.errno == errno.ENOSPC
        assert str(out / "checkpoints") in str(raised.value)
        assert "a checkpoint takes" in str(raised.value)
    place = out / "checkpoints"
    before = load_latest(place, no_warning)
    assert before is not None and before.folder == checkpoints_in(place)[-1]
    assert not [p for p in place.iterdir() if p.name.startswith(".")]
    free(small_disk)
    list(run(out, resume=True, warn=no_warning))
    list(run(tmp_path / "whole"))
    same_result(tmp_path / "whole", out)


def test_a_ledger_on_a_full_disk_is_as_it_was(small_disk: Path) -> None:
    path = small_disk / "ledger.jsonl"
    with Ledger(path, no_warning) as ledger:
        begin(ledger)
        fill(small_disk, leave=0)
        written = 0
        with pytest.raises(OSError, match="No space left on device: .*ledger.jsonl"):
            for _ in range(200):  # what is left of its last block
                create(ledger)
                written += 1
        assert len(read_events(path, no_warning)) == 1 + written
        free(small_disk)
        create(ledger)
    assert len(read_events(path, no_warning)) == 2 + written


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_trial_without_room_fails_by_name_and_the_others_go_on(
    ray: None, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.ray_backend.trainable.SearchTrial", DiskTrial)
    result = run_search(
        **settings(storage_path=small_disk / "runs", num_samples=3, keep=1),
    )
    trials = result.state.trials
    assert result.complete
    assert trials["t0001"].kind == "disk"
    assert "a checkpoint takes" in trials["t0001"].reason
    assert str(result.folder / "trials" / "t0001") in trials["t0001"].reason
    assert trials["t0002"].status in ("finished", "stopped")
