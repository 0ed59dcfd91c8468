"""Where a run is read from: its folder, or storage that its search mirrors it to."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from model.common.errors import InputError
from model.common.files import write_atomic
from model.common.untrusted import read_regular
from tuner.export.trackers.records import FILES
from tuner.runs.folder import LEDGER, LOCK, RUN, SPACE
from tuner.runs.lock import LEASE, RunLock
from tuner.runs.open import require_runs
from tuner.runs.storage.mirror import ALIVE, BEAT, is_over
from tuner.runs.storage.storage import Storage, is_url

EVERY = 2.0  # seconds between two looks at the ledger


class RunSource:
    """A run in a folder that this machine sees."""

    every = EVERY

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown = str(folder)
        self._said: bytes | None = None
        self._since = 0.0

    def identity(self) -> str:
        """The same for every process of this machine, by whatever path it came here."""
        status = os.stat(self.folder)
        return f"{status.st_dev}-{status.st_ino}"

    def refresh(self) -> None:
        """Bring the folder up to what there is."""
        require_runs([self.folder])

    def gone(self) -> bool:
        """Whether the driver is: after the last event it still makes the soup and the report. Also
        one on another machine that gives no sign of life."""
        try:
            RunLock(self.folder / LOCK, lambda line: None).look()
            return True
        except InputError:
            pass
        try:
            return self._silent(read_regular(self.folder / LOCK))
        except FileNotFoundError:
            return True

    def _silent(self, said: bytes) -> bool:
        if said != self._said:
            self._said, self._since = said, time.monotonic()
        return time.monotonic() - self._since > LEASE


class StoredRun(RunSource):
    """A run in storage: what an export reads of it is copied into a folder."""

    every = BEAT  # storage is seconds behind, and each look costs requests

    def __init__(self, storage: Storage, folder: Path) -> None:
        super().__init__(folder)
        self.storage = storage
        self.shown = storage.shown

    def identity(self) -> str:
        return hashlib.sha256(self.shown.encode()).hexdigest()[:32]

    def refresh(self) -> None:
        known = dict.fromkeys((RUN, SPACE, *FILES, LEDGER))  # the ledger last, as in `fetch`
        for name in known:
            content, place = self.storage.read(name), self.folder / name
            if content is None and name == LEDGER:
                fault = "holds no search; give the URL of a run, as s3://BUCKET/runs/default"
                raise InputError(self.shown, [fault])
            if content is not None and not is_same(place, content):
                place.parent.mkdir(exist_ok=True)
                write_atomic(place, content)

    def gone(self) -> bool:
        sign = self.storage.read(ALIVE)
        return sign is None or is_over(sign) or self._silent(sign)


def is_same(place: Path, content: bytes) -> bool:
    size = place.stat().st_size if place.exists() else -1
    return size == len(content) and read_regular(place, size) == content


@contextmanager
def source_of(run: str) -> Iterator[RunSource]:
    """By a folder's path, or by the URL of a run in storage."""
    if not is_url(run):
        yield RunSource(Path(run))
        return
    name = PurePosixPath(unquote(urlsplit(run).path)).name
    with TemporaryDirectory(prefix="stockpot-export-") as scratch:
        folder = Path(scratch) / (name or "run")
        folder.mkdir()
        yield StoredRun(Storage(run), folder)
