"""Ray's processes that outlived their driver, found by the scratch folder they still write to.

When a driver is killed, most of its Ray goes with it, its workers seconds later, two agents only
after a minute. Until then they take time from the search that is resumed, and write to a folder
that is to be removed.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

PATIENCE = 2.0  # seconds for a process to be gone after SIGKILL
PROCESSES = Path("/proc")


def end_orphans(folder: Path) -> None:
    """End what Ray left behind in the folder of a driver that is gone. Nothing where that cannot be
    told for certain: on systems without /proc and handles of processes."""
    if not hasattr(os, "pidfd_open"):
        return
    folder = folder.resolve()  # as the kernel names its files
    for place in PROCESSES.glob("[0-9]*"):
        pid = int(place.name)
        if pid == os.getpid():
            continue
        with suppress(OSError):  # gone already, or another user's
            # A handle stays with its process, so that a pid in new hands is never signalled.
            handle = os.pidfd_open(pid)
            try:
                if is_orphan(place, folder):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    select.select([handle], [], [], PATIENCE)
            finally:
                os.close(handle)


def is_orphan(process: Path, folder: Path) -> bool:
    """One of ours, of Ray's by its name or arguments, and with a file open in that folder. Ray
    renames its processes, so that not all of them have the folder in their arguments."""
    if process.stat().st_uid != os.getuid():
        return False
    command = (process / "cmdline").read_bytes()
    if not command.startswith(b"ray::") and f"={folder}/ray".encode() not in command:
        return False
    return any(within(file, folder) for file in (process / "fd").iterdir())


def within(file: Path, folder: Path) -> bool:
    try:
        return os.readlink(file).startswith(f"{folder}/")
    except OSError:  # closed meanwhile
        return False
