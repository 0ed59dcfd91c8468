"""A thread that keeps storage up to the driver's folder, seconds behind it."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.common.run_files import CURVES
from model.common.secrets import brief
from model.common.untrusted import parse_json, printable, read_regular
from tuner.runs.folder import JOURNAL, LEDGER, LOCK, RUN, SPACE, TEACHER, TEACHER_TEXTS, TRIALS
from tuner.runs.ledger import MOST_BYTES, parse
from tuner.runs.storage.fence import FencedFile, Superseded
from tuner.runs.storage.storage import Storage, StorageLost

DELAY = 2.0  # seconds that storage may be behind
BEAT = 10.0  # seconds between signs of life
ALIVE = "driver.json"
SMALL = (SPACE, JOURNAL, TEACHER, TEACHER_TEXTS)


class Mirror:
    """The sign of life and the ledger are written under the condition that nobody else has (see
    `tuner.runs.storage.fence`); all else only after that was proved. Whoever finds that another
    driver has the run writes nothing more."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self.patient, self.hurried = storage, replace(storage, hurried=True)
        self.folder = folder
        self.trouble: str | None = None
        self.deposed = False
        self._sign = FencedFile(storage, ALIVE)
        self._ledger = FencedFile(storage, LEDGER)
        self._claimed = False
        self._sent: dict[str, tuple[int, int]] = {}
        self._removals: list[str] = []
        self._listing = threading.Lock()
        self._working = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._who: dict[str, Any] = {}
        self._beats = 0

    @property
    def storage(self) -> Storage:
        """Storage that was waited for in vain is not waited for again: the search stops."""
        return self.patient if self.trouble is None else self.hurried

    def claim(self, who: dict[str, Any], aside: bytes = b"") -> None:
        """From now on the run in storage is this driver's. Raises `Superseded` if another one took
        it since it was looked at, and StorageLost.

        `aside` is what was cut off the ledger here when it was opened: storage may still have it.
        """
        self._who = who
        if (sign := self._sign.read()) != self.patient.judged:
            raise Superseded(f"another driver has just begun with {self.patient.shown}")
        there, here = self._ledger.read() or b"", self._local_ledger()
        if not (here + aside).startswith(there) and not is_signed(sign, here, there):
            raise Superseded(f"another driver has gone on with {self.patient.shown}")
        self._beat()
        self._claimed = True

    def _local_ledger(self) -> bytes:
        try:
            return read_regular(self.folder / LEDGER, MOST_BYTES)
        except FileNotFoundError:
            return b""

    def start(self, who: dict[str, Any], aside: bytes = b"") -> None:
        self.claim(who, aside)
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    def remove(self, paths: list[str]) -> None:
        """To go from storage after the ledger as it is now has come there."""
        with self._listing:
            self._removals = self._removals + paths

    def abandon(self) -> None:
        """The run is another driver's: nothing of it is written any more."""
        self.deposed = True
        self._end.set()

    def _run(self) -> None:
        turns = max(1, round(BEAT / DELAY))
        turn = 0
        while not self._end.is_set():
            try:
                if turn % turns == 0:
                    with self._working:
                        self._beat()
                self.settle()
            except Superseded as error:
                self.trouble = str(error)
                self.abandon()
            except StorageLost as error:
                self.trouble = str(error)
            except Exception as error:  # as a file that went, or is none any more
                self.trouble = brief(f"{self.folder}: {error}")
            turn += 1
            self._end.wait(DELAY)

    def _beat(self, **more: Any) -> None:
        """A sign of life, and the proof that the run is still this driver's."""
        sign = {**self._who, "beat": self._beats + 1, **more}
        self._sign.write(json.dumps(sign).encode(), hurried=self.trouble is not None)
        self._beats += 1

    def settle(self) -> None:
        """Now: the small files, then the ledger, then what is to go.

        The request knows the epoch of the last driver, and a ledger that does not is taken for an
        older copy: so it follows the ledger, but for the first time, as without it there is no run.
        """
        with self._working:
            if self.deposed:
                return
            if not self._claimed:
                self.claim(self._who)
            with self._listing:  # what comes later waits for a later ledger
                going, self._removals = self._removals, []
            try:
                names = [name for name in (*SMALL, RUN, LEDGER) if (self.folder / name).is_file()]
                changed = self._changed(names)
                if changed or going:
                    # A successor first claims the sign, and writes the ledger only later.
                    self._beat()
                self._send([name for name in changed if name in SMALL])
                request = self._request() if RUN in changed else None
                if request and self._ledger.tag is None:
                    self._send_request(*request)
                self._send_ledger()
                if request:
                    self._send_request(*request)
                self.storage.remove(going)
            except Exception:
                self.remove(going)
                raise

    def _send_ledger(self) -> None:
        """Its whole lines: the last one may be under way."""
        if self._changed([LEDGER] if (self.folder / LEDGER).is_file() else []):
            seen, content = self._seen(LEDGER), self._local_ledger()
            whole = content[: content.rfind(b"\n") + 1]
            try:
                self._ledger.write(whole, hurried=self.trouble is not None)
            except Superseded:
                # A write of the driver before may have been under way for long, and come after
                # the claim. Whoever has the sign of life is right, and writes over it.
                self._beat()
                self._ledger.read()
                self._ledger.write(whole, hurried=self.trouble is not None)
            self._sent[LEDGER] = seen

    def _request(self) -> tuple[bytes, tuple[int, int]]:
        """As it is now: a ledger that is read later knows of all drivers that it knows of."""
        seen = self._seen(RUN)
        return read_regular(self.folder / RUN), seen

    def _send_request(self, content: bytes, seen: tuple[int, int]) -> None:
        if self._sent.get(RUN) != seen:
            self.storage.write(RUN, content)
            self._sent[RUN] = seen

    def _seen(self, name: str) -> tuple[int, int]:
        status = (self.folder / name).stat()
        return status.st_size, status.st_mtime_ns

    def _changed(self, names: list[str]) -> list[str]:
        return [name for name in names if self._sent.get(name) != self._seen(name)]

    def _send(self, names: list[str]) -> None:
        for name in self._changed(names):
            seen = self._seen(name)
            self.storage.put(self.folder / name, name)
            self._sent[name] = seen

    def close(self) -> str | None:
        """Everything that the driver wrote. What went wrong, if anything did."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        if self.deposed:
            return self.trouble or "another driver has this run by now"
        try:
            self.settle()
            with self._working:
                for name in self._changed([name for name in self._everything() if name != LEDGER]):
                    self._beat()  # these are written without a condition, and may take long
                    self._send([name])
                self._sign_off()
        except StorageLost as error:
            return str(error)
        except Exception as error:
            return brief(f"{self.folder}: {error}")
        return None

    def _sign_off(self) -> None:
        """The sign stays, as it can be written under a condition, and not everywhere removed."""
        self._beat(ended=True)

    def _everything(self) -> list[str]:
        """But what came from storage, and what is of no use elsewhere."""
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        names = [file.relative_to(self.folder).as_posix() for file in files]
        return [name for name in names if is_ours(name)]


def is_ours(name: str) -> bool:
    parts = name.split("/")
    if any(part.startswith(".") for part in parts) or name == LOCK:
        return False
    return parts[0] != TRIALS or parts[-1].startswith(CURVES)


def read_sign(content: bytes | None) -> dict[str, Any] | None:
    """Who a sign of life is of; None if there is none, or nobody's."""
    try:
        found = parse_json(content or b"")
        return {
            "host": printable(str(found["host"])),
            "pid": int(found["pid"]),
            "driver": printable(str(found.get("driver", ""))),
            "ended": bool(found.get("ended")),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_over(sign: bytes | None) -> bool:
    """Whether the last driver has left, and said so."""
    found = read_sign(sign)
    return sign is None or (found is not None and found["ended"])


def is_signed(sign: bytes | None, here: bytes, there: bytes) -> bool:
    """Of two ledgers that part: whether the one here goes on with the driver whose sign of life
    storage has. Then it is right, and what else came there came late."""
    known, ours, theirs = read_sign(sign), parse(here).events, parse(there).events
    parting = next((n for n, e in enumerate(ours) if theirs[n : n + 1] != [e]), None)
    if known is None or not known["driver"] or parting is None:
        return False
    goes_on = ours[parting]
    return bool(goes_on["event"] == "run" and goes_on.get("driver") == known["driver"])


def check_driver(storage: Storage) -> None:
    """Before a trial writes: raise `Superseded` if the run is another driver's by now."""
    if not storage.driver:
        return
    sign = read_sign(storage.read(ALIVE))
    if sign is not None and sign["driver"] != storage.driver:
        who = f"process {sign['pid']} on {sign['host']}"
        raise Superseded(f"{storage.shown} is in the hands of another driver ({who}) by now")
