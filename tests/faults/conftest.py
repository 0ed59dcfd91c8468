"""Places that refuse: a disk of a few megabytes, a folder that cannot be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def mount(place: Path, options: str) -> None:
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a tmpfs needs root")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 80 MB."""
    place = tmp_path / "disk"
    mount(place, "size=80m")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that cannot be written, not even by root."""
    place = tmp_path / "read-only"
    if os.geteuid() != 0:
        place.mkdir(mode=0o500)
        yield place
        return
    mount(place, "size=1m,ro")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
