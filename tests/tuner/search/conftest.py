"""What kills and signals are measured by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tuner.search_runs import SAME, run_here


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("undisturbed")
    done = run_here(storage, *SAME)
    assert done.returncode == 0, done.stdout + done.stderr
    return storage / "default"
