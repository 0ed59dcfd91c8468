"""How a fault in something the user wrote is told: every fault at once, with a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from model.common.secrets import redact


class InputError(ValueError):
    """One or more faults in a file, a setting or an argument.

    `where` names the file (or the part of the command line); each fault is a
    sentence that names the place, what is wrong and what to do about it.
    """

    def __init__(self, where: str, faults: Sequence[str]) -> None:
        self.where = where
        self.faults = list(dict.fromkeys(faults))  # each once
        super().__init__(where, self.faults)

    def __str__(self) -> str:
        count = len(self.faults)
        lines = [f"{self.where}: {count} problem{'s' if count != 1 else ''}"]
        return redact("\n".join(lines + [f"  {fault}" for fault in self.faults]))


class PartlyRead(InputError):
    """Some of it could be read: `value`, for further checks to go on with."""

    def __init__(self, where: str, faults: Sequence[str], value: Any = None) -> None:
        super().__init__(where, faults)
        self.value = value


class Gathered:
    """`with gathered:` around each check, then `tell` raises all that they found as one.

    Faults of `where`, and those of flags, say their own places.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.errors: list[InputError] = []

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, InputError):
            self.errors.append(error)
        return isinstance(error, InputError)

    @property
    def faults(self) -> list[str]:
        return [self._placed(error, fault) for error in self.errors for fault in error.faults]

    def _placed(self, error: InputError, fault: str) -> str:
        own = error.where == self.where or fault.startswith("--")
        return fault if own else f"{error.where}: {fault}"

    def tell(self) -> None:
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise InputError(self.where, self.faults)


def install(extra: str) -> str:
    """The tail of an error about a package that an extra brings. No index has Stockpot itself."""
    return f"from a clone of Stockpot: pip install '.[{extra}]'"


def suggest(word: str, known: Iterable[str]) -> str:
    """The tail of an error about an unknown name: the nearest known ones, or all of them."""
    names = sorted(known)
    close = get_close_matches(word, names, n=max(1, len(names)))
    nearness = [SequenceMatcher(None, name, word).ratio() for name in close]
    nearest = [f"'{name}'" for name, how in zip(close, nearness, strict=True) if how == nearness[0]]
    if nearest:
        return f"did you mean {' or '.join(sorted(nearest))}?"
    return f"known: {', '.join(names)}" if names else "none are known"


def unknown(given: Iterable[Any], known: Iterable[str], what: str, where: str = "") -> list[str]:
    """A fault for each of the names that is not `what`; `where` stands before them, as 'spec.'."""
    names = [str(name) for name in given if name not in known]
    return [f"'{where}{name}' is not {what}; {suggest(name, known)}" for name in names]
