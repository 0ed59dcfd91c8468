"""Checkpoints written while training goes on; on a CPU only because the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from model.common.files import sha256_of
from model.config.parse import parse_settings
from model.data.batches import TaskStream
from model.data.prefetch import Prefetch
from model.tasks.task_set import TaskSet
from model.train import train
from model.training.checkpoint import save_checkpoint
from model.training.saving import saves_in_background

from ..test_resume import after, same_result

SETTINGS: dict[str, Any] = {
    "encoder.name": "tiny",
    "encoder.max_length": 32,
    "batch.sizes": 4,
    "budget.examples": 72,
    "budget.eval_every": 24,
    "budget.eval_rows": 8,
    "smart.bregman": 1,
    "average.share": 0.5,
    "loss.weighting": "uncertainty",
}


@pytest.fixture
def background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.training.run.saves_in_background", lambda device: True)


def run(tasks: TaskSet, out: Path, **options: Any) -> Iterator[dict[str, Any]]:
    return train(parse_settings(SETTINGS, tasks), tasks, out=out, **options)


def ahead(plain: Any, make: Any, background: bool) -> Any:
    return plain(make, background=True)


def test_simcse_too_has_its_batches_made_ahead_and_is_the_same_run(
    tasks: TaskSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "pretrain.simcse.epochs", 0.05)
    monkeypatch.setitem(SETTINGS, "pretrain.simcse.batch_size", 16)
    known = list(run(tasks, tmp_path / "at once"))
    made: list[str] = []
    batch = TaskStream.batch

    def noted(stream: TaskStream, number: int) -> Any:
        made.append(threading.current_thread().name)
        return batch(stream, number)

    monkeypatch.setattr(TaskStream, "batch", noted)
    monkeypatch.setattr("model.training.run.Prefetch", partial(ahead, Prefetch))
    found = list(run(tasks, tmp_path / "ahead"))
    assert [r["score"] for r in found] == [r["score"] for r in known]
    assert made and all(name.startswith("prefetch") for name in made)


def test_it_is_for_cuda() -> None:
    assert saves_in_background(torch.device("cuda", 1))
    assert not saves_in_background(torch.device("cpu"))


def test_a_run_that_writes_and_reads_in_the_background_is_the_same_run(
    tasks: TaskSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = list(run(tasks, tmp_path / "at once"))
    monkeypatch.setattr("model.training.run.saves_in_background", lambda device: True)
    monkeypatch.setattr("model.training.run.Prefetch", partial(ahead, Prefetch))
    found = list(run(tasks, tmp_path / "behind"))
    assert [r["checkpoint"] for r in found] == [r["checkpoint"] for r in known]
    same_result(tmp_path / "at once", tmp_path / "behind")
    for record in known:  # the states, too: they are copies of one moment
        place = f"checkpoints/{record['checkpoint']}/state/tensors.safetensors"
        if (tmp_path / "at once" / place).exists():
            assert sha256_of(tmp_path / "at once" / place) == sha256_of(tmp_path / "behind" / place)
    list(run(tasks, tmp_path / "parts", stop=after(4)))
    list(run(tasks, tmp_path / "parts", resume=True))
    same_result(tmp_path / "at once", tmp_path / "parts")


@pytest.fixture
def held(background: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Checkpoints wait before they appear, until the function that it gives is called."""
    release = threading.Event()

    def wait(folder: Path, **parts: Any) -> None:
        assert release.wait(60)
        save_checkpoint(folder, **parts)

    monkeypatch.setattr("model.training.saving.save_checkpoint", wait)
    return release.set


def test_training_goes_on_and_the_record_waits_for_the_checkpoint(
    tasks: TaskSet, tmp_path: Path, held: Callable[[], None]
) -> None:
    steps: list[int] = []

    def watch(progress: Any, count: int) -> None:
        steps.append(progress.step)
        if len(steps) == 4:  # the first evaluation comes after two steps
            assert not any((tmp_path / "run" / "checkpoints").glob("step-*"))
            held()

    written: list[tuple[str, bool]] = []

    def noted() -> None:  # as who brings it to storage is told
        there = any((tmp_path / "run" / "checkpoints").glob("step-*"))
        written.append((threading.current_thread().name.split("_")[0], there))

    records = run(tasks, tmp_path / "run", watch=watch, heartbeat=0.0, written=noted)
    first = next(record for record in records if not record.get("heartbeat"))
    assert ("checkpoint", True) in written
    assert first["step"] == 2 and len(steps) >= 4
    assert (tmp_path / "run" / "checkpoints" / first["checkpoint"]).is_dir()
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    rest = [record["step"] for record in records if not record.get("heartbeat")]
    assert rest == [4, 6]


def test_what_was_evaluated_is_told_before_a_later_step_fails(
    tasks: TaskSet, tmp_path: Path, held: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from model.training.run import TrainingRun

    plain = TrainingRun.advance

    def advance(self: TrainingRun, round_: Any, following: Any) -> None:
        if self.progress.step == 3:
            held()
            raise MemoryError
        plain(self, round_, following)

    monkeypatch.setattr(TrainingRun, "advance", advance)
    records = run(tasks, tmp_path / "run")
    assert next(records)["step"] == 2
    with pytest.raises(MemoryError):
        next(records)


def test_a_checkpoint_that_cannot_be_written_ends_the_run(
    tasks: TaskSet, tmp_path: Path, background: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, **parts: Any) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("model.training.saving.save_checkpoint", full)
    with pytest.raises(OSError, match="no space left"):
        list(run(tasks, tmp_path / "run"))
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""


def test_a_run_that_is_let_go_of_writes_to_the_end(
    tasks: TaskSet, tmp_path: Path, background: None
) -> None:
    records = run(tasks, tmp_path / "run")
    next(records)
    records.close()  # type: ignore[attr-defined]
    list(run(tasks, tmp_path / "run", resume=True))
    list(run(tasks, tmp_path / "whole"))
    same_result(tmp_path / "whole", tmp_path / "run")
