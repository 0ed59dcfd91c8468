"""A private temporary folder for one driver or worker, swept up after those that were killed."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from model.common.locks import file_lock
from model.common.private import by_handle, own_handle
from tuner.runs.orphans import end_orphans

PREFIX = "stockpot-"
HELD = "held"  # locked by the kernel for as long as its driver lives
PATIENCE = 5.0  # seconds for Ray's processes to let go of their files


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that goes when the block ends, with those that killed drivers left behind."""
    place = short_temporary_folder()
    sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    # Locked before it has its name: no other driver ever sees it free while this one lives.
    with file_lock(folder / f".{HELD}"):
        try:
            os.rename(folder / f".{HELD}", folder / HELD)
            yield folder
        finally:
            remove(folder)


def short_temporary_folder() -> Path:
    """Where Ray itself keeps its sessions: the path of a socket must not exceed 107 bytes."""
    usual = Path(tempfile.gettempdir())
    return usual if len(str(usual)) <= 20 else Path("/tmp")


def sweep(place: Path) -> None:
    """Remove the scratch of drivers that are gone, and end their Ray. Never of one that lives."""
    for folder in place.glob(f"{PREFIX}*"):
        # Others may make folders of that name here, and change one for another at any moment: what
        # is looked at and emptied is what this handle is of.
        with own_handle(folder, others=0o022) as handle, suppress(OSError):
            if handle is None or not (by_handle(handle, folder) / HELD).is_file():
                continue  # not ours to judge
            # Where there are no locks nothing is ever taken for abandoned. Another sweep may have
            # been quicker.
            with file_lock(by_handle(handle, folder) / HELD) as free:
                if free:
                    end_orphans(folder)
                    clear(by_handle(handle, folder), folder)


def clear(folder: Path, name: Path | None = None) -> None:
    """Remove a folder, its lock last: without one, what is left would be nobody's to remove.

    `name`: what it is called, where `folder` is its handle.
    """
    for place in folder.iterdir():
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        elif place.name != HELD:
            place.unlink(missing_ok=True)
    if any(place.name != HELD for place in folder.iterdir()):
        return  # Ray's processes write while they die: the next sweep has it
    (folder / HELD).unlink(missing_ok=True)
    try:
        (name or folder).rmdir()
    except OSError:  # written to in this very moment
        (folder / HELD).touch()


def remove(folder: Path) -> None:
    """Ray's processes write their last lines while they die, so once may not be enough."""
    deadline = time.monotonic() + PATIENCE
    while folder.exists() and time.monotonic() < deadline:
        with suppress(FileNotFoundError):  # gone between two looks
            clear(folder)
        if folder.exists():
            time.sleep(0.1)
