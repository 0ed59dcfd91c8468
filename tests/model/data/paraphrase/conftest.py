from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from .api import Api, serving, words


def write_sst(folder: Path, rows: Mapping[str, Sequence[str]]) -> Path:
    """CS224N's sentiment files with these sentences."""
    folder.mkdir(exist_ok=True)
    for split, suffix in (("train", ""), ("dev", ""), ("test", "-student")):
        labelled = split != "test"
        lines = ["\tid\tsentence" + "\tsentiment" * labelled]
        for number, sentence in enumerate(rows[split]):
            label = f"\t{number % 5}" if labelled else ""
            lines.append(f"{number}\t{split}{number}\t{sentence}{label}")
        (folder / f"ids-sst-{split}{suffix}.csv").write_text("\n".join(lines) + "\n")
    return folder


def sentences(split: str, count: int) -> list[str]:
    return [words(f"{split} {number}") for number in range(count)]


@pytest.fixture
def api() -> Iterator[Api]:
    with serving() as found:
        yield found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """12 training rows, and a few to hold out."""
    rows = {"train": sentences("train", 12), "dev": sentences("dev", 6)}
    return write_sst(tmp_path / "data", {**rows, "test": sentences("test", 6)})
