"""Trials that the ledger does not know: left when it was cut short, or put back from a copy."""

from __future__ import annotations

from pathlib import Path

from tuner.run_state import RunState, Warn

LOST = "lost"


def set_strays_aside(folder: Path, state: RunState, warn: Warn) -> None:
    """Move them out of the way, so that no new trial goes on from another one's checkpoints.

    A trial is in the ledger before it has a folder, so a crash leaves none of these.
    """
    strays = stray_trials(folder, state)
    for place in strays:
        target = folder / LOST / place.name
        number = 0
        while target.exists():
            number += 1
            target = folder / LOST / f"{place.name}-{number}"
        target.parent.mkdir(exist_ok=True)
        place.rename(target)
    if strays:
        names = ", ".join(place.name for place in strays)
        warn(
            f"{folder / 'ledger.jsonl'}: does not know of {names}, so it was cut short or is an "
            f"older copy; their folders are in {LOST}/ now, and the search goes on without them"
        )


def stray_trials(folder: Path, state: RunState) -> list[Path]:
    trials = folder / "trials"
    if not trials.is_dir():
        return []
    return sorted(p for p in trials.iterdir() if p.is_dir() and p.name not in state.trials)
