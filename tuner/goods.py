"""What the driver's machine has and the trials need: data, an encoder's folder, a task file.

Each is packed once and put into Ray's object store, which brings it to every node once; there it is
unpacked once, under the sum of its content, and shared by all trials of the node.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from model.files import folder_whole

if TYPE_CHECKING:
    from tuner.trial import Job

try:
    import fcntl
except ImportError:  # not on this system, where no cluster has been seen
    fcntl = None  # type: ignore[assignment]

LARGEST = 1 << 30  # bytes; what is larger must be on every node already


@dataclass(frozen=True)
class Parcel:
    path: str  # as the driver knows it
    sum: str
    content: bytes


def pack(paths: Iterable[str]) -> tuple[dict[str, Parcel], list[str]]:
    """path -> its parcel; and the paths that are too large for one."""
    parcels, large = {}, []
    for path in dict.fromkeys(paths):
        if size_of(Path(path)) > LARGEST:
            large.append(path)
            continue
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            tar.add(path, Path(path).name, filter=plain)
        content = buffer.getvalue()
        parcels[path] = Parcel(path, hashlib.sha256(content).hexdigest(), content)
    return parcels, large


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same content makes the same parcel, whoever owns it since when."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def unpack(parcel: Parcel) -> Path:
    """Where its content is on this node; unpacked by whoever comes first."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    shelf = Path(tempfile.gettempdir()) / f"stockpot-goods-{user}"
    shelf.mkdir(mode=0o700, exist_ok=True)
    place = shelf / parcel.sum
    with open(shelf / f"{parcel.sum}.lock", "w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with folder_whole(place) as partial:
                with tarfile.open(fileobj=io.BytesIO(parcel.content)) as tar:
                    tar.extractall(partial, filter="data")
    return place / Path(parcel.path).name


def opened(job: Job, parcels: dict[str, Parcel]) -> Job:
    """The job with this node's paths."""
    if not parcels:
        return job

    def local(path: str) -> str:
        return str(unpack(parcels[path])) if path in parcels else path

    settings = {
        key: local(value) if key in PATHS and isinstance(value, str) else value
        for key, value in job.settings.items()
    }
    data = None if job.data is None else local(job.data)
    return replace(job, data=data, tasks=local(job.tasks), settings=settings)


PATHS = ("encoder.name", "init_from")  # settings that may be folders


def needed(job_paths: Iterable[str | None]) -> list[str]:
    """Of what a search names, that which is a file or folder of this machine."""
    return [str(path) for path in job_paths if path and Path(path).exists()]


def size_of(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
