"""A thread that keeps storage up to the driver's folder, seconds behind it."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.runs.folder import JOURNAL, LEDGER, LOCK, RUN, SPACE, TRIALS
from tuner.storage.storage import Storage, StorageLost

DELAY = 2.0  # seconds that storage may be behind
BEAT = 10.0  # seconds between signs of life
ALIVE = "driver.json"
SMALL = (RUN, SPACE, JOURNAL, LEDGER)


class Mirror:
    def __init__(self, storage: Storage, folder: Path) -> None:
        self.patient, self.hurried = storage, replace(storage, hurried=True)
        self.folder = folder
        self.trouble: str | None = None
        self._sent: dict[str, tuple[int, int]] = {}
        self._removals: list[str] = []
        self._listing = threading.Lock()
        self._working = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._sign: dict[str, Any] = {}
        self._beats = 0

    @property
    def storage(self) -> Storage:
        """Storage that was waited for in vain is not waited for again: the search stops."""
        return self.patient if self.trouble is None else self.hurried

    def start(self, sign: dict[str, Any]) -> None:
        self._sign = sign
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    def remove(self, paths: list[str]) -> None:
        """To go from storage after the ledger as it is now has come there."""
        with self._listing:
            self._removals = self._removals + paths

    def _run(self) -> None:
        turns = max(1, round(BEAT / DELAY))
        turn = 0
        while not self._end.is_set():
            try:
                if turn % turns == 0:
                    self._beat()
                self.settle()
            except StorageLost as error:
                self.trouble = str(error)
            except OSError as error:  # a file that went while it was being read
                self.trouble = f"{self.folder}: {error}"
            turn += 1
            self._end.wait(DELAY)

    def _beat(self) -> None:
        self._beats += 1
        self.storage.write(ALIVE, json.dumps({**self._sign, "beat": self._beats}).encode())

    def settle(self) -> None:
        """Now: the small files, then what is to go."""
        with self._working:
            with self._listing:  # what comes later waits for a later ledger
                going, self._removals = self._removals, []
            try:
                self._send([name for name in SMALL if (self.folder / name).is_file()])
                self.storage.remove(going)
            except StorageLost:
                self.remove(going)
                raise

    def _send(self, names: list[str]) -> None:
        for name in names:
            status = (self.folder / name).stat()
            seen = (status.st_size, status.st_mtime_ns)
            if self._sent.get(name) != seen:
                self.storage.put(self.folder / name, name)
                self._sent[name] = seen

    def close(self) -> str | None:
        """Everything that the driver wrote. What went wrong, if anything did."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self.settle()
            with self._working:
                self._send(self._everything())
            self.storage.remove([ALIVE])
        except (StorageLost, OSError) as error:
            return str(error)
        return None

    def _everything(self) -> list[str]:
        """But what came from storage, and what is of no use elsewhere."""
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        names = [file.relative_to(self.folder).as_posix() for file in files]
        return [name for name in names if is_ours(name)]


def is_ours(name: str) -> bool:
    parts = name.split("/")
    if any(part.startswith(".") for part in parts) or name == LOCK:
        return False
    return parts[0] != TRIALS or parts[-1].startswith("events.out.tfevents")
