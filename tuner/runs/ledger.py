"""The ledger: one line per event, on disk before anything acts on it, and the only truth.

A line is JSON with its number and the checksum of the line before, and ends with the CRC of the
rest of it. The file only ever grows by whole lines, written by one driver: a line that a crash cut
short is moved aside when the ledger is next opened for writing, one that does not fit on the disk
is taken back, and whoever finds that somebody else has written stops. docs/ledger.md
has the events.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from model.common.errors import InputError
from model.common.files import fsync_folder, write_atomic
from model.common.untrusted import open_regular, read_regular
from tuner.runs.lines import FIRST, OWN, Content, decode, encode, ending, lost, parse
from tuner.runs.lock import Deposed, lock_file
from tuner.runs.schema import faults_of
from tuner.runs.state import EVENTS, Event, RunState, TrialState, Warn

__all__ = [
    "Event",
    "Ledger",
    "RunState",
    "TrialState",
    "Warn",
    "check_ledger",
    "decode",
    "encode",
    "faults_of",
    "parse",
    "read_events",
    "read_state",
    "run_key",
]

MOST_BYTES = 1 << 31  # of a ledger; 100,000 trials take a third of that


class Ledger:
    """The writer, and the state that its events add up to.

    There must be one at a time (`tuner.runs.lock`). `state` is always that of the lines on disk.
    `mine` is asked before each line, and raises `Deposed` once another driver has the run.
    `cut_back`: where a line is not what was written, go on from the one before instead of refusing.
    """

    def __init__(
        self,
        path: Path,
        warn: Warn = print,
        mine: Callable[[], None] = lambda: None,
        *,
        cut_back: bool = False,
    ) -> None:
        self.path = Path(path)
        self.warn = warn
        self.mine = mine
        # Told of every event after it is on disk, in order. They must not raise.
        self.listeners: list[Callable[[Event], None]] = []
        self._lock = threading.Lock()
        new = not self.path.exists()
        self._file = open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._torn = False
        self.aside = b""  # what stood behind the last line that was kept when it was opened
        self._size = self._lines = 0
        self._before = FIRST
        try:
            if not lock_file(self._file):
                remedy = "wait for it, or end it"
                raise InputError(str(path), [f"another process is writing to it; {remedy}"])
            if new:
                fsync_folder(self.path.parent)
            self.state = RunState.from_events(self._heal(cut_back), warn)
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def append(self, event: str, **fields: Any) -> Event | None:
        """Write one event, wait until it is on disk, and take it into the state.

        Returns it, or None where it changes nothing and so is not written: a trial that is
        closed is not closed again. Raises ValueError for an event that is not one, naming the
        field, `Deposed` when somebody else has written here, and OSError when the disk does not
        take it; the ledger is then as it was before.
        """
        if faults := faults_of(event, fields):
            raise ValueError(f"ledger event '{event}': {'; '.join(faults)}")
        with self._lock:
            self._check_trial(event, fields.get("trial"))
            if not self.state.takes(event, fields.get("trial")):
                return None
            told = {"event": event, "time": time.time(), **fields}
            line = encode(told, self._lines + 1, self._before)
            self._write(line)
            self._lines, self._before = self._lines + 1, line[-11:-3].decode()
            # As a reader will see it: a tuple is a list from here on.
            written: Event = json.loads(line)
            for key in OWN:
                del written[key]
            self.state.apply(written)
            for listener in self.listeners:
                listener(written)
            return written

    def _check_trial(self, event: str, trial: Any) -> None:
        if "trial" in EVENTS[event] and (event == "created") == (trial in self.state.trials):
            fault = "exists already" if event == "created" else "was never created"
            raise ValueError(f"ledger event '{event}': trial '{trial}' {fault}")

    def _write(self, line: bytes) -> None:
        self.mine()
        try:
            self._check_size()
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except Deposed:
            raise
        except OSError as error:
            self._take_back(len(line))
            reason = error.strerror or str(error)
            raise OSError(error.errno, reason, str(self.path)) from error
        self._size += len(line)

    def _check_size(self) -> None:
        """What stands behind our last line is either a line of ours that could not be taken back,
        or somebody else's, who must then be the one that the run belongs to."""
        here = os.fstat(self._file)
        try:
            there = os.stat(self.path)
        except OSError:
            there = here  # a folder that is gone is seen by the search itself
        if not os.path.samestat(here, there):
            raise Deposed(f"{self.path}: another file is in its place")
        if here.st_size == self._size:
            return
        if not self._torn or here.st_size < self._size:
            raise Deposed(f"{self.path}: another process has written to it")
        os.ftruncate(self._file, self._size)
        self._torn = False

    def _take_back(self, most: int) -> None:
        """Of the line that did not get there, whatever did; never more than that."""
        self._torn = True
        try:
            if 0 <= os.fstat(self._file).st_size - self._size <= most:
                os.ftruncate(self._file, self._size)
                os.fsync(self._file)
                self._torn = False
        except OSError:
            pass  # tried again before the next line; until then it is a torn last line

    def _heal(self, cut_back: bool) -> list[Event]:
        """The events there are; what is not whole at the end is moved to a file beside."""
        data = read_regular(self.path, MOST_BYTES)
        content = checked(self.path, data, cut_back)
        if content.faults:
            first = content.faults[0].line
            content = parse(b"".join(data.splitlines(keepends=True)[: first - 1]))
            self._set_aside(data, content.whole, "cut", lost(data[content.whole :]))
        elif torn := data[content.whole :]:
            self._set_aside(data, content.whole, "torn", ending(torn))
        self.aside = data[content.whole :]
        self._size, self._lines, self._before = content.whole, content.lines, content.before
        return content.events

    def _set_aside(self, data: bytes, whole: int, word: str, why: str) -> None:
        beside = _free_name(self.path, word)
        write_atomic(beside, data[whole:])
        os.ftruncate(self._file, whole)
        os.fsync(self._file)
        size = len(data) - whole
        self.warn(
            f"{self.path}: {why} ({size} bytes, kept in {beside.name}); "
            "going on from the line before"
        )


