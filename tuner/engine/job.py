"""What a worker is told about a trial."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """What an actor is told about a trial."""

    trial: str
    settings: dict[str, Any]
    tasks: str
    data: str | None
    out: str
    threads: int
    known: int = 0  # examples at the last evaluation that the ledger has

    def as_config(self) -> dict[str, Any]:
        return {"job": json.dumps(self.__dict__)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Job:
        return cls(**json.loads(config["job"]))
