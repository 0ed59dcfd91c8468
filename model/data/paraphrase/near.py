"""Which sentences are the same, or nearly: shingles of characters, and MinHash to find them.

MinHash only proposes: two sentences are near if the Jaccard similarity of their shingles, counted
in full, reaches the limit. So nothing is called near by chance, and almost nothing is missed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

MARKS = re.compile(r"[\W_]+")
SHINGLE = 4  # characters; words would tell too little of sentences of five words
BANDS, WIDTH = 32, 4  # of pairs with a similarity of .7, one in six thousand shares no band
AT_ONCE = 1024  # sentences
MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying by it loses nothing
Hashes = NDArray[np.uint64]


def normalised(text: str) -> str:
    """Letters and digits in lower case with single spaces: what is left is the sentence itself."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return MARKS.sub(" ", plain).strip()


def shingles(text: str) -> Hashes:
    """The hashes of all stretches of SHINGLE characters, each once and in order; the same on every
    machine, as Python's own are not."""
    padded = f" {text} ".ljust(SHINGLE)
    points = np.frombuffer(padded.encode("utf-32-le", "replace"), np.uint32).astype(np.uint64)
    count = len(points) - SHINGLE + 1
    found = np.zeros(count, np.uint64)
    for place in range(SHINGLE):
        found = (found ^ points[place : place + count]) * MIX
    found ^= found >> np.uint64(29)
    return np.unique(found * MIX)


def jaccard(first: Hashes, second: Hashes) -> float:
    both = len(np.intersect1d(first, second, assume_unique=True))
    return both / (len(first) + len(second) - both)


class NearIndex:
    """Finds among sentences (normalised, each once) those that are near to one of them."""

    def __init__(self, sentences: Iterable[str], limit: float) -> None:
        self.sentences: Sequence[str] = list(dict.fromkeys(sentences))
        self.places = {sentence: place for place, sentence in enumerate(self.sentences)}
        self.limit = limit
        self._known: dict[int, frozenset[int]] = {}
        if limit < 1:  # else only what is the same is near
            self._keys = self._band_keys()  # [bands, sentences]
            self._order = np.argsort(self._keys, axis=1, kind="stable").astype(np.int32)
            self._sorted = np.take_along_axis(self._keys, self._order, axis=1)
            self._shared = self._bands_shared()

    def near(self, sentence: str) -> frozenset[int]:
        """The places of all sentences near to this one, which must be one of them; its own too."""
        place = self.places[sentence]
        if place not in self._known:
            self._known[place] = (
                frozenset(self._found(place)) if self.limit < 1 else frozenset([place])
            )
        return self._known[place]

    def _found(self, place: int) -> Iterable[int]:
        own = shingles(self.sentences[place])
        proposed: set[int] = set()
        for band in np.flatnonzero(self._shared[:, place]):
            key, keys = self._keys[band, place], self._sorted[band]
            first, last = np.searchsorted(keys, key, "left"), np.searchsorted(keys, key, "right")
            proposed.update(self._order[band, first:last].tolist())
        for other in proposed:
            if other != place and jaccard(own, shingles(self.sentences[other])) >= self.limit:
                yield other
        yield place

    def _bands_shared(self) -> NDArray[np.bool_]:
        """[bands, sentences]: where another sentence has the same key. Mostly none has."""
        same = self._sorted[:, 1:] == self._sorted[:, :-1]
        count = len(self.sentences)
        shared = np.zeros((BANDS, count), bool)
        alone = np.zeros((BANDS, 1), bool)
        either = np.concatenate([same, alone], axis=1) | np.concatenate([alone, same], axis=1)
        np.put_along_axis(shared, self._order.astype(np.int64), either[:, :count], 1)
        return shared

    def _band_keys(self) -> Hashes:
        rng = np.random.default_rng(0)  # any numbers do, as long as all sentences meet the same
        factors = rng.integers(1 << 63, size=BANDS * WIDTH, dtype=np.uint64) * np.uint64(2)
        factors += np.uint64(1)
        keys = np.empty((BANDS, len(self.sentences)), np.uint64)
        for start in range(0, len(self.sentences), AT_ONCE):
            some = [shingles(each) for each in self.sentences[start : start + AT_ONCE]]
            if not some:
                break
            ends = np.cumsum([0, *map(len, some)])[:-1]
            joined = np.concatenate(some)
            least = np.stack([np.minimum.reduceat(joined * each, ends) for each in factors])
            least ^= least >> np.uint64(31)
            mixed = np.zeros((BANDS, len(some)), np.uint64)
            for row in range(WIDTH):
                mixed = (mixed ^ least.reshape(BANDS, WIDTH, -1)[:, row]) * MIX
            keys[:, start : start + len(some)] = mixed
        return keys
