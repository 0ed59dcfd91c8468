"""How a fault in something the user wrote is told: every fault at once, with a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches

from model.common.secrets import redact


class InputError(ValueError):
    """One or more faults in a file, a setting or an argument.

    `where` names the file (or the part of the command line); each fault is a
    sentence that names the place, what is wrong and what to do about it.
    """

    def __init__(self, where: str, faults: Sequence[str]) -> None:
        self.where = where
        self.faults = list(faults)
        super().__init__(where, self.faults)

    def __str__(self) -> str:
        count = len(self.faults)
        lines = [f"{self.where}: {count} problem{'s' if count != 1 else ''}"]
        return redact("\n".join(lines + [f"  {fault}" for fault in self.faults]))


def suggest(word: str, known: Iterable[str]) -> str:
    """The tail of an error about an unknown name: the nearest known ones, or all of them."""
    names = sorted(known)
    close = get_close_matches(word, names, n=max(1, len(names)))
    nearness = [SequenceMatcher(None, name, word).ratio() for name in close]
    nearest = [f"'{name}'" for name, how in zip(close, nearness, strict=True) if how == nearness[0]]
    if nearest:
        return f"did you mean {' or '.join(sorted(nearest))}?"
    return f"known: {', '.join(names)}" if names else "none are known"
