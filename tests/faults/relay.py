"""A line to a server of this machine that can be cut and mended."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress


class Relay:
    """Passes on what comes to its port. Cut, it refuses everybody, and hangs up on all."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._lines: set[socket.socket] = set()
        self.mend()

    def mend(self) -> None:
        self._door = socket.create_server(("127.0.0.1", self.port))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._answer, args=(self._door,), daemon=True).start()

    def cut(self) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in accept
        self._door.close()
        for line in list(self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _answer(self, door: socket.socket) -> None:
        while True:
            try:
                caller, _ = door.accept()
            except OSError:
                return  # cut
            threading.Thread(target=self._pass_on, args=(caller,), daemon=True).start()

    def _pass_on(self, caller: socket.socket) -> None:
        with caller, socket.create_connection(("127.0.0.1", self.target)) as server:
            self._lines |= {caller, server}
            other = {caller: server, server: caller}
            with suppress(OSError):
                while True:
                    ready, _, _ = select.select(list(other), [], [])
                    for end in ready:
                        if not (data := end.recv(1 << 16)):
                            return
                        other[end].sendall(data)
