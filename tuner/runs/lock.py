"""One driver per run: a lock file that says who holds it, and that outlives nobody.

The file names a process by host, pid and the time it started, so that a lock left by a crash is
recognised even when its pid belongs to someone else by now. Where the file system can, the file
is locked by the kernel as well: that sees processes of other containers and, on some network
file systems, of other hosts.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from model.common.errors import InputError

try:
    import fcntl
except ImportError:  # not on this system; the content of the file has to do
    fcntl = None  # type: ignore[assignment]

PATIENCE = 1.0  # seconds for another driver to write what it has just created


@dataclass(frozen=True)
class Holder:
    pid: int
    host: str
    started: str  # when the process did, in whatever unit the system has; compared, not read
    since: float  # unix seconds

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {when}"


class RunLock:
    """`with RunLock(run / "lock"):` or acquire and release. Raises InputError if it is held."""

    def __init__(self, path: Path, warn: Callable[[str], None] = print) -> None:
        self.path = Path(path)
        self.warn = warn
        self._file: int | None = None
        self._pid = 0

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
            except FileNotFoundError:
                continue  # released at this moment
            if self._move_away(content):
                left = f"by {holder}, which is gone" if holder else "by a crash"
                self.warn(f"{self.path}: a lock left {left}; taken over")

    def look(self) -> None:
        """Raise InputError if somebody holds it, without taking it."""
        with suppress(FileNotFoundError, NotADirectoryError):
            self._refuse_if_held(_parse(self._content()))

    def release(self) -> None:
        """Give it back. Does nothing twice, nor in a child that was forked while it was held."""
        if self._file is None:
            return
        file, self._file = self._file, None
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
                if _lock(file):
                    break
                time.sleep(0.01)  # someone is just looking whether it is locked
            pid = os.getpid()
            me = Holder(pid, socket.gethostname(), start_of(pid) or "", time.time())
            os.write(file, json.dumps(asdict(me)).encode() + b"\n")
            os.fsync(file)
        except BaseException:
            os.close(file)
            self.path.unlink(missing_ok=True)
            raise
        self._file, self._pid = file, pid
        return True

    def _content(self) -> bytes:
        """What the file says, after a moment if it was only just created."""
        deadline = time.monotonic() + PATIENCE
        while not (content := self.path.read_bytes()).endswith(b"\n"):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        return content

    def _refuse_if_held(self, holder: Holder | None) -> None:
        who = str(holder or "a process that did not say which")
        remedy = f"if you are sure that it is dead, remove {self.path}"
        here = holder is None or holder.host == socket.gethostname()
        if holder is not None and here and _is_alive(holder):
            fault = f"in use by {who}; wait for it, end it, or choose another name for the run"
        elif _is_locked(self.path):
            fault = f"in use by {who}, which cannot be seen from here but holds the lock; {remedy}"
        elif not here:
            fault = f"in use by {who}, or left there by it; that cannot be told from here: {remedy}"
        else:
            return
        raise InputError(str(self.path), [fault])

    def _move_away(self, stale: bytes) -> bool:
        """Remove the lock that was judged, and no other that took its place meanwhile."""
        aside = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}.old")
        try:
            file = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            # Of several that found it stale, only the one with the kernel's lock goes on.
            if not _lock(file) or not _same_file(file, self.path):
                return False
            os.rename(self.path, aside)
        except FileNotFoundError:
            return False
        finally:
            os.close(file)
        if aside.read_bytes() == stale:
            aside.unlink()
            return True
        os.rename(aside, self.path)  # where the kernel has no locks, somebody was quicker
        return False


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


def _parse(content: bytes) -> Holder | None:
    try:
        data = json.loads(content)
        return Holder(
            int(data["pid"]), str(data["host"]), str(data["started"]), float(data["since"])
        )
    except (ValueError, KeyError, TypeError):
        return None  # written by nobody, or not to the end


def _lock(file: int) -> bool:
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
        file = os.open(path, os.O_RDWR)
    except PermissionError:
        return True  # another user's
    try:
        return not _lock(file)
    finally:
        os.close(file)


def _same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False
