"""What the driver's machine has and the trials need: data, an encoder's folder, a task file.

Each is packed once and put into Ray's object store, which brings it to every node once; there it is
unpacked once, under the sum of its content, and shared by all trials of the node.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.common.files import atomic_folder, size_of
from model.common.locks import file_lock
from model.common.private import private_folder
from model.tasks.task_set import split_origin
from tuner.runs.request import PATHS

if TYPE_CHECKING:
    from tuner.engine.job import Job

LARGEST = 1 << 30  # bytes; what is larger must be on every node already
PATIENCE = 600.0  # seconds for another trial of the node to unpack it


@dataclass(frozen=True)
class StagedInput:
    path: str  # as the driver knows it
    sum: str
    content: bytes


def pack(paths: Iterable[str]) -> tuple[dict[str, StagedInput], list[str]]:
    """path -> its content; and the paths that are too large for one."""
    staged, large = {}, []
    for path in dict.fromkeys(paths):
        if is_large(path):
            large.append(path)
        else:
            staged[path] = pack_one(path)
    return staged, large


def is_large(path: str) -> bool:
    return size_of(Path(path)) > LARGEST


def pack_one(path: str) -> StagedInput:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(path, Path(path).name, filter=without_owner)
    content = buffer.getvalue()
    return StagedInput(path, hashlib.sha256(content).hexdigest(), content)


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same content makes the same bytes, whoever owns it since when."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def unpack(given: StagedInput, store: Path | None = None) -> Path:
    """Where its content is on this node; unpacked by whoever comes first."""
    store = store or private_folder("stockpot-inputs")
    store.mkdir(mode=0o700, exist_ok=True)
    place = store / given.sum
    with file_lock(store / f"{given.sum}.lock", PATIENCE):
        if not place.exists():
            with atomic_folder(place) as partial:
                with tarfile.open(fileobj=io.BytesIO(given.content)) as tar:
                    tar.extractall(partial, filter="data")
    return place / Path(given.path).name


@dataclass(frozen=True)
class Localizer:
    """This node's paths in place of the driver's, of what was staged: itself, or who fetches it."""

    staged: Mapping[str, StagedInput | Callable[[], StagedInput]]

    def path(self, path: str) -> str:
        if (given := self.staged.get(path)) is None:
            return path
        return str(unpack(given if isinstance(given, StagedInput) else given()))

    def tasks(self, origin: str) -> str:
        file, some = split_origin(origin)
        return self.path(file) + some

    def settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        own = {key: self.path(path) for key, path in paths_in(settings).items()}
        return {**settings, **own}


def localize(job: Job, staged: Mapping[str, StagedInput]) -> Job:
    """The job with this node's paths."""
    if not staged:
        return job
    here = Localizer(staged)
    return replace(
        job,
        data=job.data and here.path(job.data),
        tasks=here.tasks(job.tasks),
        settings=here.settings(job.settings),
    )


def paths_in(settings: Mapping[str, Any]) -> dict[str, str]:
    """key -> what it names, of the settings that may name a file or folder of this machine."""
    return {
        key: value
        for key, value in settings.items()
        if isinstance(value, str)
        and (key in ("encoder.name", *PATHS) or key.startswith("augment."))
    }


def needed(job_paths: Iterable[str | None]) -> list[str]:
    """Of what a search names, that which is a file or folder of this machine."""
    paths = [split_origin(path)[0] if path else None for path in job_paths]
    return [str(path) for path in paths if path and Path(path).exists()]
