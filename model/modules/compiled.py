"""The encoder's layers through `torch.compile`: fewer launches for a GPU that is done too soon.

Layer by layer, so that compiling is quick (all are alike) and what stands before them, where SMART
takes hold, is as it was. Lengths and numbers of rows are symbols to the compiler: it works once for
training and once for evaluation, not for every shape.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._triton import has_triton

from model.common.private import private_folder
from model.modules.encoder import layers_of

# Of a layer's code, before the compiler gives up. It would after eight: those of ModernBERT have
# their first norm or none, gradients or none, a mask or none, and with SimCSE two rates of dropout.
VARIANTS = 64
# Steps from which compiling pays, a judgement: each trial traces four variants or more, about 5 s,
# and a step of a small encoder may save 2 to 3 ms, some 300 of its 600 launches.
WORTHWHILE = 2000


def wants_compile(setting: str | bool, device: torch.device, adapter: str, steps: int) -> bool:
    """auto: on CUDA, where launches are what a small step waits for, in trainings of many steps."""
    if setting == "auto":
        fit = device.type == "cuda" and adapter != "pals"
        return fit and steps >= WORTHWHILE and can_compile()
    return bool(setting)


def can_compile() -> bool:
    """Triton wants a C compiler and Python's headers, and many a container has neither."""
    compiler = next(filter(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang")), None)
    headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    return compiler is not None and headers and has_triton()


def compile_layers(
    encoder: nn.Module, backend: Any = "inductor", *, if_possible: bool = False
) -> None:
    """`if_possible`: what cannot be compiled on this machine runs as it is, with a warning."""
    if backend == "inductor" and "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
        # By itself it runs what lies in a folder of /tmp, whoever made that.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(private_folder("stockpot-inductor"))
    # What the compiler knows is of the code, which all models of a process share. A worker has
    # trial after trial, with a rate of dropout each.
    torch._dynamo.reset()
    torch._dynamo.config.cache_size_limit = VARIANTS  # since torch 2.7 also `recompile_limit`
    torch._dynamo.config.suppress_errors = if_possible
    for layer in layers_of(encoder):
        layer.compile(dynamic=True, backend=backend)


def is_compiled(encoder: nn.Module) -> bool:
    return any(layer._compiled_call_impl is not None for layer in layers_of(encoder))
