"""A search that is held at exact moments, so that no test comes too late on a busy machine.

The driver stops itself (SIGSTOP) right after it has written an event to its ledger. What runs is
then still running, and stays so until the test has the driver go on.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from tuner.runs.ledger import Ledger


@dataclass
class Moment:
    event: str | None = None  # None: any
    trial: str | None = None  # None: any
    nth: int = 1  # such event of this start

    def comes(self, event: str, fields: dict[str, Any]) -> bool:
        if self.event in (None, event) and self.trial in (None, fields.get("trial")):
            self.nth -= 1
            return self.nth == 0
        return False


def hold_at(*moments: Moment) -> None:
    append = Ledger.append
    # Whoever runs the tests in the background has Ctrl-C ignored, and what they start too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def held(ledger: Ledger, event: str, **fields: Any) -> Any:
        written = append(ledger, event, **fields)
        if any([moment.comes(event, fields) for moment in moments]):  # each of them counts
            os.kill(os.getpid(), signal.SIGSTOP)
        return written

    Ledger.append = held  # type: ignore[method-assign]


def is_held(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
