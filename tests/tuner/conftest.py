from __future__ import annotations

from collections.abc import Iterator

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
