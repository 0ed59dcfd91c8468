"""The moments at which a process begins, ends or renames a file: it counts them, or dies at one."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
DRAWN = re.compile(r"(?<=[.])[0-9a-f]{8}(?=[.](tmp|old))|[0-9]+")
CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.truncate"}


class FatalPoints:
    """`fatal`: the number of the moment to die at, or its name, at which it dies the first time."""

    def __init__(self, fatal: int | str | None) -> None:
        self.fatal = fatal
        self.names: list[str] = []

    @property
    def count(self) -> int:
        return len(self.names)

    def reached(self, name: str) -> None:
        self.names.append(name)
        if self.fatal in (self.count, name):
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """For good: only in a process that is about to end."""
        sys.addaudithook(self.heard)
        sync = os.fsync

        def fsync(file: Any) -> None:
            self.reached("before fsync")
            sync(file)
            self.reached("after fsync")

        os.fsync = fsync

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & WRITING:
            self.reached(f"open {Path(str(args[0])).name}")
        elif event in CHANGES:
            self.reached(event)


class PointsOfFolder(FatalPoints):
    """Those of files in one folder, each named by what it is: 'write .report.html.#.tmp 1'.

    Numbers and what is drawn at random are left out of the names; the last is how often it came.
    """

    def __init__(self, folder: Path, fatal: str | None) -> None:
        super().__init__(fatal)
        self.inside = f"{folder}/"
        self.armed = True

    def install(self) -> None:
        sys.addaudithook(self.heard)

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.armed or event not in CHANGES and event != "open":
            return
        place = str(args[0])
        name = place.removeprefix(self.inside)
        if name == place or name.lstrip(".").startswith("lock"):  # which is written by the clock
            return
        if event == "open":
            event = "write" if isinstance(args[2], int) and args[2] & WRITING else "read"
        kind = f"{event} {DRAWN.sub('#', name)}"
        self.reached(f"{kind} {1 + sum(n.rpartition(' ')[0] == kind for n in self.names)}")


def forked(work: Callable[[int], None]) -> bytes:
    """What a child process writes to its pipe before it ends, or is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            work(writer)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL), said
    return said
