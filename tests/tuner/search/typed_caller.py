"""What editors and mypy see of the public API: `make types` reads this file, and nothing runs it.

A mistake that mypy no longer sees is an unused `type: ignore`, which is an error of its own.
"""

from __future__ import annotations

from typing_extensions import assert_type

from tuner import run_search
from tuner.runs.state import TrialState


def calls() -> None:
    assert_type(run_search(num_samples=8).best, TrialState | None)
    run_search(num_samples="8")  # type: ignore[arg-type]
    run_search(num_sample=8)  # type: ignore[call-arg]
