"""A disk that may lose, tear and reorder whatever was not synced, and processes that die anywhere.

Real files in a folder, with the calls of a few modules passing through here. Each of them is a
moment at which a process can die; what it had not synced is then as the seed wants it: the end of
a file, a name that is new, a rename, a folder that was removed.
"""

from __future__ import annotations

import builtins
import errno
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import model.common.files
import model.common.untrusted
import tuner.runs.ledger
import tuner.runs.lock


class Crash(BaseException):
    """The process is dead from here on."""


@dataclass
class Change:
    """To the names in a folder; a crash before the folder is synced may undo it."""

    folder: str
    kind: str
    undo: Callable[[], None]


class Disk:
    """In place of the module `os`."""

    def __init__(self, rng: random.Random, told: Counter[str]) -> None:
        self.rng, self.told = rng, told
        self.files: dict[int, str] = {}  # handle -> path
        self.synced: dict[str, int] = {}  # file -> bytes that no crash can take
        self.changes: list[Change] = []  # in folders that were not synced since
        self.dies_in: int | None = None  # so many calls from now
        self.fails_in: int | None = None  # the next write or sync after so many
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Whoever only checks is no part of the history."""
        before, self.dies_in, self.dead = (self.dies_in, self.dead), None, False
        try:
            yield
        finally:
            self.dies_in, self.dead = before

    def _call(self) -> None:
        if self.dead:
            raise Crash
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.dies_in, self.dead = None, True
                self.told["driver killed"] += 1
                raise Crash

    def _may_fail(self) -> None:
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in < 0:
                self.fails_in = None
                number = self.rng.choice([errno.ENOSPC, errno.EIO])
                self.told["disk full" if number == errno.ENOSPC else "disk error"] += 1
                raise OSError(number, os.strerror(number))

    # --- files ------------------------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        self._call()
        new = bool(flags & os.O_CREAT) and not os.path.exists(path)
        handle = os.open(path, flags, mode)
        self._opened(handle, str(path), new)
        return handle

    def open_file(self, path: Any, mode: str = "r") -> Any:
        """In place of the builtin."""
        self._call()
        if isinstance(path, int):
            return builtins.open(path, mode)
        new = "w" in mode and not os.path.exists(path)
        if "w" in mode:
            self.synced[str(path)] = 0
        file = builtins.open(path, mode)
        self._opened(file.fileno(), str(path), new)
        return file

    def _opened(self, handle: int, path: str, new: bool) -> None:
        self.files[handle] = path
        if new:
            self._changed(path, "new file lost", lambda: Path(path).unlink(missing_ok=True))
        if path not in self.synced and os.path.isfile(path):
            self.synced[path] = os.fstat(handle).st_size

    def write(self, handle: int, data: Any) -> int:
        self._call()
        if self.fails_in == 0 and len(data) > 1:  # a part of it still fits
            os.write(handle, bytes(data)[: self.rng.randrange(len(data))])
        self._may_fail()
        if self.rng.random() < 0.2 and len(data) > 1:
            data = bytes(data)[: self.rng.randrange(1, len(data))]
        return os.write(handle, data)

    def pwrite(self, handle: int, data: Any, offset: int) -> int:
        self._call()
        self._may_fail()
        return os.pwrite(handle, data, offset)

    def fsync(self, handle: int) -> None:
        self._call()
        self._may_fail()
        path = self.files.get(handle, "")
        if not is_of(handle, path):  # closed since, and its number is another file's
            path = ""
        if os.path.isdir(path):
            self.changes = [change for change in self.changes if change.folder != path]
        elif path:
            self.synced[path] = os.fstat(handle).st_size
        self._call()

    def ftruncate(self, handle: int, size: int) -> None:
        self._call()
        os.ftruncate(handle, size)

    # --- names ------------------------------------------------------------------------------

    def _changed(self, path: str, kind: str, undo: Callable[[], None]) -> None:
        self.changes.append(Change(os.path.dirname(path), kind, undo))

    def replace(self, source: Any, target: Any) -> None:
        self._call()
        source, target = str(source), str(target)
        if os.path.isdir(source):
            self._changed(target, "rename lost", lambda: self._move(target, source))
        else:
            there = Path(target)
            before = there.read_bytes() if there.is_file() else None
            self._changed(target, "rename lost", lambda: self._put_back(there, before))
        os.replace(source, target)
        self._follow(source, target)
        self._call()

    rename = replace

    def _follow(self, source: str, target: str) -> None:
        """What of a file is synced stays so under its new name."""
        for path in [p for p in self.synced if p == source or p.startswith(f"{source}/")]:
            self.synced[target + path[len(source) :]] = self.synced.pop(path)

    def _move(self, target: str, source: str) -> None:
        if os.path.exists(target) and not os.path.exists(source):
            os.replace(target, source)

    def _put_back(self, path: Path, before: bytes | None) -> None:
        if before is None:
            path.unlink(missing_ok=True)
        elif path.parent.is_dir():
            path.write_bytes(before)
            self.synced[str(path)] = len(before)

    def rmtree(self, folder: Any, ignore_errors: bool = False) -> None:
        """In place of shutil's: who is dead cleans up nothing."""
        if self.dead or not os.path.isdir(folder):
            return
        root = Path(folder)
        files = {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}
        shutil.rmtree(root)

        def undo() -> None:
            kept = [file for file in files if self.rng.random() < 0.7]  # some were gone for good
            for file in kept if root.parent.is_dir() else []:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(files[file])

        self._changed(str(root), "removal lost", undo)

    # --- the end ----------------------------------------------------------------------------

    def crash(self) -> None:
        """The machine lost its power: keep what was synced, and of the rest what the seed says."""
        for path, synced in list(self.synced.items()):
            if not os.path.isfile(path) or (size := os.path.getsize(path)) <= synced:
                continue
            kept = self.rng.randint(synced, size)
            os.truncate(path, kept)
            how = "lost" if kept == synced else "torn"
            if kept > synced and self.rng.random() < 0.3:  # its blocks came in another order
                how = "reordered"
                start = self.rng.randrange(synced, kept)
                with builtins.open(path, "r+b") as file:
                    file.seek(start)
                    file.write(bytes(self.rng.randint(1, kept - start)))
            self.told[f"write {how}"] += 1
            self.synced[path] = kept
        for change in reversed(self.changes):  # each on its own: a later one may be there without
            if self.rng.random() < 0.5:
                change.undo()
                self.told[change.kind] += 1
        self.changes, self.dead, self.dies_in = [], False, None


class Shutil:
    def __init__(self, disk: Disk) -> None:
        self.rmtree = disk.rmtree

    def __getattr__(self, name: str) -> Any:
        return getattr(shutil, name)


def is_of(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


FILES = model.common.files
MODULES: tuple[ModuleType, ...] = (
    *(FILES, model.common.untrusted),
    *(tuner.runs.ledger, tuner.runs.lock),
)


@contextmanager
def in_place(disk: Disk) -> Iterator[None]:
    with ExitStack() as stack:
        for module in MODULES:
            stack.enter_context(mock.patch.object(module, "os", disk))
        stack.enter_context(mock.patch.object(FILES, "open", disk.open_file, create=True))
        stack.enter_context(mock.patch.object(FILES, "shutil", Shutil(disk)))
        yield
