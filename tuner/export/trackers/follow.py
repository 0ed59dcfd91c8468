"""One run to one place, once or for as long as its search goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from model.common.errors import InputError
from model.common.secrets import brief
from model.common.untrusted import read_regular
from tuner.export.trackers.destination import Destination
from tuner.export.trackers.records import Snapshot, snapshot
from tuner.runs.folder import LEDGER, LOCK
from tuner.runs.lock import LEASE, RunLock
from tuner.runs.open import open_run

EVERY = 2.0  # seconds between two looks at the ledger
Warn = Callable[[str], None]
Open = Callable[[], Destination]


class Exporter:
    """Hands over what has changed since the last time."""

    def __init__(self, folder: Path, open_destination: Open, warn: Warn) -> None:
        self.folder = folder
        self.open_destination = open_destination
        self.warn = warn
        self.warned: set[str] = set()
        self.destination: Destination | None = None
        self.read: Snapshot | None = None  # what the ledger said last
        self.sent: Snapshot | None = None  # what the destination has

    def once(self) -> Snapshot:
        self.read = now = snapshot(open_run(self.folder, self._note))
        before = self.sent.trials if self.sent else {}
        changed = [record for name, record in now.trials.items() if before.get(name) != record]
        if self.destination is None:
            self.destination = self.open_destination()
        self.destination.write(now, changed)
        self.sent = now
        return now

    def forget(self) -> None:
        """Of a destination that failed nobody knows what it has: the next one looks."""
        self.destination = self.sent = None

    def warn_once(self, line: str) -> None:
        if line not in self.warned:
            self.warned.add(line)
            self.warn(line)

    def _note(self, line: str) -> None:
        # A line that is just being written is no fault, and whole the next time.
        if "not whole" not in line:
            self.warn_once(line)


def follow(
    exporter: Exporter, wait: Callable[[float], None] = time.sleep, every: float = EVERY
) -> Snapshot:
    """Until the search is over. What the tool refuses meanwhile is tried again."""
    watch, told = Driver(exporter.folder), ""
    seen: object = None
    while True:
        # In this order: what a driver leaves before it goes is read after that.
        gone = watch.gone()
        over = gone and exporter.read is not None and exporter.read.state.ended is not None
        look = looks(exporter.folder)
        if exporter.sent is None or look != seen or over:
            try:
                now = exporter.once()
                seen = look
                if over and now.state.ended is not None:
                    return now
            except InputError:
                raise
            except Exception as error:
                if over:
                    raise
                exporter.forget()
                said = brief(str(error), 300) or type(error).__name__
                if said != told:
                    exporter.warn(f"not sent ({said}); trying again")
                    told = said
        elif gone:  # killed, or its machine is: nobody has written an end
            exporter.warn_once("the search stopped without an end; waiting for its --resume")
        wait(every)


def looks(folder: Path) -> tuple[tuple[int, int], ...]:
    """What changes when there is something new: the ledger, and what is made in the end."""
    found = []
    for name in (LEDGER, "report.html", "soup"):
        with suppress(OSError):
            status = (folder / name).stat()
            found.append((status.st_size, status.st_mtime_ns))
    return tuple(found)


class Driver:
    """Whoever holds the run's lock: after the last event it still makes the soup and the report."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        self.said: bytes | None = None
        self.since = 0.0

    def gone(self) -> bool:
        """Also one on another machine that gives no sign of life."""
        try:
            RunLock(self.path, lambda line: None).look()
            return True
        except InputError:
            pass
        try:
            said = read_regular(self.path)
        except FileNotFoundError:
            return True
        if said != self.said:
            self.said, self.since = said, time.monotonic()
        return time.monotonic() - self.since > LEASE
