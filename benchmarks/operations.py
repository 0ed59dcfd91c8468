"""What a step asks of the device: operations, reads by the host, copies. Counted, not timed.

    python benchmarks/operations.py [--encoder minilm] [--device cpu]

On a GPU an operation is about a launch, and a read or a copy to the host waits for all launches
before it. On a CPU nothing is copied, so copies are told on a GPU only.
"""

from __future__ import annotations

import argparse

import torch

from model.selfcheck import SETTINGS, advance, start_run
from model.training.operations import Operations
from model.training.prepare import ProcessCache

WAYS = {
    "plain": {"batch.together": False},
    "plain, one pass": {"batch.together": True},
    "SMART, published": {"smart.weight": 1},
    "SMART, ball": {"smart.weight": 1, "smart.variant": "ball"},
    "SMART, random": {"smart.weight": 1, "smart.variant": "random"},
    "Bregman": {"smart.bregman": 1},
    "PCGrad": {"surgery": "pcgrad"},
    "PALs": {"encoder.adapter": "pals"},
    "averaged weights": {"average.share": 0.5},
    "R-Drop": {"rdrop.weight": 1},
    "UPGrad": {"surgery": "upgrad"},
}
STEPS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="tiny")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)  # replicas have threads of their own, which are not counted
    cache, device = ProcessCache(), torch.device(options.device)
    print("| per step of three tasks | reads | operations | to the device | to the host |")
    print("|---|---|---|---|---|")
    for name, settings in WAYS.items():
        run = start_run(device, {**SETTINGS, "encoder.name": options.encoder, **settings}, cache)
        advance(run, 1)
        with Operations() as counted:
            advance(run, STEPS)
        found = (counted.reads, counted.launches, counted.to_device, counted.to_host)
        print(f"| {name} | {' | '.join(f'{count / STEPS:.0f}' for count in found)} |", flush=True)


if __name__ == "__main__":
    main()
