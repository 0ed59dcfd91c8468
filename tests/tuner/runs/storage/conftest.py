"""Storage of every kind, for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tuner.s3_server import S3, s3_server
from tuner.runs.storage.storage import Storage


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["file", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Every kind keeps the same promises."""
    if request.param == "file":
        return Storage(f"file://{tmp_path}/there")
    server: S3 = request.getfixturevalue("s3")
    return Storage(server.url(tmp_path.name))
