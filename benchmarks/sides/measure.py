"""Sides measured in turn, so that a machine that slows down slows all of them."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

THREADS = 2


def interleave(sides: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Every side once per repeat, forth and then back; what each returned."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(repeats):
        for name in sides if number % 2 == 0 else reversed(sides):
            found[name].append(sides[name]())
    return found


def spread(values: list[float], digits: int = 1) -> str:
    middle = statistics.median(values)
    return f"{middle:8.{digits}f}  ({min(values):.{digits}f} to {max(values):.{digits}f})"


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Repeat by repeat, so that what slowed both down cancels out."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def matmul_rate(seconds: float = 0.3) -> float:
    """Floating point operations per second of float32 products and nothing else, at best.

    Of a large square one, and of one as they occur in a small encoder.
    """
    return max(_rate(1024, 1024, 1024, seconds), _rate(512, 384, 1536, seconds))


def _rate(rows: int, inner: int, columns: int, seconds: float) -> float:
    left, right = torch.randn(rows, inner), torch.randn(columns, inner)
    F.linear(left, right)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        F.linear(left, right)
        times.append(time.perf_counter() - began)
    return 2 * rows * inner * columns / statistics.median(times)


@dataclass(frozen=True)
class Options:
    data: Path | None  # with CS224N's files; without, the sample corpus
    repeats: int
    steps: int

    @property
    def tasks(self) -> str:
        return "sample" if self.data is None else "cs224n"


def options(about: str, *, steps: int, repeats: int = 5) -> Options:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--steps", type=int, default=steps, help="of each side in each repeat")
    parser.add_argument("--quick", action="store_true", help="one short repeat, to see it work")
    given = parser.parse_args()
    place = os.environ.get("STOCKPOT_CS224N")
    torch.set_num_threads(THREADS)
    found = Options(
        Path(place) if place else None,
        1 if given.quick else given.repeats,
        3 if given.quick else given.steps,
    )
    print(f"tasks: {found.tasks}, {THREADS} threads, {found.repeats} repeats", flush=True)
    return found
