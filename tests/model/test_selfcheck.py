from __future__ import annotations

import gc
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn.attention import SDPBackend

from model import selfcheck
from model.training.prepare import ProcessCache
from model.training.readings import MOST_SKIPS, Reader
from model.training.run import TrainingRun

QUICK = ["--device", "cpu", "--encoder", "tiny", "--seconds", "0.1"]
Start = Callable[[dict[str, Any]], AbstractContextManager[TrainingRun]]


@pytest.fixture(scope="module")
def start() -> Start:
    cache, tiny = ProcessCache(), {**selfcheck.SETTINGS, "encoder.name": "tiny"}
    return lambda changes: selfcheck.start_run(torch.device("cpu"), tiny | changes, cache)


def test_the_table_says_what_the_device_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert selfcheck.main(QUICK) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["| what | found |", "|---|---|"]
    found = dict(line.strip("| ").split(" | ", 1) for line in lines[2:])
    assert found["precision: auto"] == "float32"
    assert found["a step in bfloat16"] == "not on a CPU"
    assert found["3 steps taken twice"] == "the same to the bit"
    assert found["a step in float32, SMART's ball"].endswith("off by 0.0e+00")
    for mask in ("without padding", "with padding", "in windows"):
        assert "plain" in found[f"attention {mask}"]
        assert "plain" in found[f"attention {mask}, dropout"]
    for way in selfcheck.WAYS:
        assert found[f"waits inside operations, {way}"] == "left out on a CPU"
        assert found[f"a step, {way}"].endswith("operations, 0 reads by the host")
        assert "examples a second" in found[f"training, {way}"]
    assert found["compile: auto"] == "no"
    assert "rows a second" in found["evaluation"]


def test_one_run_alone_is_compiled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    layers = "model.training.prepare.compile_layers"
    monkeypatch.setattr(layers, lambda encoder, **_: asked.append(encoder))
    monkeypatch.setattr("model.modules.compiled.wants_compile", lambda *_: True)
    assert selfcheck.main(QUICK) == 0
    out = capsys.readouterr().out
    assert re.search(
        r"\| compile: auto \| from 2,000 steps on; \d+\.\d s until the second step is done \|", out
    )
    assert "| training, compiled | " in out and len(asked) == 1


def test_what_cuda_takes_beside_tensors_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(selfcheck.memory_besides(torch.device("cpu"))) == []
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (10 << 30, 16 << 30))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda device: 11 << 29)
    ((_, found),) = selfcheck.memory_besides(torch.device("cuda"))
    assert found.startswith("0.50 GiB")


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no kernel image\nis available")

    def quick(*_: Any) -> Any:
        yield "quick", "done"

    monkeypatch.setattr(selfcheck, "attention", broken)
    for name in ("precisions", "repeats", "operations", "speed"):
        monkeypatch.setattr(selfcheck, name, quick)
    assert selfcheck.main(QUICK) == 1
    out = capsys.readouterr().out
    assert "| attention | FAILED: RuntimeError: no kernel image is available |" in out
    assert "rows a second" in out


def test_a_device_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert selfcheck.main(["--device", "cuda:9"]) == 2
    assert "'cuda:9' cannot be used" in capsys.readouterr().err


def test_memory_is_that_of_one_run_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[int] = []

    def counted(*_: Any) -> str:
        alive.append(sum(type(each) is TrainingRun for each in gc.get_objects()))
        return ""

    monkeypatch.setattr(selfcheck, "rate", counted)
    for name in ("precisions", "attention", "repeats", "operations", "evaluation"):
        monkeypatch.setattr(selfcheck, name, lambda *_: iter(()))
    assert selfcheck.main(QUICK) == 0
    assert alive == [1] * len(selfcheck.WAYS)


def test_a_first_step_that_overflows_is_taken_again_at_a_smaller_scale(start: Start) -> None:
    changes = {**selfcheck.SEARCHED, **selfcheck.NO_DROPOUT}
    with start(changes) as run:
        known = selfcheck.first_step(run)
    assert known is not None
    for halved, told in ((0.5, True), (0.999, False)):  # too slowly for any patience
        with start(changes) as run:
            run.reader = Reader(float16=True)
            run.stepper.scaler = GradScaler("cpu", init_scale=2.0**127, backoff_factor=halved)
            found = selfcheck.first_step(run)
            assert run.reader.skipped == (0 if told else MOST_SKIPS)
        assert found == (pytest.approx(known, rel=1e-3) if told else None)


def test_waits_inside_operations_fail_the_check(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("torch.cuda.set_sync_debug_mode", asked.append)
    ((_, found),) = selfcheck.waits("plain", torch.device("cuda"), start)
    assert found == "none" and asked == ["error", "default"]


def test_a_kernel_whose_gradients_are_no_numbers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = selfcheck.attended

    def broken(query: Any, mask: Any, kernel: Any, dropout: float = 0.0) -> torch.Tensor:
        found = plain(query, mask, SDPBackend.MATH, dropout)
        return found * torch.nan if kernel == SDPBackend.EFFICIENT_ATTENTION else found

    monkeypatch.setattr(selfcheck, "attended", broken)
    rows = dict(selfcheck.attention(torch.device("cpu")))
    assert rows["attention in windows"] == "plain, flash, memory-efficient (NOT FINITE), cuDNN"
