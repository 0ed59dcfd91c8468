"""What kills and signals are measured by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tuner.search_runs import SAME, run_here


@pytest.fixture(scope="session")
def undisturbed(once: Callable[..., Path]) -> Path:
    """Only to be read."""

    def make(storage: Path) -> None:
        done = run_here(storage, *SAME)
        assert done.returncode == 0, done.stdout + done.stderr

    return once("undisturbed", make) / "default"
