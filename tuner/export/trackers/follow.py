"""One run to one place, once or for as long as its search goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from model.common.errors import InputError
from model.common.secrets import brief
from tuner.export.trackers.destination import Destination
from tuner.export.trackers.records import Snapshot, snapshot
from tuner.export.trackers.source import RunSource
from tuner.runs.folder import LEDGER
from tuner.runs.open import open_run

Warn = Callable[[str], None]
Open = Callable[[], Destination]
Model = Callable[[], dict[str, Path]]


class Exporter:
    """Hands over what has changed since the last time."""

    def __init__(
        self, source: RunSource, open_destination: Open, warn: Warn, model: Model | None = None
    ) -> None:
        self.source = source
        self.open_destination = open_destination
        self.warn = warn
        self.model = model
        self.warned: set[str] = set()
        self.destination: Destination | None = None
        self.read: Snapshot | None = None  # what the ledger said last
        self.sent: Snapshot | None = None  # what the destination has

    def once(self) -> Snapshot:
        self.read = now = snapshot(open_run(self.source.folder, self._note))
        refused = None
        if self.model is not None:
            try:
                now = replace(now, model=self.model())
            except InputError as error:  # all else is sent all the same
                refused = error
        before = self.sent.trials if self.sent else {}
        changed = [record for name, record in now.trials.items() if before.get(name) != record]
        if self.destination is None:
            self.destination = self.open_destination()
        self.destination.write(now, changed)
        self.sent = now
        if refused is not None:
            raise refused
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


def follow(exporter: Exporter, wait: Callable[[float], None] = time.sleep) -> Snapshot:
    """Until the search is over. What the tool refuses meanwhile, or storage, is tried again."""
    source, told = exporter.source, ""
    seen: object = None
    while True:
        over = False
        try:
            # In this order: what a driver leaves before it goes is read after that.
            gone = source.gone()
            source.refresh()
            over = gone and exporter.read is not None and exporter.read.state.ended is not None
            look = looks(source.folder)
            if exporter.sent is None or look != seen or over:
                now = exporter.once()
                seen = look
                if over and now.state.ended is not None:
                    return now
            elif gone:  # killed, or its machine is: nobody has written an end
                exporter.warn_once("the search stopped without an end; waiting for its --resume")
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
        wait(source.every)


def looks(folder: Path) -> tuple[tuple[int, int], ...]:
    """What changes when there is something new: the ledger, and what is made in the end."""
    found = []
    for name in (LEDGER, "report.html", "soup"):
        with suppress(OSError):
            status = (folder / name).stat()
            found.append((status.st_size, status.st_mtime_ns))
    return tuple(found)
