"""A process that keeps its memory does not fault it in again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from model.memory import keep_freed_memory

def step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    kept = [torch.ones(7_500_000) for _ in range(8)]
    del kept
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert keep_freed_memory()
print(step(), *(step() for _ in range(5)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc's")
def test_memory_is_faulted_in_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    first, *others = map(int, done.stdout.split())
    assert first > 10  # pages may be large
    assert sum(others) < first  # of five more steps together
