"""Where a model runs, and in which precision."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from model.common.errors import InputError
from model.data.batches import Batch


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


def place(batch: Batch, device: torch.device) -> Batch:
    """The batch on its device. The host does not wait for the copy: it comes from pinned memory."""
    if device.type != "cuda":
        return batch.to(device)

    def copy(tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(device, non_blocking=True)

    return replace(
        batch,
        input_ids=copy(batch.input_ids),
        attention_mask=copy(batch.attention_mask),
        token_type_ids=copy(batch.token_type_ids),
        labels=copy(batch.labels),
    )
