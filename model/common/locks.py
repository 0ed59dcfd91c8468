"""A lock on a file, between processes: the kernel's, so whoever dies lets go of it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

# What file systems say that have no locks.
NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}


@contextmanager
def file_lock(path: Path, wait: float = 0.0) -> Iterator[bool | None]:
    """Hold the lock of this file, once it is free, but wait no longer than that many seconds.

    Gives True, or False if another process still has it, or None where there are no locks. The
    file itself says nothing: it stays when the lock is given back.
    """
    # Not of one thread: a generator that holds it may be closed in another. No soft lock, which
    # is a file's existence and would outlive its process.
    lock = FileLock(
        path, wait, mode=0o644, thread_local=False, poll_interval=0.1, fallback_to_soft=False
    )
    taken: bool | None = True
    try:
        lock.acquire()
    except Timeout:
        taken = False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        taken = None
    try:
        yield taken
    finally:
        lock.release()
