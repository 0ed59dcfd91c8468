"""benchmarks/early_scores.py: what scores of short training say of the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.scripts import run


@pytest.mark.slow
def test_every_way_is_scored_at_every_length_and_nothing_is_done_twice(tmp_path: Path) -> None:
    out = tmp_path / "scores.jsonl"
    said = run("early_scores.py", "--quick", "--out", str(out))
    table = said[said.index("3 configurations") :].splitlines()
    rows = [line.split()[:2] for line in table[2:] if line and "mean" not in line]
    parts = ["1/27", "1/9", "1/3"]
    assert rows == [
        *[["annealed", part] for part in parts],
        *[["decaying", part] for part in parts],
        *[["averaged", part] for part in [*parts, "all"]],
    ]
    before = out.read_bytes()
    again = run("early_scores.py", "--quick", "--out", str(out))
    assert again == "\n".join([*table, ""])  # the table alone
    assert out.read_bytes() == before
