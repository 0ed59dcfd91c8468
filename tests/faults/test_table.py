"""The table of docs/reliability.md: every fault has its row, and every test in it exists.

Those that docs/security.md names, too.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TABLE = PAGE.split("\n\n", PAGE[: PAGE.index("| 1 |")].count("\n\n") + 1)  # no other one's rows
ROWS = {
    int(row[1]): row[0] for row in re.finditer(r"^\| (\d+) \|.*\|$", TABLE[-2], flags=re.MULTILINE)
}
TESTS = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_there_is_a_row_for_each_of_the_24_faults() -> None:
    assert sorted(ROWS) == list(range(1, 25))
    assert all(len(row.split("|")) == 7 for row in ROWS.values())


@pytest.mark.parametrize("number", sorted(ROWS))
def test_every_row_names_tests(number: int) -> None:
    assert TESTS.search(ROWS[number])


@pytest.mark.parametrize(("file", "name"), sorted(set(TESTS.findall(PAGE + SECURITY))))
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    if not (ROOT / file).is_file():
        pytest.skip(f"{file} is not part of this checkout")
    assert name in names_in(file)
