"""Trials that the ledger does not know: left when it was cut short, or put back from a copy."""

from __future__ import annotations

from pathlib import Path

from tuner.runs.folder import LEDGER, TRIALS
from tuner.runs.state import RunState, Warn

LOST = "lost"


def set_unknown_trials_aside(folder: Path, state: RunState, warn: Warn) -> None:
    """Move them out of the way, so that no new trial goes on from another one's checkpoints.

    A trial is in the ledger before it has a folder, so a crash leaves none of these.
    """
    unknown = unknown_trials(folder, state)
    for place in unknown:
        target = folder / LOST / place.name
        number = 0
        while target.exists():
            number += 1
            target = folder / LOST / f"{place.name}-{number}"
        target.parent.mkdir(exist_ok=True)
        place.rename(target)
    if unknown:
        names = ", ".join(place.name for place in unknown)
        warn(
            f"{folder / LEDGER}: does not know of {names}, so it was cut short or is an "
            f"older copy; their folders are in {LOST}/ now, and the search goes on without them"
        )


def unknown_trials(folder: Path, state: RunState) -> list[Path]:
    trials = folder / TRIALS
    if not trials.is_dir():
        return []
    return sorted(p for p in trials.iterdir() if p.is_dir() and p.name not in state.trials)
