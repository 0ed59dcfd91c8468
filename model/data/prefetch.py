"""The next thing made by a thread while the last one is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import tee, zip_longest
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
Item = TypeVar("Item")


class Prefetch(Generic[Key, Value]):
    """`make(key)`, mostly begun before it is asked for. `make` is never run twice at once."""

    def __init__(self, make: Callable[[Key], Value], *, background: bool) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(1, "prefetch") if background else None
        self._next: tuple[Key, Future[Value]] | None = None

    def get(self, key: Key, following: Key | None = None) -> Value:
        """The value; that of the key that is likely to come next is begun."""
        if self._pool is None:
            return self._make(key)
        begun, self._next = self._next, None
        if begun is None or begun[0] != key:
            begun = key, self._pool.submit(self._make, key)
        value = begun[1].result()
        if following is not None:
            self._next = following, self._pool.submit(self._make, following)
        return value

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def with_next(items: Iterable[Item]) -> Iterator[tuple[Item, Item | None]]:
    """Every item and the one after it."""
    these, following = tee(items)
    next(following, None)
    return zip_longest(these, following)
