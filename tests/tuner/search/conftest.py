"""What kills and signals are measured by."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tuner.search_runs import PATIENCE, SAME, run_here
from tuner.runs.scratch import PREFIX, sweep


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A place for Ray's files. Whatever was killed on the way, nothing of them is left."""
    place = Path(tempfile.mkdtemp(prefix="s", dir="/tmp"))  # short, for Ray's sockets
    monkeypatch.setenv("TMPDIR", str(place))
    yield
    # What a killed driver left goes when the next one starts, and its processes with it.
    deadline = time.monotonic() + PATIENCE
    while (left := list(place.glob(f"{PREFIX}*"))) and time.monotonic() < deadline:
        sweep(place)
        time.sleep(0.1)
    shutil.rmtree(place, ignore_errors=True)
    assert not left


@pytest.fixture(scope="session")
def undisturbed(once: Callable[..., Path]) -> Path:
    """Only to be read."""

    def make(storage: Path) -> None:
        done = run_here(storage, *SAME)
        assert done.returncode == 0, done.stdout + done.stderr

    return once("undisturbed", make) / "default"
