"""What each card computes in. The cards are made up: torch's answers for them are."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from model.common.errors import InputError
from model.modules.device import (
    autocast,
    evaluation_precision,
    find_device,
    one_thread,
    place,
    precision_on,
)

CUDA = torch.device("cuda", 0)
CARDS = {
    "P100": ((6, 0), torch.float32),
    "V100": ((7, 0), torch.float16),
    "T4": ((7, 5), torch.float16),
    "A100": ((8, 0), torch.bfloat16),
    "A10G": ((8, 6), torch.bfloat16),
    "L4": ((8, 9), torch.bfloat16),
    "H100": ((9, 0), torch.bfloat16),
}


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    def insert(capability: tuple[int, int]) -> None:
        def supported(including_emulation: bool = True) -> bool:
            return including_emulation or capability >= (8, 0)

        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())

    return insert


@pytest.mark.parametrize("name", CARDS)
def test_auto_takes_what_the_card_does_natively(name: str, card: Any) -> None:
    capability, dtype = CARDS[name]
    card(capability)
    assert precision_on("auto", CUDA) == evaluation_precision("auto", CUDA) == dtype
    assert precision_on("float32", CUDA) == torch.float32  # whatever was asked for is taken
    assert precision_on("bfloat16", CUDA) == torch.bfloat16
    assert precision_on("float16", CUDA) == torch.float16


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_half_precision_cannot_be_trained_on_a_cpu_and_can_be_evaluated(half: str) -> None:
    cpu = torch.device("cpu")
    assert precision_on("auto", cpu) == precision_on("float32", cpu) == torch.float32
    with pytest.raises(InputError, match=f"{half} is for GPUs"):
        precision_on(half, cpu)
    assert evaluation_precision(half, cpu) == torch.float32


def test_tf32_is_for_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", asked.append)
    find_device("cpu")
    assert asked == []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert find_device(None).type == "cuda" and asked == ["high"]


def test_float32_is_not_cast_at_all() -> None:
    with autocast(torch.device("cpu"), torch.float32):
        assert not torch.is_autocast_enabled("cpu")
    with autocast(torch.device("cpu"), torch.bfloat16):
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16


def test_a_batch_on_its_way_to_a_gpu_is_pinned_and_not_waited_for(
    tiny: Any, batch_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of(tiny.spec.tasks[0])
    pinned: list[torch.Tensor] = []
    sent: list[tuple[bool, bool]] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor.clone())
        return pinned[-1]

    def send(tensor: torch.Tensor, device: Any, non_blocking: bool = False) -> torch.Tensor:
        sent.append((any(tensor is one for one in pinned), non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    monkeypatch.setattr(torch.Tensor, "to", send)
    there = place(batch, CUDA)
    assert sent == [(True, True)] * 4
    assert torch.equal(there.input_ids, batch.input_ids) and there.padded == batch.padded


def test_the_device_is_checked() -> None:
    assert find_device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match="cannot be used"):
        find_device("cuda:7")


def test_one_thread_is_for_the_time_being(threads: Callable[[int], None]) -> None:
    threads(3)
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with pytest.raises(ValueError, match="wrong"), one_thread():
        raise ValueError("wrong")
    assert torch.get_num_threads() == 3


def test_one_thread_in_many_at_once_is_for_the_time_being(threads: Callable[[int], None]) -> None:
    threads(3)

    def counted(_: int) -> int:
        with one_thread():
            os.sched_yield()  # to another that would come in
            return torch.get_num_threads()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(counted, range(200))) == {1}
    with ThreadPoolExecutor(1) as pool:  # what a thread that is yet to come has
        assert pool.submit(torch.get_num_threads).result() == 3
