from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner.postgres_server import Postgres, postgres, why_not
from tests.tuner.without_ray import without_ray as context


@pytest.fixture
def without_ray() -> Iterator[None]:
    """Searches of this test train in its own process: see tests/tuner/without_ray.py."""
    with context():
        yield


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
