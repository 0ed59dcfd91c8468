"""What Ctrl-C, SIGTERM and a closed terminal do to a search."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from tuner.engine.engine import INTERRUPTED, Engine

# The last one comes when a terminal or an SSH session is closed.
NUMBERS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


class Signals:
    """While trials run they drain, and a second one ends at once, as every other time the first."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.ending = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.engine is None or self.engine.draining:
            self.ending = True
            raise KeyboardInterrupt
        self.engine.drain(INTERRUPTED)

    def hold(self) -> None:
        with suppress(ValueError):  # not the main thread: whoever called has the signals
            for number in NUMBERS:
                if signal.getsignal(number) != signal.SIG_IGN:  # as nohup wants it
                    signal.signal(number, self.handle)
        self.raise_if_interrupted()

    def raise_if_interrupted(self) -> None:
        """What is raised by a handler goes under where Python was just in a destructor or a weak
        reference's callback; so whatever takes long asks here now and then."""
        if self.ending:
            raise KeyboardInterrupt

    @contextmanager
    def draining(self, engine: Engine) -> Iterator[None]:
        self.engine = engine
        try:
            yield
        finally:
            self.engine = None


@contextmanager
def signals() -> Iterator[Signals]:
    """Both are held from here on; `hold` again after ray.init, which has its own."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    told = sys.unraisablehook
    stop_signals = Signals()
    stop_signals.hold()
    # What goes under is noticed later, and nobody needs to see its traceback.
    sys.unraisablehook = lambda gone: None if gone.exc_type is KeyboardInterrupt else told(gone)
    try:
        yield stop_signals
    except SystemExit:  # Ray's answer to SIGTERM while it starts
        raise KeyboardInterrupt from None
    finally:
        sys.unraisablehook = told
        with suppress(ValueError):
            for number, handler in before.items():
                if handler is not None:  # else not Python's to put back
                    signal.signal(number, handler)
