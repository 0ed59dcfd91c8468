"""`benchmarks/soup.py` measures what a worker takes, and the bound holds."""

from __future__ import annotations

import pytest

from tests.benchmarks.scripts import run


@pytest.mark.slow
def test_a_worker_takes_three_models_at_most() -> None:
    """Not less than one model, either: that would be measured wrongly."""
    lines = run("soup.py", "memory", "--quick").splitlines()  # it fails above three
    assert [line.split()[0] for line in lines] == ["average", "stock", "worker"]
    assert "without what an evaluation leaves" in lines[-1]
    taken = [float(line.split(" models")[0].rpartition(" ")[2]) for line in lines]
    assert all(1 < models < 4 for models in taken)
