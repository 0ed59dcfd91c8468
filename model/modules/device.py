"""Where a model runs, and in which precision."""

from __future__ import annotations

import torch

from model.common.errors import InputError


def find_device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        remedy = "take cpu, or cuda where there is a GPU"
        raise InputError("--device", [f"'{name}' cannot be used ({reason}); {remedy}"]) from None
    return device


def bfloat16_on(precision: str, device: torch.device) -> bool:
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    if precision == "bfloat16" and device.type == "cpu":
        # Slower than float32 on most CPUs, and on some a crash (illegal instruction).
        fault = "bfloat16 is for GPUs, and this run is on the CPU; take auto or float32"
        raise InputError("precision", [fault])
    return precision == "bfloat16"
