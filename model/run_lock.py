"""Whose folder it is: never someone else's files, never two runs in one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model.checkpoint import is_leftover
from model.errors import InputError

try:
    import fcntl
except ImportError:  # not on this system: the check of the folder's content has to do
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
OURS = {
    *("config.yaml", "metrics.jsonl", "predictions", "checkpoints", "model", "summary.json"),
    LOCK,
}
CURVES = "events.out.tfevents."  # TensorBoard's files, which a search puts beside a trial's own


def check_folder(out: Path, *, resume: bool) -> None:
    """Refuse a folder that is used, or that holds anything but a run."""
    if (out / "config.yaml").exists():
        if not resume:
            fault = "holds a run already; go on with --resume, or choose another folder"
            raise InputError(str(out), [fault])
    elif out.exists():
        if not out.is_dir():
            raise InputError(str(out), ["is a file; choose another place for the run's folder"])
        strange = [
            place.name
            for place in out.iterdir()
            if not (place.name in OURS or place.name.startswith(CURVES) or is_leftover(place))
        ]
        # These come after config.yaml, so without it they are not a run's.
        strange += [name for name in ("model", "checkpoints") if (out / name).exists()]
        if strange:
            fault = f"is not empty and not a run's folder (it has {', '.join(sorted(strange)[:3])})"
            raise InputError(str(out), [f"{fault}; choose another"])


@contextmanager
def hold(out: Path) -> Iterator[None]:
    """Make the folder, and keep other runs out of it for as long as this one works in it."""
    out.mkdir(parents=True, exist_ok=True)
    handle = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fault = "another process is working in this folder; wait for it, or end it"
                raise InputError(str(out), [fault]) from None
            except OSError:
                pass  # a file system without locks
        yield
    finally:
        os.close(handle)
