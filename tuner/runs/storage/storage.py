"""Storage that is no folder of this machine: whatever pyarrow opens by its URL.

    s3://bucket/path                                                   Amazon's
    s3://bucket/path?endpoint_override=http://HOST:PORT&scheme=http    anything that speaks like it
    gs://bucket/path                                                   Google's

Credentials come from where the cloud's own tools look for them. Those written into the URL work
as well, and never leave this class but for the file system: people see `shown`.
"""

from __future__ import annotations

import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from model.common.errors import InputError
from model.common.files import fsync_folder
from model.common.secrets import HIDDEN, brief, hide
from model.common.untrusted import inside, refuse_irregular
from tuner.runs.ledger import MOST_BYTES

PIECE = 1 << 20  # bytes at a time: memory is taken for what is asked for, not for what comes
PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds between attempts, beside the file system's own retries
# What a URL's query may say aloud. Anything else could be a secret.
OPEN_OPTIONS = {
    *("region", "scheme", "endpoint_override", "allow_bucket_creation", "allow_bucket_deletion"),
    *("retry_limit_seconds", "default_bucket_location", "project_id", "anonymous"),
}
T = TypeVar("T")


class StorageLost(OSError):
    """Storage that did not answer for as long as is worth waiting."""


@dataclass(frozen=True)
class Storage:
    url: str
    hurried: bool = False  # no attempts beside the file system's own
    driver: str = ""  # who may write the run that is in here; trials ask before they do
    judged: bytes | None = None  # the sign of life of a driver that was found to be gone
    unfenced: bool = False  # it takes no notice of conditions, and is looked at before a write

    def __reduce__(self) -> Any:
        return Storage, (self.url, self.hurried, self.driver)

    def __repr__(self) -> str:  # what ends up in logs
        return f"Storage({self.shown!r})"

    @cached_property
    def shown(self) -> str:
        return without_secrets(self.url)

    @cached_property
    def _place(self) -> tuple[Any, str]:
        try:
            system, root = fs.FileSystem.from_uri(impatient(self.url))
            if not root.strip("/"):
                raise ValueError("it names no bucket or folder")
        except (pa.ArrowException, OSError, ValueError) as error:
            fault = f"is not a place that can be opened ({self._said(error)})"
            remedy = "write a folder, s3://bucket/path or gs://bucket/path"
            raise InputError(self.shown, [f"{fault}; {remedy}"]) from None
        return system, root.rstrip("/")

    @property
    def folder(self) -> Path | None:
        """Where it is, if it is a folder of this machine."""
        system, root = self._place
        return Path(root) if system.type_name == "local" else None

    def inside(self, name: str) -> Storage:
        """A folder in this one."""
        parts = urlsplit(self.url)
        return Storage(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(name)}")))

    # --- files, by their path in here -----------------------------------------------------------

    def files(self, folder: str = "") -> dict[str, int]:
        """path -> bytes of every file in a folder and below it; none if there is no folder."""
        system, root = self._place
        if (here := self.folder) is not None:  # pyarrow would go wherever links lead
            return self.insist("list", lambda: regular_files(here, folder))
        place = f"{root}/{folder}".rstrip("/")
        selector = fs.FileSelector(place, recursive=True, allow_not_found=True)
        found = self.insist("list", lambda: system.get_file_info(selector))
        return {
            info.path[len(root) + 1 :]: info.size for info in found if info.type == fs.FileType.File
        }

    def read(self, path: str) -> bytes | None:
        """A file's bytes, or None if there is none; InputError for one that is too large."""
        system, place = self._place[0], self._at(path)

        def attempt() -> bytes | None:
            try:
                with system.open_input_stream(place) as stream:
                    content = bytearray()
                    while len(content) <= MOST_BYTES and (part := stream.read(PIECE)):
                        content += part
                    return bytes(content)
            except FileNotFoundError:
                return None

        content = self.insist(f"read {path}", attempt)
        if content is not None and len(content) > MOST_BYTES:
            fault = f"{path} has more than {MOST_BYTES:,} bytes, which no file of a run has"
            raise InputError(self.shown, [f"{fault}; put back what was there"])
        return content

    def write(self, path: str, content: bytes) -> None:
        system, root = self._place

        def attempt() -> None:
            with system.open_output_stream(self._room_for(path)) as stream:
                stream.write(content)
            self._settle(path)

        self.insist(f"write {path}", attempt)

    def put(self, local: Path, path: str) -> None:
        """Copy a file of this machine. It appears whole, or not at all."""
        system, root = self._place

        def attempt() -> None:
            target = self._room_for(path)
            fs.copy_files(
                str(local),
                target,
                source_filesystem=fs.LocalFileSystem(),
                destination_filesystem=system,
            )
            self._settle(path)

        self.insist(f"write {path}", attempt)

    def get(self, path: str, local: Path) -> None:
        """Copy a file to this machine. It appears whole, or not at all."""
        system, place = self._place[0], self._at(path)
        local.parent.mkdir(parents=True, exist_ok=True)
        beside = local.with_name(f".{local.name}.{uuid.uuid4().hex[:8]}.tmp")

        def attempt() -> None:
            fs.copy_files(
                place,
                str(beside),
                source_filesystem=system,
                destination_filesystem=fs.LocalFileSystem(),
            )

        try:
            self.insist(f"read {path}", attempt)
            beside.replace(local)
            fsync_folder(local.parent)
        finally:
            beside.unlink(missing_ok=True)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; those that are gone already do not matter."""
        system, _ = self._place
        for path in paths:

            def attempt(place: str = self._at(path)) -> None:
                try:
                    system.delete_file(place)
                except FileNotFoundError:
                    pass

            self.insist(f"remove {path}", attempt)

    # --- how ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Write, read and remove a file. Raises InputError with the reason and what to look at."""
        path, word = f".stockpot-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex.encode()
        probe = replace(self, hurried=True)
        try:
            probe.write(path, word)
            same = probe.read(path) == word
            probe.remove([path])
        except StorageLost as error:
            remedy = "check that it exists, the endpoint, and the credentials of this machine"
            raise InputError(self.shown, [f"{error.args[0]}; {remedy}"]) from None
        if not same:
            raise InputError(self.shown, ["what was written did not come back; choose another"])

    def insist(self, what: str, attempt: Callable[[], T], *, hurried: bool = False) -> T:
        """Try again a few times, with growing pauses; then say in a sentence what did not work."""
        for pause in (*(() if self.hurried or hurried else PAUSES), None):
            try:
                return attempt()
            except FileNotFoundError as error:
                raise StorageLost(f"cannot {what} in {self.shown} ({self._said(error)})") from None
            except (OSError, pa.ArrowException) as error:
                if pause is None or is_hopeless(error):
                    fault = f"cannot {what} in {self.shown} ({self._said(error)})"
                    raise StorageLost(fault) from None
                time.sleep(pause)
        raise AssertionError  # the last attempt returns or raises

    def _at(self, path: str) -> str:
        """The place of a file. In a folder it is in there whatever links there are, and no pipe."""
        system, root = self._place
        if (here := self.folder) is not None:
            refuse_irregular(inside(here, path))
        return f"{root}/{path}"

    def _room_for(self, path: str) -> str:
        """Where to write: object stores show a file when it is whole, folders at once."""
        system, _ = self._place
        if system.type_name != "local":
            return self._at(path)
        system.create_dir(self._at(path).rpartition("/")[0], recursive=True)
        folder, slash, name = path.rpartition("/")
        return self._at(f"{folder}{slash}.{name}.tmp")

    def _settle(self, path: str) -> None:
        system, _ = self._place
        if system.type_name == "local":
            system.move(self._room_for(path), self._at(path))

    def _said(self, error: BaseException) -> str:
        """An error in one line, without what must not be said."""
        return brief(hide(str(error), secrets_of(self.url)), 300)


