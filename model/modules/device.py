"""Where a model runs, and in which precision."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from model.common.errors import InputError
from model.data.batches import Batch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TENSOR_CORES = (7, 0)  # the first compute capability whose float16 is faster than its float32
AUTOCAST = ("cpu", "cuda", "mps", "xpu")  # the devices that know it
ALONE = threading.RLock()  # of `one_thread`


def find_device(name: str | None) -> torch.device:
    """Where a model is to run, ready for it: whoever trains, scores or predicts asks here."""
    auto = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(auto) if name is None else _named(name)
    use_tensor_cores(device)
    return device


def _named(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        remedy = "take cpu, or cuda where there is a GPU"
        raise InputError("--device", [f"'{name}' cannot be used ({reason}); {remedy}"]) from None
    return device


def precision_on(precision: str, device: torch.device) -> torch.dtype:
    """What a run computes its passes in; weights and heads are float32 in any case."""
    if precision == "auto":
        return _fastest(device)
    if precision != "float32" and device.type == "cpu":
        # Slower than float32 on most CPUs, and on some a crash (illegal instruction).
        fault = f"{precision} is for GPUs, and this run is on the CPU; take auto or float32"
        raise InputError("precision", [fault])
    return DTYPES[precision]


def evaluation_precision(precision: str, device: torch.device) -> torch.dtype:
    """As near to what the run computed in as this device can: a driver may have no GPU."""
    return torch.float32 if device.type == "cpu" else precision_on(precision, device)


def _fastest(device: torch.device) -> torch.dtype:
    if device.type != "cuda":
        return torch.float32
    with torch.cuda.device(device):  # torch asks the current one
        # Cards before Ampere, a T4 or a V100, take bfloat16 too, by slow emulation.
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
    new_enough = torch.cuda.get_device_capability(device) >= TENSOR_CORES
    return torch.float16 if new_enough else torch.float32


def use_tensor_cores(device: torch.device) -> None:
    """Let float32 products take TF32 on a GPU that has it; on a CPU nothing changes."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Passes in this precision; with float32 none of them is touched."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype)


def no_autocast(device: torch.device) -> AbstractContextManager[object]:
    if device.type in AUTOCAST and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def place(batch: Batch, device: torch.device) -> Batch:
    """The batch on its device. The host does not wait for the copy: it comes from pinned memory."""
    if device.type != "cuda":
        return batch.map(lambda tensor: tensor.to(device))
    return batch.map(lambda tensor: tensor.pin_memory().to(device, non_blocking=True))


@contextmanager
def one_thread() -> Iterator[None]:
    """For small matrices beside trials that have the cores: several threads would wait for each
    other at every operation, which takes ten times as long.

    One at a time, as the number is the process's: the second would take 1 for what was before.
    """
    with ALONE:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
