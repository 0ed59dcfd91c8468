"""One driver per run: a lock file that says who holds it, and that outlives nobody.

The file names a process by host, pid and the time it started, so that a lock left by a crash is
recognised even when its pid belongs to someone else by now. Where the file system can, the file
is locked by the kernel as well: that sees processes of other containers and, on some network
file systems, of other hosts. Where neither can tell, the file is a lease: its holder counts on in
it, and one that has not counted for a while is taken over. Its holder, should it only have slept,
finds another file in its place, and stops.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from model.common.errors import InputError
from model.common.untrusted import open_regular, parse_json, printable, read_regular, shown
from tuner.runs.folder import LOCK, read_run

try:
    import fcntl
except ImportError:  # not on this system; the content of the file has to do
    fcntl = None  # type: ignore[assignment]

PATIENCE = 1.0  # seconds for another driver to write what it has just created
BEAT = 10.0  # seconds from one count to the next
LEASE = 6 * BEAT  # seconds without one after which a driver that cannot be seen is gone
BEATS = "%010d"
MOST_BYTES = 4096


class Deposed(OSError):
    """The run belongs to another driver by now: this one must not write any more."""

    def __str__(self) -> str:
        return f"{super().__str__()}; this driver stops, and has changed nothing of the other's"


@dataclass(frozen=True)
class Holder:
    pid: int
    host: str
    started: str  # when the process did, in whatever unit the system has; compared, not read
    since: float  # unix seconds
    beat: str = ""  # how often it has counted on; always as long. Before version 0.2 none did

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {shown(self.host)} since {when}"


class RunLock:
    """`with RunLock(run / "lock"):` or acquire and release. Raises InputError if it is held."""

    def __init__(self, path: Path, warn: Callable[[str], None] = print) -> None:
        self.path = Path(path)
        self.warn = warn
        self._file: int | None = None
        self._pid = 0
        self.holder: Holder | None = None  # who that is, once it is held
        self._end = threading.Event()
        self._heart: threading.Thread | None = None

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def acquire(self) -> None:
        while not self._create():
            try:
                content = self._content()
                holder = _parse(content)
                self._refuse_if_held(holder)
                if holder is not None and not _is_here(holder):
                    self._wait_for_sign(holder, content)
            except FileNotFoundError:
                continue  # released at this moment
            if self._move_away(content):
                left = f"by {holder}, which is gone" if holder else "by a crash"
                self.warn(f"{self.path}: a lock left {left}; taken over")

    def look(self) -> None:
        """Raise InputError if somebody holds it, without taking it."""
        with suppress(FileNotFoundError, NotADirectoryError):
            self._refuse_if_held(_parse(self._content()))

    def check(self) -> None:
        """Raise `Deposed` if somebody has taken it over. One look at the file system."""
        if self._file is None:
            raise Deposed(f"{self.path}: the lock of this run is not held")
        if not _same_file(self._file, self.path) and os.path.exists(self.path.parent):
            raise Deposed(f"{self.path}: another driver has taken this run over")

    def release(self) -> None:
        """Give it back. Does nothing twice, nor in a child that was forked while it was held."""
        if self._file is None:
            return
        file, self._file = self._file, None
        if os.getpid() == self._pid and self._heart is not None:
            self._end.set()
            self._heart.join()
        try:
            if os.getpid() == self._pid and _same_file(file, self.path):
                self.path.unlink()
        finally:
            os.close(file)

    def _create(self) -> bool:
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        try:
            for _ in range(100):
                if lock_file(file):
                    break
                time.sleep(0.01)  # someone is just looking whether it is locked
            pid = os.getpid()
            me = Holder(pid, socket.gethostname(), start_of(pid) or "", time.time(), BEATS % 0)
            rest = memoryview(me.line())
            while rest:  # a part of it would be nobody's lock, and taken over at once
                rest = rest[os.write(file, rest) :]
            os.fsync(file)
        except BaseException:
            os.close(file)
            self.path.unlink(missing_ok=True)
            raise
        self._file, self._pid, self.holder = file, pid, me
        self._end.clear()
        self._heart = threading.Thread(target=self._count_on, daemon=True)
        self._heart.start()
        return True

    def _count_on(self) -> None:
        while not self._end.wait(BEAT):
            with suppress(OSError, TypeError):  # a disk that is away; released meanwhile
                self.beat()

    def beat(self) -> None:
        """Count on: a sign of life for those who cannot see this process."""
        assert self.holder is not None
        self.holder = replace(self.holder, beat=BEATS % (int(self.holder.beat) + 1))
        os.pwrite(self._file, self.holder.line(), 0)  # type: ignore[arg-type]
        os.fsync(self._file)  # type: ignore[arg-type]

    def _content(self) -> bytes:
        return content_of(self.path)

    def _refuse_if_held(self, holder: Holder | None) -> None:
        who = str(holder or "a process that did not say which")
        remedy = f"if you are sure that it is dead, remove {self.path}"
        here = holder is None or _is_here(holder)
        if holder is not None and here and _is_alive(holder):
            fault = f"in use by {who}; wait for it, end it, or choose another name for the run"
            if holder.pid != os.getpid() and not _is_locked(self.path) and fcntl is not None:
                fault = f"{fault}. If this folder is a copy of that run's, remove {self.path}"
        elif self._stays_locked():
            fault = f"in use by {who}, which cannot be seen from here but holds the lock; {remedy}"
        elif holder is not None and not here and not holder.beat:
            fault = f"in use by {who}, or left there by it; that cannot be told from here: {remedy}"
        else:
            return
        raise InputError(str(self.path), [fault])

    def _stays_locked(self) -> bool:
        """For longer than the threads of a killed process take to end, on a busy machine."""
        deadline = time.monotonic() + PATIENCE
        while _is_locked(self.path):
            if time.monotonic() > deadline:
                return True
            time.sleep(0.02)
        return False

    def _wait_for_sign(self, holder: Holder, content: bytes) -> None:
        """Of a process on another host or in another container, which counts on if it lives."""
        self.warn(f"{self.path}: left by {holder}? Waiting up to {LEASE:.0f} s for a sign of it")
        deadline = time.monotonic() + LEASE
        while time.monotonic() < deadline:
            time.sleep(min(1.0, LEASE / 20))
            if self._content() != content:
                fault = f"in use by {holder}, which is at work; wait for it, or end it there"
                raise InputError(str(self.path), [fault])

    def _move_away(self, stale: bytes) -> bool:
        """Remove the lock that was judged, and no other that took its place meanwhile."""
        aside = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}.old")
        try:
            file = open_regular(self.path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            # Of several that found it stale, only the one with the kernel's lock goes on.
            if not lock_file(file) or not _same_file(file, self.path):
                return False
            os.rename(self.path, aside)
        except FileNotFoundError:
            return False
        finally:
            os.close(file)
        if read_regular(aside, MOST_BYTES) == stale:
            aside.unlink()
            return True
        os.rename(aside, self.path)  # where the kernel has no locks, somebody was quicker
        return False


def check_holder(folder: Path, mine: Holder, epoch: int) -> None:
    """For a driver's workers, before they write: raise `Deposed` if the run is another's by now.

    Where nobody holds the lock, another driver may have come and gone meanwhile: then the run is
    not of this `epoch` any more.
    """
    path = folder / LOCK
    try:
        found = _parse(content_of(path))
    except FileNotFoundError:
        if read_run(folder)["epoch"] == epoch:
            return
        raise Deposed(f"{folder}: another driver has had this run meanwhile") from None
    if found is None or replace(found, beat=mine.beat) != mine:
        raise Deposed(f"{path}: another driver ({found or 'unknown'}) has taken this run over")


def content_of(path: Path) -> bytes:
    """What a lock says, after a moment if it was only just created."""
    deadline = time.monotonic() + PATIENCE
    while not (content := read_regular(path, MOST_BYTES)).endswith(b"\n"):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return content


def start_of(pid: int) -> str | None:
    """When a process of this host started; None if there is none (a zombie is none)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _start_by_ps(pid)
    state, *fields = stat.rpartition(b")")[2].split()  # the name before may hold anything
    return None if state in b"ZX" else f"{boot} {fields[18].decode()}"


def _start_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"  # nothing can be told; a lock is then taken for held
    return found.stdout.strip() or None


def _is_alive(holder: Holder) -> bool:
    started = start_of(holder.pid)
    return started is not None and started in (holder.started, "unknown")


def _is_here(holder: Holder) -> bool:
    return holder.host == socket.gethostname()


def _parse(content: bytes) -> Holder | None:
    try:
        data = parse_json(content)
        pid, host, started, since = (data[key] for key in ("pid", "host", "started", "since"))
    except (ValueError, KeyError, TypeError):
        return None  # written by nobody, or not to the end
    kinds = type(pid) is int and isinstance(host, str) and isinstance(started, str)
    if not kinds or not isinstance(since, (int, float)) or not 0 <= since < 1e11 or pid < 1:
        return None
    return Holder(pid, printable(host), started, float(since), str(data.get("beat", "")))


def lock_file(file: int) -> bool:
    """Lock an open file; True also where locks are not to be had."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_locked(path: Path) -> bool:
    try:
        file = open_regular(path, os.O_RDWR)
    except PermissionError:
        return True  # another user's
    try:
        return not lock_file(file)
    finally:
        os.close(file)


def _same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False
