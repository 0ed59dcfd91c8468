"""A step leaves its numbers on the device: the host must never wait for it.

Counted on the CPU, and tried on the device `meta`, which has shapes and no numbers: whatever
reads one there, or copies a tensor to the host, fails.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from model.config.parse import parse_settings
from model.objectives.schedules import SCHEDULES
from model.tasks.task_set import LOSSES, TaskSet
from model.training.operations import Operations
from model.training.prepare import ProcessCache, prepare
from model.training.readings import Reader, TrainingDiverged, UnreadStep
from model.training.run import TrainingRun

BASE = {
    "encoder.name": "tiny",
    "encoder.max_length": 48,
    "batch.sizes": [8, 6, 4],
    "budget.examples": 200,
    "budget.eval_rows": 20,
}
CACHE = ProcessCache()
PALS = {"encoder.adapter": "pals", "encoder.adapter_size": 12, "encoder.adapter_heads": 3}
SMART = {"smart.weight": 2, "smart.steps": 2}
WAYS: dict[str, dict[str, Any]] = {
    **{f"schedule {name}": {"schedule.name": name} for name in SCHEDULES},
    "published": SMART,
    "published l2, shared masks": {**SMART, "smart.norm": "l2", "smart.masks": "shared"},
    "ball": {**SMART, "smart.variant": "ball"},
    "ball l2": {**SMART, "smart.variant": "ball", "smart.norm": "l2"},
    "random": {"smart.weight": 2, "smart.variant": "random"},
    "bregman": {"smart.bregman": 1},
    "pcgrad": {"surgery": "pcgrad"},
    "one pass": {"batch.together": True},
    "one pass, published": {**SMART, "batch.together": True, "smart.bregman": 1},
    "one pass, r-drop": {"batch.together": True, "rdrop.weight": 1},
    "r-drop": {"rdrop.weight": 1, "loss.smoothing": 0.1},
    "uncertainty": {"loss.weighting": "uncertainty"},
    "pals": PALS,
    "lora": {"encoder.adapter": "lora"},
    "gradients computed again": {"encoder.gradient_checkpointing": True},
    "frozen": {"encoder.frozen": True},
    "accumulate": {"batch.accumulate": 3},
    "two sequences": {"pair.encoding": "bi_difference", "encoder.pooling": "cls"},
    "cosine": {"pair.encoding": "cosine", "encoder.pooling": "pooler"},
    "averaged weights": {"average.share": 0.5},
    "layer scale": {"optim.layer_scale.alpha": 0.5, "optim.layer_scale.layers.sentiment": [1]},
    "everything": {**PALS, **SMART, "smart.bregman": 1, "surgery": "pcgrad", "batch.accumulate": 2},
    **{
        f"loss {loss}": {"loss.sentiment" if "classes" in kinds else "loss.similarity": loss}
        for loss, kinds in LOSSES.items()
        if "classes" in kinds or "regression" in kinds
    },
}


@pytest.fixture(autouse=True)
def one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """No looks in between, which a slow machine would have."""
    monkeypatch.setattr("model.training.run.LOOK", 1e9)


def run_of(way: dict[str, Any], tasks: TaskSet, out: Path, device: str) -> TrainingRun:
    config = parse_settings({**BASE, **way}, tasks)
    run = TrainingRun(prepare(config, tasks, device=device, cache=CACHE), out, None, print)
    run.start_fresh()
    run.model.train()
    return run


def without_a_read(run: TrainingRun, steps: int) -> int:
    """How many of these steps were taken: float16 may leave some out."""
    with Operations() as counted:
        for tasks_of_round in islice(run.prepared.rounds(0), steps):
            run.advance(tasks_of_round)
    assert counted.reads == 0
    assert counted.launches > 100
    run.read()
    return run.progress.meter.steps


@pytest.mark.parametrize("way", WAYS)
def test_a_step_reads_nothing(way: str, tasks: TaskSet, tmp_path: Path) -> None:
    assert without_a_read(run_of(WAYS[way], tasks, tmp_path, "cpu"), 4) == 4


@pytest.mark.parametrize("way", ["cosine", "published", "pcgrad"])
def test_a_step_in_float16_with_its_scaler_reads_nothing(
    way: str, tasks: TaskSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, which users are not allowed to; `meta` knows no autocast."""
    monkeypatch.setattr("model.training.prepare.precision_on", lambda *_: torch.float16)
    run = run_of(WAYS[way], tasks, tmp_path, "cpu")
    assert run.stepper.scaler.is_enabled()
    assert without_a_read(run, 4) > 0


@pytest.mark.parametrize("way", WAYS)
def test_a_step_gives_the_host_nothing(
    way: str, tasks: TaskSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(WAYS[way], tasks, tmp_path, "meta")
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda *_: generator())  # `meta` has none
    for tasks_of_round in islice(run.prepared.rounds(0), 2):
        with Operations() as counted:
            run.advance(tasks_of_round)
        assert counted.to_host == 0
        assert counted.to_device == 4 * len(tasks_of_round)  # the batches, and nothing else
    with pytest.raises((RuntimeError, NotImplementedError)):
        run.read()


def test_simcse_reads_nothing(tasks: TaskSet, tmp_path: Path) -> None:
    run = run_of({"pretrain.simcse.epochs": 0.3}, tasks, tmp_path, "cpu")
    counts: list[int] = []
    with Operations() as counted:
        list(run.pretrain(lambda: False, lambda *_: counts.append(counted.reads), run.look))
    assert len(counts) > 2 and counts[-1] == 0


def unread(number: int, loss: float, norm: float = 1.0, objective: float | None = None) -> Any:
    values = [torch.tensor(x) for x in (loss, loss if objective is None else objective, norm)]
    return UnreadStep.of(number, {"mood": values[0]}, [values[1]], None, values[2])


def test_the_step_that_diverged_is_named_though_later_ones_are_worse() -> None:
    steps = [unread(n, 0.5) for n in range(7)]
    steps += [unread(7, 0.5, objective=float("inf"))]
    steps += [unread(n, float("nan"), float("nan")) for n in (8, 9)]
    read = Reader().read(steps)
    assert [next(read).losses for _ in range(7)] == [{"mood": 0.5}] * 7
    with pytest.raises(TrainingDiverged, match=r"step 7: .* 'mood' is inf \(plain loss 0.5\)"):
        next(read)
    with pytest.raises(TrainingDiverged, match="step 3: the gradient's norm is inf"):
        list(Reader().read([unread(3, 0.5, float("inf")), unread(4, float("nan"))]))


def test_a_run_that_diverged_between_two_looks_saves_nothing(
    tasks: TaskSet, tmp_path: Path
) -> None:
    run = run_of({}, tasks, tmp_path, "cpu")
    rounds = list(islice(run.prepared.rounds(0), 4))
    for number, tasks_of_round in enumerate(rounds):
        if number == 2:
            with torch.no_grad():
                run.model.heads["task_similarity"].output.bias.fill_(float("nan"))
        run.advance(tasks_of_round)
    with pytest.raises(TrainingDiverged, match="step 2: the loss of 'similarity' is nan"):
        run.save()
    assert not run.checkpoints.exists()


def test_a_look_counts_as_training_time(tasks: TaskSet, tmp_path: Path) -> None:
    run = run_of({}, tasks, tmp_path, "cpu")
    run.advance(next(iter(run.prepared.rounds(0))))
    before = run.progress.seconds
    run.read()
    assert run.progress.seconds > before
    assert run.progress.meter.seconds == pytest.approx(run.progress.seconds)
