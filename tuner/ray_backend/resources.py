"""How many trials run at once, and what each gets, from what the machine or cluster has."""

from __future__ import annotations

import ctypes
import gc
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from model.common.errors import InputError

MOST_ON_CPUS = 4  # trials at once without a GPU, unless asked for more
CUDA_ITSELF = 1 << 29  # bytes of a GPU for each process's context and kernels; a judgement


@dataclass(frozen=True)
class Resources:
    slots: int
    cpus: float
    gpus: float

    @property
    def threads(self) -> int:
        return max(1, int(self.cpus))

    @property
    def shared_gpu(self) -> bool:
        return 0 < self.gpus < 1

    def placement(self, *, own_gpu: bool = False) -> Any:
        """What a trial asks Ray for; `own_gpu`: one that it shares with no other."""
        from ray.tune import PlacementGroupFactory

        gpus = 1.0 if own_gpu else self.gpus
        bundle = {"CPU": self.cpus, **({"GPU": gpus} if gpus else {})}
        return PlacementGroupFactory([bundle])


def share_out(
    total_cpus: float,
    total_gpus: float,
    *,
    concurrent: int | None,
    cpus: float | None,
    gpus: float | None,
    trials: int,
    nodes: Sequence[tuple[float, float]] = (),
    elastic: bool = False,
) -> Resources:
    """Fill in what was not asked for; say at once what can never fit.

    `nodes` are the CPUs and GPUs of each machine, as a trial lives on one. A cluster is `elastic`:
    what is asked for may be more than it has now, and is what its autoscaler goes by.
    """
    if elastic and beyond(total_cpus, total_gpus, concurrent, cpus, gpus):
        return on_demand(concurrent, cpus, gpus, trials)
    faults = []
    if concurrent is not None and concurrent < 1:
        faults.append(f"--max-concurrent-trials is {concurrent}; it must be at least 1")
    if cpus is not None and not 0 < cpus <= max(total_cpus, 1):
        faults.append(f"--cpus-per-trial is {cpus:g}, but there are {total_cpus:g} CPUs")
    if gpus is not None and gpus > total_gpus:
        faults.append(f"--gpus-per-trial is {gpus:g}, but there are {total_gpus:g} GPUs")
    if faults:
        raise InputError("resources", faults)
    each_gpu = gpus if gpus is not None else (1.0 if total_gpus else 0.0)
    most = [trials]
    if each_gpu:
        most.append(parts_of(total_gpus, each_gpu))
    if cpus is not None:
        most.append(math.floor(total_cpus / cpus + 1e-9))
    if concurrent is not None:
        most.append(concurrent)
    elif cpus is None:
        most.append(int(total_cpus) if each_gpu else min(int(total_cpus), MOST_ON_CPUS))
    slots = max(1, min(most))
    each = cpus if cpus is not None else part_of(total_cpus, slots)
    if len(nodes) > 1:
        slots, each = packed(nodes, slots, each, each_gpu, fixed=cpus is not None)
    return Resources(slots, each, each_gpu)


def beyond(
    total_cpus: float,
    total_gpus: float,
    concurrent: int | None,
    cpus: float | None,
    gpus: float | None,
) -> bool:
    """More than is there now."""
    if total_cpus < 1 or (gpus or 0) > total_gpus or (cpus or 0) > total_cpus:
        return True
    slots = concurrent or 1
    if cpus is None and slots > total_cpus:
        return True
    if gpus and slots > parts_of(total_gpus, gpus):
        return True
    return slots * (cpus or 0) > total_cpus + 1e-9


def on_demand(
    concurrent: int | None, cpus: float | None, gpus: float | None, trials: int
) -> Resources:
    """As asked, for machines that are still to come."""
    slots = min(trials, concurrent if concurrent is not None else MOST_ON_CPUS)
    return Resources(max(1, slots), cpus if cpus is not None else 1.0, gpus or 0.0)


def packed(
    nodes: Sequence[tuple[float, float]], slots: int, cpus: float, gpus: float, *, fixed: bool
) -> tuple[int, float]:
    """So many trials at once, and CPUs for each, that every one finds room on a single node."""

    def room(each: float) -> int:
        by_cpus = [math.floor(c / each + 1e-9) for c, _ in nodes]
        by_gpus = [parts_of(g, gpus) if gpus else math.inf for _, g in nodes]
        return sum(int(min(both)) for both in zip(by_cpus, by_gpus, strict=True))

    while not fixed and cpus > 1 and room(cpus) < slots:
        cpus -= 1
    return max(1, min(slots, room(cpus))), cpus


def parts_of(gpus: float, each: float) -> int:
    """So many parts of this size are there, as each lies on one GPU."""
    return math.floor(gpus) * math.floor(1 / each + 1e-9)


def part_of(total: float, slots: int) -> float:
    """Whole CPUs for each, or a part of one where there are more trials than CPUs."""
    share = total / slots
    return float(math.floor(share)) if share >= 1 else math.floor(share * 1e4) / 1e4


def keep_to_its_gpu() -> None:
    """A worker without a GPU sees none, and who shares one keeps to its part of the memory, or a
    neighbour would be out of memory for it. To be called before anything asks for a GPU."""
    import ray
    import torch

    if not ray.get_gpu_ids():  # Ray then hides none, and torch would take the first
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    share = ray.get_runtime_context().get_assigned_resources().get("GPU", 0.0)
    if 0 < share < 1 and torch.cuda.is_available():
        # What torch is told is of its tensors alone, and CUDA itself takes memory, too.
        overhead = CUDA_ITSELF / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(max(share - overhead, share / 2))


def give_back_memory(*, device: bool) -> None:
    """What a trial has freed, to the system, and with `device` what it kept of a GPU.

    The C library keeps pieces between what still lives: workers grew by gigabytes, trial by trial.
    """
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)
    if device:
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()
