from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tuner.without_ray import without_ray as context


@pytest.fixture
def without_ray() -> Iterator[None]:
    """Searches of this test train in its own process: see tests/tuner/without_ray.py."""
    with context():
        yield
