"""A side in a process of its own, so that none of them lives on another's settings."""

from __future__ import annotations

import atexit
import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from .measure import THREADS


def _serve(pipe: Connection, make: Callable[..., Any], given: Any, named: Any) -> None:
    torch.set_num_threads(THREADS)
    side = make(*given, **named)
    pipe.send(None)
    with suppress(EOFError):  # whoever asked is done
        while True:
            method, arguments = pipe.recv()
            pipe.send(getattr(side, method)(*arguments))


class Apart:
    """Makes the side there and calls its methods; between calls it sleeps."""

    def __init__(self, make: Callable[..., Any], *given: Any, **named: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, make, given, named), daemon=True
        )
        self._process.start()
        atexit.register(self._end)
        theirs.close()  # so that a side that dies is an error here and not a wait
        self._pipe.recv()

    def _end(self) -> None:
        """In good order: what is merely ended leaves locks behind."""
        self._pipe.close()
        self._process.join(timeout=10)

    def call(self, method: str, *arguments: Any) -> Any:
        self._pipe.send((method, arguments))
        return self._pipe.recv()
