"""A file in storage that one driver writes: a write fails if anybody else has written since.

    s3://      If-Match and If-None-Match, by boto3 (part of `stockpot[cluster]`)
    gs://      generations, by google-cloud-storage where that is installed
    file://    a kernel lock around looking and writing
    others     looked at just before it is written, which leaves a moment; so is what is found to
               take no notice of conditions

An answer that got lost on the way is told from a refusal by looking at what is there then, also
when it is missed only by a later write.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from model.common.errors import install
from model.common.locks import file_lock
from tuner.runs.storage.storage import Storage, StorageLost

PATIENCE = 10.0  # seconds for another driver's write to a folder, at each attempt
# Not 409: that is a conflict with a write under way, and is to be tried again.
REFUSED = ("PreconditionFailed", "NoSuchKey", "412", "404")
UNABLE = ("NotImplemented", "501", "MethodNotAllowed", "405")


class Superseded(StorageLost):
    """Another driver has written what only this one should."""


class Backend(Protocol):
    def read(self) -> tuple[bytes | None, str | None]:
        """The content and the tag that it has; None and None if there is none."""

    def write(self, content: bytes, tag: str | None) -> str | None:
        """Its new tag; None if what is there has another one."""


class FencedFile:
    def __init__(self, storage: Storage, path: str) -> None:
        self.storage, self.path = storage, path
        self.tag: str | None = None
        self._known: str | None = None  # the sum of what has that tag
        # The sums of what was sent since. All of it under that tag, so one at most came there.
        self._sent: set[str] = set()
        self._backend: Backend = backend_of(storage, path)

    def read(self) -> bytes | None:
        """From here on it is ours to write, until somebody else does."""
        content, tag = self._look()
        self._take(content, tag)
        return content

    def write(self, content: bytes, hurried: bool = False) -> None:
        """Raises `Superseded` if it is not as it was last read or written here."""
        for _ in range(2):
            self._sent.add(sum_of(content))
            there: bytes | None = content
            if (tag := self._attempt(content, hurried)) is None:
                there, tag = self._look(hurried)
                if there is None or sum_of(there) not in self._sent:
                    break
            self._take(there, tag)  # it may be an earlier one of ours, whose answer got lost
            if there == content:
                return
        fault = f"another driver writes {self.path} in {self.storage.shown} by now"
        raise Superseded(f"{fault}; this one stops, and has changed nothing of the other's")

    def _attempt(self, content: bytes, hurried: bool) -> str | None:
        try:
            return self._put(content, hurried)
        except Unable:
            self._backend, self.tag = Compared(self.storage, self.path), self._known
            return self._put(content, hurried)

    def _put(self, content: bytes, hurried: bool) -> str | None:
        tag: str | None = self._insist(
            "write", lambda: self._backend.write(content, self.tag), hurried
        )
        return tag

    def _look(self, hurried: bool = False) -> tuple[bytes | None, str | None]:
        found: tuple[bytes | None, str | None] = self._insist(
            "read", lambda: self._backend.read(), hurried
        )
        return found

    def _take(self, content: bytes | None, tag: str | None) -> None:
        self.tag, self._known = tag, None if content is None else sum_of(content)
        self._sent = set()

    def _insist(self, what: str, attempt: Callable[[], Any], hurried: bool = False) -> Any:
        return self.storage.insist(f"{what} {self.path}", attempt, hurried=hurried)


class Unable(Exception):
    """Storage that has no conditional writes."""


def backend_of(storage: Storage, path: str) -> Backend:
    scheme = "" if storage.unfenced else urlsplit(storage.url).scheme
    try:
        if scheme == "s3":
            return Amazon(storage, path)
        if scheme in ("gs", "gcs"):
            return Google(storage, path)
    except ImportError:
        pass
    return Compared(storage, path)


CLIENTS = {
    "s3": ("boto3", install("cluster")),
    "gs": ("google.cloud.storage", "pip install google-cloud-storage"),
}
CLIENTS["gcs"] = CLIENTS["gs"]


def why_unfenced(storage: Storage) -> str | None:
    """What to say of storage that is only looked at before a write, where others have conditions:
    a client is missing, or a write that should have been refused was not."""
    package, remedy = CLIENTS.get(urlsplit(storage.url).scheme, ("", ""))
    if not package:
        return None
    apart = "two drivers that write in the same moment are not told apart"
    if isinstance(backend_of(storage, ""), Compared):
        return f"{storage.shown}: without {package} {apart}; {remedy}"
    if keeps_conditions(storage):
        return None
    return f"{storage.shown} takes no notice of conditions (If-Match, If-None-Match): {apart}"


def keeps_conditions(storage: Storage) -> bool:
    """Some storage that speaks like Amazon's writes whatever is asked under a condition."""
    path = f".stockpot-{uuid.uuid4().hex[:12]}"
    probe = backend_of(storage, path)

    def wrote(content: bytes, tag: str | None) -> str | None:
        found: str | None = storage.insist(f"write {path}", lambda: probe.write(content, tag))
        return found

    try:
        first = wrote(b"1", None)
        wrote(b"2", first)
        kept = wrote(b"3", None) is None and wrote(b"3", first) is None
    except Unable:
        kept = False
    storage.remove([path])
    return kept


