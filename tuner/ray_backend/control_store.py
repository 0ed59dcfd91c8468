"""The control store of a Ray of our own, without which nothing can be asked of Ray any more."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

from tuner.runs.orphans import end_orphans
from tuner.runs.scratch import remove

EVERY = 1.0  # seconds between two looks


@contextmanager
def watched(
    process: Popen[bytes], scratch: Path, lost: Callable[[], None] | None
) -> Iterator[None]:
    """End this process, and all of its Ray, once the control store has ended.

    Ray would end it too, after a minute in which every call waits, and without a word of ours.
    `lost` has the last word.
    """
    closing = threading.Event()

    def watch() -> None:
        while process.poll() is None:
            if closing.wait(EVERY):
                return
        if closing.is_set():
            return
        try:
            if lost is not None:
                lost()
            end_orphans(scratch)
            remove(scratch)
        finally:
            os._exit(1)

    threading.Thread(target=watch, name="control store", daemon=True).start()
    try:
        yield
    finally:
        closing.set()
