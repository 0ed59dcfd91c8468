"""What is installed is what was looked at: every package that the project pulls in is pinned."""

from __future__ import annotations

import re
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

packaging = pytest.importorskip("packaging.requirements")

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([\w.-]+)==([^\s;]+)")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, set[str]]:
    found = defaultdict(set)
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if match := PIN.match(line):
            found[plain(match[1])].add(match[2])
    return found


def installed_closure(name: str, extras: frozenset[str]) -> dict[str, str]:
    """package -> version of all that is needed, as far as it is installed."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(name, extras)]
    while waiting:
        item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        try:
            package = distribution(item[0])
        except PackageNotFoundError:  # an extra that is not wanted here
            continue
        found[plain(item[0])] = package.version
        for text in package.requires or ():
            need = packaging.Requirement(text)
            wanted = [{"extra": extra} for extra in ("", *item[1])]
            if need.marker is None or any(need.marker.evaluate(each) for each in wanted):
                assert need.url is None, f"{item[0]} is not from an index: {text}"
                waiting.append((plain(need.name), frozenset(need.extras)))
    del found[plain(name)]
    return found


def test_every_package_that_is_pulled_in_has_its_pin() -> None:
    known = pins()
    extras = frozenset({"local", "surgery", "lora", "hub", "cluster", "bench", "test", "dev"})
    found = installed_closure("stockpot", extras)
    assert len(found) > 50
    assert not {name for name in found if name not in known}
    different = {n: (v, known[n]) for n, v in found.items() if v.split("+")[0] not in known[n]}
    assert not different
