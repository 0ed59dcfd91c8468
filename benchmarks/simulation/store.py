"""Storage as a dictionary: with errors, answers that get lost, and tags for conditional writes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tuner.runs.storage.storage import StorageLost

from .plan import Violation


class Bucket:
    """What all drivers and workers share."""

    def __init__(self, rng: random.Random, told: Counter[str]) -> None:
        self.rng, self.told = rng, told
        self.there: dict[str, tuple[bytes, int]] = {}
        self.count = 0
        self.errors = 0  # so many of the next calls fail
        self.losses = 0  # so many of the next answers to writes get lost
        self.silence = 0  # so many calls after a lost answer fail as well
        self.delays = 0  # so many of the next writes come later, and nobody hears of them
        self.delayed: str | None = None  # only of this file
        self.under_way: list[Callable[[], bool]] = []
        self.sleep: tuple[int, Callable[[], None]] | None = None  # after so many calls; meanwhile
        self.owner = ""  # the last driver that began
        self.landed: Callable[[str], None] = lambda path: None  # told of every write that came

    def call(self) -> None:
        if self.sleep is not None:
            count, meanwhile = self.sleep
            self.sleep = (count - 1, meanwhile) if count else None
            if not count:
                meanwhile()
        if self.errors:
            self.errors -= 1
            self.told["storage error"] += 1
            raise StorageLost("storage does not answer")

    def delay(self, path: str, write: Callable[[], bool]) -> None:
        if self.delays and self.delayed in (None, path):
            self.delays -= 1
            self.told["write delayed"] += 1
            self.under_way.append(write)
            raise StorageLost("no answer in time")

    def arrive(self) -> None:
        """A write that was under way comes, whoever the run belongs to by now."""
        write = self.under_way.pop(self.rng.randrange(len(self.under_way)))
        before = self.losses, self.errors, self.delays
        self.losses = self.errors = self.delays = 0
        self.told["late write taken" if write() else "late write refused"] += 1
        self.losses, self.errors, self.delays = before

    def put(self, path: str, content: bytes) -> int:
        self.call()
        return self.keep(path, content)

    def keep(self, path: str, content: bytes) -> int:
        self.count += 1
        self.there[path] = content, self.count
        self.landed(path)
        if self.losses:
            self.losses -= 1
            self.errors, self.silence = self.errors + self.silence, 0
            self.told["storage's answer lost"] += 1
            raise StorageLost("the answer got lost")
        return self.count


class BucketStorage:
    """As much of `tuner.runs.storage.storage.Storage` as a driver and its mirror use."""

    url = shown = "bucket"
    folder = None

    def __init__(self, bucket: Bucket, driver: str = "", judged: bytes | None = None) -> None:
        self.bucket, self.driver, self.judged = bucket, driver, judged

    def files(self, folder: str = "") -> dict[str, int]:
        self.bucket.call()
        return {
            path: len(content)
            for path, (content, _) in sorted(self.bucket.there.items())
            if path.startswith(folder)
        }

    def read(self, path: str) -> bytes | None:
        self.bucket.call()
        return self.bucket.there.get(path, (None, 0))[0]

    def write(self, path: str, content: bytes) -> None:
        self.bucket.delay(path, lambda: bool(self.bucket.put(path, content)))
        self.bucket.put(path, content)

    def put(self, local: Path, path: str) -> None:
        self.write(path, local.read_bytes())

    def get(self, path: str, local: Path) -> None:
        self.bucket.call()
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(self.bucket.there[path][0])

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.bucket.call()
            self.bucket.there.pop(path, None)

    def insist(self, what: str, attempt: Callable[[], Any], *, hurried: bool = False) -> Any:
        """Once more, as the real one does after a pause."""
        for last in (False, True):
            try:
                return attempt()
            except StorageLost:
                if last:
                    raise
        raise AssertionError


class NodeStorage(BucketStorage):
    """A worker's. Of all that it changes, one thing at most may come when the run is another's."""

    late = 0

    def write(self, path: str, content: bytes) -> None:
        super().write(path, content)
        self.changed(path)

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            super().remove([path])
            self.changed(path)

    def changed(self, path: str) -> None:
        if self.driver == self.bucket.owner:
            return
        self.late += 1
        self.bucket.told["a deposed worker's last file"] += 1
        if self.late > 1:
            raise Violation(f"a worker of the deposed driver {self.driver} went on with {path}")


class Tagged:
    """A file that is written under the condition that it is as it was."""

    def __init__(self, storage: BucketStorage, path: str) -> None:
        self.bucket, self.path = storage.bucket, path

    def read(self) -> tuple[bytes | None, str | None]:
        self.bucket.call()
        content, tag = self.bucket.there.get(self.path, (None, 0))
        return content, str(tag) if content is not None else None

    def write(self, content: bytes, tag: str | None) -> str | None:
        self.bucket.delay(self.path, lambda: self.write(content, tag) is not None)
        self.bucket.call()
        _, there = self.bucket.there.get(self.path, (None, 0))
        if str(there) != (tag or "0"):
            return None
        return str(self.bucket.keep(self.path, content))


@contextmanager
def conditional() -> Iterator[None]:
    def changed(storage: BucketStorage, **changes: Any) -> BucketStorage:
        known = {"driver": storage.driver, "judged": storage.judged}
        known |= {key: value for key, value in changes.items() if key in known}
        return BucketStorage(storage.bucket, **known)

    with (
        mock.patch("tuner.runs.storage.fence.backend_of", Tagged),
        mock.patch("tuner.runs.storage.mirror.replace", changed),
    ):
        yield
