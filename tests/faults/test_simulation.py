"""Histories of a whole driver in which things go wrong: benchmarks/simulated_faults.py has more."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tuner.space.space import Space, load_space

pytestmark = pytest.mark.slow
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    from simulated_faults import MUTANTS, campaign, hunt, show
finally:
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def space() -> Space:
    return load_space("default")


def test_200_histories_keep_every_promise(space: Space, tmp_path: Path) -> None:
    """Seeds that the benchmark does not take: it begins at 0."""
    told, violations = campaign(range(1_000_000, 1_000_200), space, tmp_path)
    assert violations == 0
    missing = {
        *("driver killed", "driver slept", "driver found itself deposed", "driver told to stop"),
        *("worker killed", "worker hung", "answer twice", "late answer", "machine lost"),
        *("write torn", "write reordered", "disk full", "disk error"),
        *("storage error", "storage's answer lost", "write delayed", "late write refused"),
        *("rename lost", "removal lost", "new file lost", "second driver", "driver woke in time"),
        *("worker found its driver deposed", "driver slept at its end", "driver slept in a send"),
    } - set(told)
    assert not missing  # each of them happened


# Seeds that do not find it, to save their time.
BEFORE = {"closes": 270, "unguarded": 20, "forgets": 20, "removes": 50}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_fault_that_was_mended_would_be_found(mutant: str, space: Space, tmp_path: Path) -> None:
    assert hunt(mutant, space, tmp_path, BEFORE.get(mutant, 0)) is not None


def test_a_seed_is_always_the_same_history(
    space: Space, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = Counter[str]()
    for _ in range(2):
        assert show(7, space, tmp_path) is None
        said[capsys.readouterr().out.rpartition("(")[0].replace(str(tmp_path), "")] += 1
    assert list(said.values()) == [2] and "driver d0 began" in said.most_common()[0][0]