def regular_files(root: Path, folder: str) -> dict[str, int]:
    """Of a folder of this machine, as `Storage.files`, without going through links."""

    def told(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    start = inside(root, folder) if folder else root
    found: dict[str, int] = {}
    for place, _, names in os.walk(start, onerror=told):
        for file in (Path(place, name) for name in names):
            with suppress(FileNotFoundError):  # removed meanwhile
                status = file.lstat()
                if stat.S_ISREG(status.st_mode):
                    found[file.relative_to(root).as_posix()] = status.st_size
    return found


def is_url(text: object) -> bool:
    return "://" in str(text)


def impatient(url: str) -> str:
    """Google's client retries for a quarter of an hour by itself unless told otherwise."""
    parts = urlsplit(url)
    if parts.scheme not in ("gs", "gcs") or "retry_limit_seconds" in parts.query:
        return url
    query = "&".join(filter(None, [parts.query, "retry_limit_seconds=20"]))
    return urlunsplit(parts._replace(query=query))


def is_hopeless(error: BaseException) -> bool:
    """What waiting does not mend."""
    words = str(error)
    return isinstance(error, PermissionError) or any(
        sign in words for sign in ("NO_SUCH_BUCKET", "ACCESS_DENIED", "NoSuchBucket")
    )


def without_secrets(url: str) -> str:
    """The URL as people may see it."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    shown = []
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in OPEN_OPTIONS:
            value = HIDDEN
        elif "@" in value:
            before, _, place = value.rpartition("@")
            scheme, found, _ = before.partition("://")
            value = f"{scheme}://{HIDDEN}@{place}" if found else f"{HIDDEN}@{place}"
        shown.append(f"{key}={value}")
    host = f"{HIDDEN}@{host}" if at else host
    return urlunsplit(parts._replace(netloc=host, query="&".join(shown)))


def secrets_of(url: str) -> list[str]:
    """All that `without_secrets` hides, the longest first."""
    parts = urlsplit(url)
    user, _, _ = parts.netloc.rpartition("@")
    found = [user, *user.split(":")]
    for key, value in parse_qsl(parts.query):
        if key not in OPEN_OPTIONS:
            found.append(value)
        elif "@" in value:
            hidden = value.rpartition("@")[0].rpartition("://")[2]
            found += [hidden, *hidden.split(":")]
    return sorted({text for text in found if text}, key=lambda text: (-len(text), text))
