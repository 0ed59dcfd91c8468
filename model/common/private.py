"""A folder for temporary files that nobody else can have prepared.

Everybody may make folders in /tmp, under any name, before we do. So a folder counts only if it is
one (no link), is ours, and nobody else may write or look into it; and all of that is asked of its
handle, which stays with the folder whatever happens to its name.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def private_folder(name: str, place: Path | None = None) -> Path:
    """The folder of this user by that name among the temporary ones, made if there is none. Where
    somebody else has taken the name, a new one of which nobody knows."""
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    place = place or Path(tempfile.gettempdir())
    folder = place / f"{name}-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with own_handle(folder) as handle:
            if handle is not None:
                return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=place))


@contextmanager
def own_handle(folder: Path, others: int = 0o077) -> Iterator[int | None]:
    """A handle of the folder, for as long as the block runs; None if it is not ours, or others have
    any of these rights to it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # a link, a file, gone, another user's
        yield None
        return
    try:
        found = os.fstat(handle)
        ours = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
        yield handle if ours and not stat.S_IMODE(found.st_mode) & others else None
    finally:
        os.close(handle)


def by_handle(handle: int, folder: Path) -> Path:
    """A path that leads to what the handle is of, even if another thing has its name by now."""
    place = Path(f"/proc/self/fd/{handle}")
    return place if place.exists() else folder
