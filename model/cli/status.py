"""What is being done, as a line at the bottom of the terminal that moves for as long as it lasts,
or as one plain line in a log.

Imports, the start of Ray or a long evaluation say nothing by themselves, so a thread draws. It
goes to stderr, where it is in nobody's way: what a command prints may go on into another program.
Whoever else writes to the terminal meanwhile does it within `apart()`.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock, Thread

from model.cli.text import clock, one_line, say

TICK = 0.25  # seconds between two drawings
SPINNER = "|/-\\"

Text = Callable[[], str | None]  # what is being done now; None: nothing that is worth a line


class Status:
    def __init__(self) -> None:
        self.lock = RLock()
        self.phases: list[tuple[Text, float]] = []  # the last one is shown
        self.thread: Thread | None = None
        self.shown = False
        self.ticks = 0

    @contextmanager
    def doing(self, text: str | Text, quiet: bool = False) -> Iterator[None]:
        told = (lambda: text) if isinstance(text, str) else text
        if quiet or not on_terminal():
            if not quiet and (line := told()) is not None:
                say(one_line(line), sys.stderr)
            yield
            return
        phase = (told, time.monotonic())
        with self.lock:
            self.phases.append(phase)
            if self.thread is None:
                self.thread = Thread(target=self._run, daemon=True)
                self.thread.start()
        try:
            yield
        finally:
            with self.lock:
                self.phases.remove(phase)
                self._erase()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """The terminal without the line, for whoever else writes to it."""
        with self.lock:
            self._erase()
            yield

    def _run(self) -> None:
        while True:
            time.sleep(TICK)
            with self.lock:
                if not self.phases:
                    self.thread = None
                    return
                self._draw()

    def _draw(self) -> None:
        told, began = self.phases[-1]
        text = told()
        if text is None:
            return self._erase()
        self.ticks += 1
        sign = SPINNER[self.ticks % len(SPINNER)]
        line = f"{sign} {one_line(text)}  {clock(time.monotonic() - began)}"
        self._write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        self.shown = True

    def _erase(self) -> None:
        if self.shown:
            self._write("\r\x1b[K")
            self.shown = False

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # a terminal that has gone
            pass


def on_terminal() -> bool:
    return os.environ.get("TERM", "dumb") != "dumb" and sys.stderr.isatty()


status = Status()
doing, apart = status.doing, status.apart


def warn(line: str) -> None:
    """To whoever is there, not into what a command prints for other programs."""
    with apart():
        say(line, sys.stderr)