class Compared:
    """For storage that knows no conditions; a folder is locked meanwhile."""

    def __init__(self, storage: Storage, path: str) -> None:
        self.storage, self.path = storage, path

    def read(self) -> tuple[bytes | None, str | None]:
        content = self.storage.read(self.path)
        return content, None if content is None else sum_of(content)

    def write(self, content: bytes, tag: str | None) -> str | None:
        with ExitStack() as stack:
            if (folder := self.storage.folder) is not None:
                folder.mkdir(parents=True, exist_ok=True)
                if stack.enter_context(file_lock(Path(folder, ".fence"), PATIENCE)) is False:
                    raise OSError(f"another process has held its lock for {PATIENCE:.0f} s")
            if self.read()[1] != tag:
                return None
            self.storage.write(self.path, content)
        return sum_of(content)


def sum_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Amazon:
    def __init__(self, storage: Storage, path: str) -> None:
        import boto3
        from botocore.config import Config

        parts = urlsplit(storage.url)
        query = dict(parse_qsl(parts.query))
        host = query.get("endpoint_override")
        if host and "://" not in host:
            host = f"{query.get('scheme', 'https')}://{host}"
        self.client = boto3.client(
            "s3",
            endpoint_url=host,
            region_name=query.get("region"),
            aws_access_key_id=unquote(parts.username) if parts.username else None,
            aws_secret_access_key=unquote(parts.password) if parts.password else None,
            config=Config(connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 2}),
        )
        bucket = parts.netloc.rpartition("@")[2]
        key = f"{unquote(parts.path).strip('/')}/{path}".lstrip("/")
        self.place = {"Bucket": bucket, "Key": key}

    def read(self) -> tuple[bytes | None, str | None]:
        try:
            found = self.client.get_object(**self.place)
            return found["Body"].read(), found["ETag"]
        except Exception as error:
            if code_of(error) in ("NoSuchKey", "404"):
                return None, None
            raise as_os_error(error) from None

    def write(self, content: bytes, tag: str | None) -> str | None:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        try:
            return str(self.client.put_object(**self.place, Body=content, **condition)["ETag"])
        except Exception as error:
            code = code_of(error)
            if code in REFUSED:
                return None
            if code in UNABLE:
                raise Unable from None
            raise as_os_error(error) from None


def code_of(error: Exception) -> str:
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def as_os_error(error: Exception) -> Exception:
    """What is tried again, and then told in a sentence; botocore's own errors are none of them."""
    return error if isinstance(error, OSError) else OSError(str(error))


class Google:
    """Not tried against Google's own storage: only against a stand-in of its client."""

    def __init__(self, storage: Storage, path: str) -> None:
        from google.cloud import storage as google

        parts = urlsplit(storage.url)
        key = f"{unquote(parts.path).strip('/')}/{path}".lstrip("/")
        self.bucket, self.key = google.Client().bucket(parts.netloc.rpartition("@")[2]), key

    def read(self) -> tuple[bytes | None, str | None]:
        try:
            blob = self.bucket.get_blob(self.key)
            if blob is None:
                return None, None
            content = blob.download_as_bytes(if_generation_match=blob.generation)
            return content, str(blob.generation)
        except Exception as error:
            raise as_os_error(error) from None

    def write(self, content: bytes, tag: str | None) -> str | None:
        blob = self.bucket.blob(self.key)
        try:
            blob.upload_from_string(content, if_generation_match=int(tag or 0))
        except Exception as error:
            if getattr(error, "code", None) == 412:  # a precondition that failed
                return None
            raise as_os_error(error) from None
        return str(blob.generation)
