"""Work in a process of its own that has all imports already: what takes longest of all."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from tempfile import TemporaryFile

from tests.shared_ray import SHARED_RAY


class Fork:
    """Work in a fork of this process, in a session of its own, and used as a `Popen` is.

    Not for work with Ray. What it prints is heard once it has ended.
    """

    def __init__(self, work: Callable[[], int]) -> None:
        # A fork that so much as asks Ray for something over its parent's connection waits for ever.
        SHARED_RAY.stop()
        self.said = TemporaryFile("w+", encoding="utf-8")
        self.text = ""
        self.returncode: int | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there may be threads
            self.pid = os.fork()
        if self.pid == 0:
            self._work(work)

    def _work(self, work: Callable[[], int]) -> None:
        code = 1
        try:
            os.setsid()
            # Whoever runs the tests in the background has Ctrl-C ignored, and what they start too.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with redirect_stdout(self.said), redirect_stderr(self.said):
                code = work()
        except BaseException:
            traceback.print_exc(file=self.said)
        finally:
            self.said.flush()
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def communicate(self, timeout: float = 600) -> tuple[str, None]:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.02)
        if not self.said.closed:
            with self.said:
                self.said.seek(0)
                self.text = self.said.read()
        return self.text, None

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
