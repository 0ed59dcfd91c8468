"""What can be seen in a shell script that starts Ray and a search, without running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise

from tuner.cluster.pins import other_versions
from tuner.runs.storage.storage import is_url

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ASSIGNED = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=([^\s;()]*)(?=\s|;|$)", re.MULTILINE)
SEARCH = re.compile(r"(?:\bstockpot search\b|\btuner\.search\b)")
TOKEN = "RAY_AUTH_MODE=token"


def joined(text: str) -> str:
    """Lines that go on after a backslash, as one."""
    return re.sub(r"\\\n\s*", " ", text)


def expanded(text: str, given: Mapping[str, str] | None = None) -> str:
    """With the variables that are given or set to a plain word filled in; others stay."""
    known: dict[str, str] = {n: v.strip("'\"") for n, v in ASSIGNED.findall(text)}
    known = {**known, **(given or {})}

    def value(found: re.Match[str]) -> str:
        return known.get(str(found[1] or found[2]), str(found[0]))

    for _ in range(3):  # one may be made of another
        text = re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)
    return text


def place_of_search(text: str) -> str | None:
    """Where the search that the script starts keeps its run; None if it starts none."""
    if not SEARCH.search(text):
        return None
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();&|")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = [part for word in lexer for part in word.split("=", 1)]
    except ValueError:  # quotes that do not end: the shell's own check has said so
        return None
    places = [after for flag, after in pairwise(words) if flag == "--storage-path"]
    return places[-1] if places else "runs"


def storage_faults(place: str | None, *, shared: bool) -> Iterator[str]:
    """Of the place where a search on several machines keeps its run, if it starts one."""
    if place is not None and not shared and not is_url(place):
        fault = f"storage '{place}' is a folder of its own on each machine"
        yield f"{fault}; take s3://bucket/path, or a folder that all mount, and say --shared"


def script_faults(script: str, settings: str = "") -> Iterator[str]:
    """Of a script that starts Ray, with the `settings` of its environment."""
    yield from token_faults(f"{settings}\n{script}")
    yield from dashboard_faults(script)
    yield from other_versions(script)


def dashboard_faults(text: str) -> Iterator[str]:
    for host in re.findall(r"--dashboard-host[= ]+['\"]?([^\s'\"]+)", text):
        if host not in LOOPBACK:
            fault = f"the dashboard is open on {host}, and whoever reaches it can run commands"
            yield f"{fault}; write --dashboard-host=127.0.0.1"


def token_faults(text: str) -> Iterator[str]:
    if re.search(r"\bray (?:start|symmetric-run)\b", text) and not re.search(
        "RAY_AUTH_MODE=['\"]?token", text
    ):
        fault = "Ray starts without a token, so whoever reaches its ports can run commands"
        yield f"{fault}; write: export {TOKEN}"
