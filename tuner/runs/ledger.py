"""The ledger: one line per event, on disk before anything acts on it, and the only truth.

A line is JSON and ends with the CRC of the rest of it. The file only ever grows by whole lines:
a line that a crash cut short is moved aside when the ledger is next opened for writing, and one
that does not fit on the disk is taken back. docs/ledger.md describes the events.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.common.errors import InputError, suggest
from model.common.files import fsync_folder, write_atomic
from tuner.runs.state import EVENTS, Event, RunState, TrialState, Warn

__all__ = [
    "Event",
    "Ledger",
    "RunState",
    "TrialState",
    "Warn",
    "faults_of",
    "read_events",
    "read_state",
]

HEAD = b'{"event":"'
SEAL = re.compile(rb',"crc":"([0-9a-f]{8})"\}\Z')


class Ledger:
    """The writer, and the state that its events add up to.

    There must be one at a time (`tuner.runs.lock`). `state` is always that of the lines on disk.
    """

    def __init__(self, path: Path, warn: Warn = print) -> None:
        self.path = Path(path)
        self.warn = warn
        # Told of every event after it is on disk, in order. They must not raise.
        self.listeners: list[Callable[[Event], None]] = []
        self._lock = threading.Lock()
        new = not self.path.exists()
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _CLOEXEC, 0o644)
        try:
            if new:
                fsync_folder(self.path.parent)
            self.state = RunState.from_events(self._heal(), warn)
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
        field, and OSError when the disk does not take it; the ledger is then as it was before.
        """
        if faults := faults_of(event, fields):
            raise ValueError(f"ledger event '{event}': {'; '.join(faults)}")
        with self._lock:
            self._check_trial(event, fields.get("trial"))
            if not self.state.takes(event, fields.get("trial")):
                return None
            line = encode({"event": event, "time": time.time(), **fields})
            self._write(line)
            # As a reader will see it: a tuple is a list from here on.
            written: Event = json.loads(line)
            del written["crc"]
            self.state.apply(written)
            for listener in self.listeners:
                listener(written)
            return written

    def _check_trial(self, event: str, trial: Any) -> None:
        if "trial" in EVENTS[event] and (event == "created") == (trial in self.state.trials):
            fault = "exists already" if event == "created" else "was never created"
            raise ValueError(f"ledger event '{event}': trial '{trial}' {fault}")

    def _write(self, line: bytes) -> None:
        try:
            # More than usual only if an earlier line could not be taken back.
            if os.fstat(self._file).st_size > self._size:
                os.ftruncate(self._file, self._size)
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            self._take_back()
            reason = error.strerror or str(error)
            raise OSError(error.errno, reason, str(self.path)) from error
        self._size += len(line)

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
        except OSError:
            pass  # tried again before the next line; until then it is a torn last line

    def _heal(self) -> list[Event]:
        """The events there are; a line cut short at the end is moved to a file beside."""
        data = self.path.read_bytes()
        content = parse(data)
        if content.damaged:
            raise InputError(str(self.path), [_damage(number) for number in content.damaged])
        self._size = content.whole
        if torn := data[content.whole :]:
            beside = _free_name(self.path)
            write_atomic(beside, torn)
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            self.warn(
                f"{self.path}: the last line was cut short ({len(torn)} bytes, kept in "
                f"{beside.name}); going on from the line before it"
            )
        return content.events


_CLOEXEC = getattr(os, "O_CLOEXEC", 0)


def read_events(path: Path, warn: Warn = print) -> list[Event]:
    """All whole events, for those who only look. Takes no lock, so a search may go on writing.

    A torn last line is left out and damaged lines are passed over, both with a warning.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        fault = "no such file; is this the folder of a run?"
        raise InputError(str(path), [fault]) from None
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    content = parse(data)
    for number in content.damaged:
        warn(f"{path}: {_damage(number, remedy=False)}; passed over")
    if torn := len(data) - content.whole:
        warn(f"{path}: the last line is not whole ({torn} bytes) and is left out")
    return content.events


def read_state(path: Path, warn: Warn = print) -> RunState:
    """What those events add up to."""
    return RunState.from_events(read_events(path, warn), warn)


@dataclass(frozen=True)
class Content:
    events: list[Event]
    whole: int  # bytes up to the end of the last line that is whole
    damaged: list[int]  # numbers of lines that are not what was written


def parse(data: bytes) -> Content:
    """Tell whole lines from a torn last one and from damaged ones.

    Every line was on disk before the next was begun, so a crash can tear the last one only.
    Anything else was done to the file later, and is damage.
    """
    *lines, rest = data.split(b"\n")
    events: list[Event] = []
    damaged: list[int] = []
    whole = position = 0
    for number, line in enumerate(lines, 1):
        position += len(line) + 1
        event = decode(line) if line.strip() else None
        if event is not None:
            events.append(event)
        elif line.strip():
            if not rest and number == len(lines):
                break  # with its newline, but not what was meant: torn as well
            damaged.append(number)
        whole = position
    torn = data[whole:]
    if not events and not damaged and torn[: len(HEAD)] != HEAD[: len(torn)]:
        damaged.append(1)  # never the beginning of a ledger; do not take it for an empty one
    return Content(events, whole, damaged)


def encode(event: Event) -> bytes:
    body = json.dumps(event, separators=(",", ":"), allow_nan=False).encode("ascii")
    return body[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(body)


def decode(line: bytes) -> Event | None:
    """The event of a line, or None if the line is not exactly what was written."""
    seal = SEAL.search(line)
    if seal is None:
        return None
    body = line[: seal.start()] + b"}"
    if zlib.crc32(body) != int(seal[1], 16):
        return None
    try:
        event = json.loads(body)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event and "time" in event else None


def faults_of(event: str, fields: dict[str, Any]) -> list[str]:
    """Why this cannot be written; empty if it can. Numbers must be finite, as JSON's are."""
    if event not in EVENTS:
        return [f"is not an event; {suggest(event, EVENTS)}"]
    faults = [f"'{name}' is missing" for name in EVENTS[event] if name not in fields]
    faults += [f"'{name}' is not for the caller" for name in ("event", "crc") if name in fields]
    if event == "evaluated":
        for name in ("examples", "score"):
            value = fields.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                faults.append(f"'{name}' must be a number, but is {value!r}")
    return faults + list(_unfit(fields, ""))


def _unfit(value: Any, where: str) -> Iterator[str]:
    """The places inside a value that JSON would refuse or change."""
    if isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                yield f"{where or 'a key'}: {key!r} must be text to be a key"
            else:
                yield from _unfit(entry, f"{where}.{key}" if where else key)
    elif isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            yield from _unfit(entry, f"{where}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"'{where}' is {value}, not a finite number"
    # NumPy's float64 is a float, but its other numbers and tensors are not.
    elif value is not None and not isinstance(value, (bool, int, float, str)):
        yield f"'{where}' is a {type(value).__name__}; only plain values can be written"


def _damage(number: int, remedy: bool = True) -> str:
    fault = f"line {number}: damaged (its checksum does not fit what it says)"
    if not remedy:
        return fault
    return f"{fault}; put back a copy of the file, or remove that line to go on without its event"


def _free_name(path: Path) -> Path:
    number = 0
    while (beside := path.with_name(f"{path.stem}.torn-{number}")).exists():
        number += 1
    return beside
