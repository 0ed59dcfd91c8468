"""Telling what failed: the trial's own doing, or the machine under it."""

from __future__ import annotations

import time
from typing import Any

from ray.exceptions import RayActorError
from ray.tune.experiment import Trial

from model.common.secrets import brief, redact


class SearchRayTrial(Trial):
    """Ray's record of a trial that never retries by itself: the search decides, from the ledger.

    Stock Ray counts a lost machine like a bug, and retries a bug like a lost machine.
    """

    failure: dict[str, str] | None = None

    def handle_error(self, exc: Any = None) -> None:
        self.failure = classify(exc)

    def should_recover(self) -> bool:
        return False

    def update_last_result(self, result: dict[str, Any]) -> None:
        """Without Ray's averages of every number in it, which take more room than the result."""
        self.run_metadata.last_result = result
        self.run_metadata.last_result_time = time.time()

    def get_json_state(self) -> tuple[str, str]:
        """Nothing: it is for a restore by Ray, and a search goes on from its ledger."""
        return "{}", "{}"


def classify(error: Any) -> dict[str, str]:
    """An actor that died is infrastructure, unless it could not even be set up."""
    from tuner.ray_backend.trainable import WorkerUnfit

    if isinstance(error, WorkerUnfit):
        return {"kind": "infrastructure", "reason": brief(str(getattr(error, "cause", error)))}
    lost = isinstance(error, RayActorError) and not getattr(error, "actor_init_failed", False)
    text = brief(str(error))
    if lost and "out of memory" in text.lower():  # Ray's memory monitor ended the worker
        return {"kind": "memory", "reason": text, "traceback": ""}
    if lost:
        return {"kind": "infrastructure", "reason": f"its worker died: {text}"}
    return {"kind": "code", "reason": text, "traceback": redact(str(error))}
