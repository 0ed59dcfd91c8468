"""A disk that may lose, tear and reorder whatever was not synced, and processes that die anywhere.

Real files in a folder, with the calls of a few modules passing through here. Each of them is a
moment at which a process can die; what it had not synced is then as the seed wants it.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import model.common.files
import model.common.untrusted
import tuner.runs.ledger


class Crash(BaseException):
    """The process is dead from here on."""


class Disk:
    """In place of the module `os`."""

    def __init__(self, rng: random.Random, told: Counter[str]) -> None:
        self.rng, self.told = rng, told
        self.files: dict[int, str] = {}  # handle -> path
        self.synced: dict[str, int] = {}  # file -> bytes that no crash can take
        self.names: set[str] = set()  # files whose folder was not synced since they were made
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

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        self._call()
        new = bool(flags & os.O_CREAT) and not os.path.exists(path)
        handle = os.open(path, flags, mode)
        self.files[handle] = str(path)
        if new:
            self.names.add(str(path))
        if str(path) not in self.synced and os.path.isfile(path):
            self.synced[str(path)] = os.fstat(handle).st_size
        return handle

    def write(self, handle: int, data: Any) -> int:
        self._call()
        if self.fails_in == 0 and len(data) > 1:  # a part of it still fits
            os.write(handle, bytes(data)[: self.rng.randrange(len(data))])
        self._may_fail()
        if self.rng.random() < 0.2 and len(data) > 1:
            data = bytes(data)[: self.rng.randrange(1, len(data))]
        return os.write(handle, data)

    def fsync(self, handle: int) -> None:
        self._call()
        self._may_fail()
        path = self.files.get(handle, "")
        if not is_of(handle, path):  # closed since, and its number is another file's
            path = ""
        if os.path.isdir(path):
            self.names = {name for name in self.names if os.path.dirname(name) != path}
        elif path:
            self.synced[path] = os.fstat(handle).st_size
        self._call()

    def ftruncate(self, handle: int, size: int) -> None:
        self._call()
        os.ftruncate(handle, size)

    def replace(self, source: Any, target: Any) -> None:
        self._call()
        os.replace(source, target)
        self._call()

    def crash(self) -> None:
        """The machine lost its power: keep what was synced, and of the rest what the seed says."""
        for path, synced in self.synced.items():
            if not os.path.exists(path) or (size := os.path.getsize(path)) <= synced:
                continue
            kept = self.rng.randint(synced, size)
            os.truncate(path, kept)
            how = "lost" if kept == synced else "torn"
            if kept > synced and self.rng.random() < 0.3:  # its blocks came in another order
                how = "reordered"
                start = self.rng.randrange(synced, kept)
                with open(path, "r+b") as file:
                    file.seek(start)
                    file.write(bytes(self.rng.randint(1, kept - start)))
            self.told[f"write {how}"] += 1
            self.synced[path] = kept
        for name in sorted(self.names):
            if self.rng.random() < 0.5 and os.path.exists(name):
                os.unlink(name)
                self.told["new file lost"] += 1
        self.names, self.dead, self.dies_in = set(), False, None


def is_of(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


MODULES: tuple[ModuleType, ...] = (model.common.files, model.common.untrusted, tuner.runs.ledger)


@contextmanager
def in_place(disk: Disk) -> Iterator[None]:
    with ExitStack() as stack:
        for module in MODULES:
            stack.enter_context(mock.patch.object(module, "os", disk))
        yield
