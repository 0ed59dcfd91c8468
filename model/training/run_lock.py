"""Whose folder it is: never someone else's files, never two runs in one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model.common.errors import InputError
from model.common.files import is_leftover
from model.common.locks import file_lock
from model.common.run_files import CONFIG, CURVES, METRICS, SUMMARY

LOCK = ".lock"
OURS = {
    *(CONFIG, METRICS, "predictions", "checkpoints", "model", SUMMARY),
    LOCK,
}


class FolderInUse(InputError):
    """By another process; it may be free a while later."""


def check_folder(out: Path, *, resume: bool) -> None:
    """Refuse a folder that is used, or that holds anything but a run."""
    if (out / CONFIG).exists():
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
def hold(out: Path, *, known: bool = False) -> Iterator[None]:
    """Make the folder, and keep other runs out of it for as long as this one works in it.

    One that was `known` a moment ago and went away, with all above it, is not made anew.
    """
    out.mkdir(parents=not known, exist_ok=True)
    with file_lock(out / LOCK) as taken:
        if taken is False:
            fault = "another process is working in this folder; wait for it, or end it"
            raise FolderInUse(str(out), [fault])
        yield
