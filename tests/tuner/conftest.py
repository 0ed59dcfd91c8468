from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner.postgres_server import Postgres, postgres, why_not
from tests.tuner.search_runs import PATIENCE
from tests.tuner.without_ray import without_ray as context
from tuner.runs.scratch import PREFIX, sweep


@pytest.fixture
def without_ray() -> Iterator[None]:
    """Searches of this test train in its own process: see tests/tuner/without_ray.py."""
    with context():
        yield


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
def postgres_server() -> Iterator[Postgres]:
    if reason := why_not():
        pytest.skip(reason)
    with postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a new database for studies."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/studies.db"
    made: str = request.getfixturevalue("postgres_server").new_database()
    return made
