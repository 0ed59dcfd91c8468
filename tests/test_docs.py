"""What the documents say of the code is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from model.config import describe

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_the_page_of_settings_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "settings.md").read_text().endswith(describe())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_names_only_files_that_are_there() -> None:
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    named = set(re.findall(r"`((?:data/)?\w+\.py)`", "\n".join(rows)))
    assert named
    assert not [
        name
        for name in named
        if not (ROOT / "model" / name).exists()
        and not (ROOT / "tuner" / name).exists()
        and not (ROOT / "model" / "data" / name).exists()
    ]
