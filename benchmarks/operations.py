"""What a step asks of the device: operations, reads by the host, copies. Counted, not timed.

    python benchmarks/operations.py [--encoder minilm] [--device cpu]

On a GPU an operation is about a launch, and a read or a copy to the host waits for all launches
before it. On a CPU nothing is copied, so there the copies are those of the same step on `meta`: a
device with shapes and no numbers, where whatever gives the host a number fails.
"""

from __future__ import annotations

import argparse
import math

import torch

from model.data.prefetch import Prefetch
from model.selfcheck import SETTINGS, advance, start_run
from model.training import run
from model.training.operations import Operations
from model.training.prepare import ProcessCache

WAYS = {
    "plain": {"batch.together": False},
    "plain, one pass": {"batch.together": True},
    "SMART, published": {"batch.together": False, "smart.weight": 1},
    "SMART, published, one pass": {"batch.together": True, "smart.weight": 1},
    "SMART, ball": {"smart.weight": 1, "smart.variant": "ball"},
    "SMART, random": {"smart.weight": 1, "smart.variant": "random"},
    "Bregman": {"smart.bregman": 1},
    "Bregman, one pass": {"batch.together": True, "smart.bregman": 1},
    "PCGrad": {"surgery": "pcgrad"},
    "PALs": {"encoder.adapter": "pals"},
    "averaged weights": {"average.share": 0.5},
    "R-Drop": {"rdrop.weight": 1},
    "R-Drop, one pass": {"batch.together": True, "rdrop.weight": 1},
    "UPGrad": {"surgery": "upgrad"},
    "CAGrad": {"surgery": "cagrad"},
    "Nash-MTL": {"surgery": "nash_mtl"},
}
STEPS = 4


Way = dict[str, object]


def counted(device: torch.device, settings: Way, cache: ProcessCache) -> Operations:
    training = start_run(device, settings, cache)
    # A GPU's are made by a thread, whose copies would not be counted.
    training.batches = Prefetch(training.prepared.batches_of, background=False)
    generator = torch.Generator
    if device.type == "meta":
        torch.Generator = lambda *_: generator()  # type: ignore[assignment,misc]  # it has none
    try:
        advance(training, 1)
        with Operations() as operations:
            advance(training, STEPS)
    finally:
        torch.Generator = generator  # type: ignore[misc]
    return operations


def per_step(device: torch.device, settings: Way, cache: ProcessCache) -> list[str]:
    """Reads, operations, copies to the device and to the host."""
    try:
        found = counted(device, settings, cache)
    except (NotImplementedError, RuntimeError):
        if device.type != "meta":
            raise
        return ["", "", "", "some"]  # whatever it was that `meta` has no number for
    counts = (found.reads, found.launches, found.to_device, found.to_host)
    return [f"{count / STEPS:.0f}" for count in counts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)  # replicas have threads of their own, which are not counted
    run.LOOK = math.inf  # a slow step would come with a look at the losses, which is none of it
    cache, device = ProcessCache(), torch.device(options.device)
    print("| per step of three tasks | reads | operations | to the device | to the host |")
    print("|---|---|---|---|---|")
    for name, changes in WAYS.items():
        settings = {**SETTINGS, "encoder.name": options.encoder, **changes}
        cells = per_step(device, settings, cache)
        if device.type == "cpu":
            cells[2:] = per_step(torch.device("meta"), settings, cache)[2:]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
