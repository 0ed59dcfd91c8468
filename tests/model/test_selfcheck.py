from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from model import selfcheck

QUICK = ["--device", "cpu", "--encoder", "tiny", "--seconds", "0.1"]


def test_the_table_says_what_the_device_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert selfcheck.main(QUICK) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["| what | found |", "|---|---|"]
    found = dict(line.strip("| ").split(" | ", 1) for line in lines[2:])
    assert found["precision: auto"] == "float32"
    assert found["a step in bfloat16"] == "not on a CPU"
    assert found["3 steps taken twice"] == "the same to the bit"
    assert "plain" in found["attention with padding"]
    for way in selfcheck.WAYS:
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
    assert re.search(r"\| compile: auto \| yes, \d+\.\d s until the second step is done \|", out)
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
