"""A run as version 0.1 left it: with a soup, and with a trial that was interrupted."""

from __future__ import annotations

import tarfile
from pathlib import Path

FILE = Path(__file__).parents[1] / "fixtures" / "run-0.1.tar.gz"


def old_run(folder: Path) -> Path:
    with tarfile.open(FILE) as tar:
        tar.extractall(folder, filter="data")
    return folder / "v0-1"
