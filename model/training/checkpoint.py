"""Checkpoints that appear whole or not at all, and are believed only after their sha256.

    checkpoints/step-00000300/
        manifest.json           sha256 of every other file
        model/                  an ordinary model folder
        state/                  what resuming needs besides: tensors.safetensors, state.json

The two youngest keep their state, so that a damaged one has a predecessor to fall back on;
of the older ones, only the model folders stay that are still the best of something, or of the last
few evaluations, whose average may be better than each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from model.common.errors import InputError
from model.common.files import (
    atomic_folder,
    remove_folder,
    remove_leftovers,
    sha256_of,
    write_atomic,
)
from model.common.untrusted import held, inside, read_json

MANIFEST = "manifest.json"
STATE, TENSORS = "state/state.json", "state/tensors.safetensors"
KEPT_STATES = 2
KEPT_MODELS = 3  # of the last evaluations
_NAME = re.compile(r"step-([0-9]{8,})")


class DamagedCheckpoint(Exception):
    """A checkpoint whose files are not what its manifest says."""


@dataclass(frozen=True)
class Restored:
    folder: Path
    state: dict[str, Any]
    tensors: dict[str, Tensor]


def checkpoint_name(step: int) -> str:
    return f"step-{step:08d}"


def save_checkpoint(
    folder: Path,
    *,
    write_model: Callable[[Path], None],
    tensors: dict[str, Tensor],
    state: dict[str, Any],
) -> None:
    """Fill the folder, sign it with a manifest, and let it appear under its name."""
    with atomic_folder(folder) as partial:
        write_model(partial / "model")
        (partial / "state").mkdir()
        contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, partial / TENSORS)
        (partial / STATE).write_text(json.dumps(state), encoding="utf-8")
        write_manifest(partial)
    # The run always goes on from the youngest that is whole, so a younger one is damaged, and
    # would count among those that keep their state.
    for other in checkpoints_in(folder.parent):
        if _step_of(other) > _step_of(folder):
            remove_folder(other)


def write_manifest(folder: Path) -> None:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    sums = {file.relative_to(folder).as_posix(): sha256_of(file) for file in files}
    write_atomic(folder / MANIFEST, json.dumps(sums, indent=1))


def verify(folder: Path, part: str = "") -> None:
    """Raise `DamagedCheckpoint`, naming the first fault, unless every file is as signed."""
    try:
        sums = read_json(folder / MANIFEST)
        if not isinstance(sums, dict):
            raise ValueError
        for name in sums:
            inside(folder, name)
    except (OSError, ValueError):  # InputError is one
        raise DamagedCheckpoint(f"{MANIFEST} is missing or not readable") from None
    for name, expected in sums.items():
        if not name.startswith(part):
            continue
        if not (folder / name).is_file():
            raise DamagedCheckpoint(f"{name} is missing")
        try:
            found = sha256_of(folder / name, links=False)
        except InputError as error:
            raise DamagedCheckpoint(f"{name} {error.faults[0]}") from None
        except OSError as error:
            raise DamagedCheckpoint(f"{name} cannot be read: {error.strerror}") from None
        if found != expected:
            raise DamagedCheckpoint(f"sha256 of {name} differs")


def checkpoints_in(folder: Path) -> list[Path]:
    """Oldest first. Unfinished and removed ones start with a dot and do not count."""
    if not folder.is_dir():
        return []
    return sorted(
        (place for place in folder.iterdir() if is_checkpoint(place.name)),
        key=_step_of,
    )


def is_checkpoint(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _step_of(place: Path) -> int:
    return int(place.name.removeprefix("step-"))


def load_latest(folder: Path, warn: Callable[[str], None]) -> Restored | None:
    """The youngest checkpoint that verifies; damaged ones are named and passed over."""
    candidates = checkpoints_in(folder)
    while len(candidates) > 1 and not (candidates[0] / "state").is_dir():
        candidates.pop(0)  # kept for its model only
    for number, place in enumerate(reversed(candidates), start=1):
        try:
            return _restore(place)
        except DamagedCheckpoint as fault:
            older = candidates[-number - 1].name if number < len(candidates) else "the start"
            warn(f"checkpoint {place.name} is damaged ({fault}); using {older}")
    return None


def _restore(folder: Path) -> Restored:
    verify(folder)
    for name in (STATE, TENSORS):
        if not (folder / name).is_file():  # nor was it signed
            raise DamagedCheckpoint(f"{name} is missing")
    state = read_json(folder / STATE, finite=False)  # a norm of gradients may be infinite
    with held(folder / TENSORS) as tensors:
        return Restored(folder, state, load_file(tensors))


def prune(folder: Path, keep_models: Iterable[str]) -> None:
    """Drop old states, and models that are no longer the best of anything."""
    wanted = set(keep_models)
    present = checkpoints_in(folder)
    with_state = [place for place in present if (place / "state").is_dir()]
    for place in present:
        if place in with_state[-KEPT_STATES:]:
            continue
        if place.name in wanted:
            remove_folder(place / "state")
        else:
            remove_folder(place)


def clean_leftovers(out: Path) -> None:
    """Remove what a killed run left half-written. Only in places that are a run's own."""
    places = [out, out / "predictions", out / "checkpoints", *checkpoints_in(out / "checkpoints")]
    remove_leftovers(places)