def read_events(path: Path, warn: Warn = print) -> list[Event]:
    """All whole events, for those who only look. Takes no lock, so a search may go on writing.

    Left out with a warning are a torn last line, lines that are damaged or no events, and all
    that stands behind a line that does not follow the one before it.
    """
    try:
        data = read_regular(Path(path), MOST_BYTES)
    except FileNotFoundError:
        fault = "no such file; is this the folder of a run?"
        raise InputError(str(path), [fault]) from None
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    content = parse(data)
    for each in content.faults:
        out = "left out, as all lines after it" if each.breaks else "passed over"
        warn(f"{path}: line {each.line}: {each.why}; {out}")
    if not content.faults or not content.faults[-1].breaks:
        if torn := len(data) - content.whole:
            warn(f"{path}: the last line is not whole ({torn} bytes) and is left out")
    return content.events


def check_ledger(path: Path, *, cut_back: bool = False) -> None:
    """Raise InputError with every line that a writer would refuse."""
    checked(path, read_regular(path, MOST_BYTES), cut_back)


def checked(path: Path, data: bytes, cut_back: bool) -> Content:
    """What it says, if a writer can go on with that."""
    content = parse(data)
    if content.faults and not (cut_back and content.sound):
        raise InputError(str(path), content.told())
    return content


def read_state(path: Path, warn: Warn = print) -> RunState:
    """What those events add up to."""
    return RunState.from_events(read_events(path, warn), warn)


def run_key(first: Event | str) -> str:
    """From the ledger's first line: the same wherever the folder lies and however it is named."""
    return hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()[:32]


def _free_name(path: Path, word: str) -> Path:
    number = 0
    while (beside := path.with_name(f"{path.stem}.{word}-{number}")).exists():
        number += 1
    return beside
