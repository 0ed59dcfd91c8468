"""benchmarks/early_scores.py: what scores of short training say of the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "benchmarks"


def run(*flags: str) -> str:
    command = [sys.executable, str(HERE / "early_scores.py"), *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_every_way_is_scored_at_every_length_and_nothing_is_done_twice(tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    said = run("--quick", "--out", str(out))
    table = said[said.index("3 configurations") :].splitlines()
    rows = [line.split()[:2] for line in table[2:] if line and "mean" not in line]
    parts = ["1/27", "1/9", "1/3"]
    assert rows == [
        *[["annealed", part] for part in parts],
        *[["decaying", part] for part in parts],
        *[["averaged", part] for part in [*parts, "all"]],
    ]
    before = out.read_bytes()
    assert run("--quick", "--out", str(out)) == "\n".join([*table, ""])  # the table alone
    assert out.read_bytes() == before
