"""Passwords and keys, kept out of whatever is written or shown.

Always the raw text first, then whatever makes it shorter or tidier: half a secret, or one without
its line breaks, would not be recognised any more.
"""

from __future__ import annotations

import base64
import html
import os
import re
import string
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

HIDDEN = "***"
# All of these have a bound, or a long text of their beginnings would take hours.
LONG = 4096  # characters
SCHEME = r"\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}:/{1,2}"
USER = rf"[^/\s@'\":]{{1,{LONG}}}"
PORT = r"\d{1,5}(?![^/\s'\",;.)])"
_IN_URL = re.compile(rf"({SCHEME})[^/\s@'\"]{{1,{LONG}}}@")
# A password may hold anything, as "/" or a blank; but of a web server a number is its port.
_WITH_PASSWORD = re.compile(
    rf"(?!https?:/{{1,2}}{USER}:{PORT})({SCHEME}){USER}:"
    rf"(?:[^\s'\"]{{0,{LONG}}}@|(?!{PORT})[^@\r\n]{{1,100}}@(?:[^\s'\"]{{0,{LONG}}}@)?)"
)
_IN_QUERY = re.compile(
    r"([?&;][\w.-]{0,50}(?:key|secret|token|passw(?:or)?d|signature|credential)[\w.-]{0,50}=)"
    r"[^&;\s'\"]+",
    re.IGNORECASE,
)
_IN_HEADER = re.compile(
    r"(\bauthorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token)\s+)[^\s'\",]+", re.IGNORECASE
)
_AWS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_NAMES = re.compile(r"(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS)$", re.IGNORECASE)
SHORTEST = 8  # characters; a shorter value could be any word
MOST_LAYERS = 4  # of escapes in escapes
HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(
    rf"\\+(?:x(?P<x>{HEX}{{2}})|u(?P<u>{HEX}{{4}})|U(?P<U>{HEX}{{8}})|u\{{(?P<r>{HEX}{{1,6}})\}}"
    rf"|(?P<o>[0-3][0-7]{{2}})|(?P<blank>[nrtbf])|)|%(?P<p>{HEX}{{2}})|%u(?P<P>{HEX}{{4}})"
    rf"|(?P<entity>&(?:amp;|lt;|gt;|quot;|apos;|#\d{{1,7}};?|#x{HEX}{{1,6}};?))|\x1b\[[\d;]{{0,20}}m"
)
_QUOTED = re.compile(rf"=(?P<p>{HEX}{{2}})|=\r?\n")  # as e-mail has it
_DECIMAL = re.compile(r"\b\d{2,3}\b")  # bytes as numbers
_MARKS = re.compile(r"[\W_]+")
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_BLANK = re.compile(r"[\s\0]+")
_BETWEEN = re.compile(r"[:,;-]|0x")  # the bytes of a hexadecimal dump
_HEX = re.compile(rf"{HEX}{{{2 * SHORTEST},}}")
_BASE64 = re.compile(rf"[A-Za-z0-9+/_-]{{{SHORTEST * 8 // 6},}}")
_URL_SAFE = str.maketrans("-_", "+/")


def redact(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text without user names and passwords in URLs, keys in queries, and whatever this
    process has in its environment under the name of a key, a token or a password, in whatever
    encoding it is there."""
    named = [value for name, value in environment.items() if _NAMES.search(name)]
    text = hide(text, [value for value in named if len(value) >= SHORTEST])
    text = _WITH_PASSWORD.sub(rf"\1{HIDDEN}@", text)
    text = _IN_URL.sub(rf"\1{HIDDEN}@", text)
    text = _IN_QUERY.sub(rf"\1{HIDDEN}", text)
    text = _IN_HEADER.sub(rf"\1{HIDDEN}", text)
    return _AWS_KEY.sub(HIDDEN, text)


def brief(text: str, most: int = 500, environment: Mapping[str, str] = os.environ) -> str:
    """In one line of so many characters, without secrets."""
    return " ".join(redact(text, environment).split())[:most]


def bounded(text: str) -> str:
    """Without secrets, for whoever cuts it next; of a very long text only how long it is."""
    return redact(text) if len(text) <= LONG else f"a text of {len(text):,} characters"


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text without these, as they are and as programs write them down.

    One rule for all ways of writing: the text is read in each of them, back to plain characters
    without blanks, and what a secret is like when it was read so is searched there.
    """
    known = sorted({each for each in secrets if each}, key=lambda each: (-len(each), each))
    for secret in known:
        text = text.replace(secret, HIDDEN)
    if not (keys := {key for secret in known for key in keys_of(secret)}):
        return text
    places = [span for view in views(text) for key in keys for span in view.find(key)]
    for start, end in reversed(merged(places)):
        text = text[:start] + HIDDEN + text[end:]
    return text


@lru_cache(maxsize=256)
def keys_of(secret: str) -> frozenset[str]:
    """A secret and its lines as `views` have them, if long enough to be no word."""
    parts = {secret, secret.replace(" ", "+"), *secret.splitlines()}
    for part in list(parts):
        codes = part.encode("utf-16-le", "surrogatepass")
        parts.add("".join(map(chr, memoryview(codes).cast("H"))))  # as JSON has it
        parts |= {part.encode(c, "replace").decode("latin-1") for c in ("utf-8", "latin-1")}
        parts |= {codes.decode("latin-1"), part.encode("utf-16-be", "replace").decode("latin-1")}
    raw = [TextView.of(part) for part in parts]
    read = [unescaped(view) for view in raw]
    found = {squeezed(view).text for view in read} | {bare(view).text for view in raw + read}
    return frozenset(key for key in found if len(key) >= SHORTEST)


@dataclass(frozen=True)
class TextView:
    """A text as it reads, and where each of its characters stands in the one it comes from."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, text: str) -> TextView:
        return cls(text, range(len(text)), range(1, len(text) + 1))

    def find(self, key: str) -> Iterator[tuple[int, int]]:
        at = self.text.find(key)
        while at >= 0:
            yield self.starts[at], self.ends[at + len(key) - 1]
            at = self.text.find(key, at + 1)

    def replaced(self, pattern: re.Pattern[str], read: Callable[[re.Match[str]], str]) -> TextView:
        """With each match as one character, or none."""
        texts, starts, ends, at = list[str](), list[int](), list[int](), 0
        for found in pattern.finditer(self.text):
            character = read(found)
            texts += self.text[at : found.start()], character
            starts += self.starts[at : found.start()]
            ends += self.ends[at : found.start()]
            if character:
                starts.append(self.starts[found.start()])
                ends.append(self.ends[found.end() - 1])
            at = found.end()
        whole = "".join([*texts, self.text[at:]])
        return TextView(whole, [*starts, *self.starts[at:]], [*ends, *self.ends[at:]])


def views(text: str) -> Iterator[TextView]:
    """The text in each way that it can be read."""
    raw = TextView.of(text)
    read = unescaped(raw)
    plain = squeezed(read)
    yield from (plain, bare(read))
    yield bare(raw.replaced(_QUOTED, lambda found: chr(int(found["p"] or "0", 16))))
    yield bare(raw.replaced(_DECIMAL, lambda found: chr(int(found[0]))))
    for runs, decoded in ((_BASE64, from_base64), (_HEX, from_hex)):
        dense = plain.replaced(_BETWEEN, lambda found: "") if runs is _HEX else plain
        for run in runs.finditer(dense.text):
            part = slice(*run.span())
            letters = TextView(run[0], dense.starts[part], dense.ends[part])
            for view in decoded(letters):
                yield squeezed(unescaped(view))


def unescaped(view: TextView) -> TextView:
    """Backslashes, percent signs and entities read; also those that were written down so again."""
    for _ in range(MOST_LAYERS):
        before, view = view, view.replaced(_ESCAPE, _read)
        if before.text == view.text:
            break
    return view


def squeezed(view: TextView) -> TextView:
    return view.replaced(_BLANK, lambda found: "")


def bare(view: TextView) -> TextView:
    """Letters and digits only, without regard to capitals: whatever frames or breaks lines, and
    whatever stands between characters."""
    found = view.replaced(_MARKS, lambda found: "")
    return TextView(found.text.translate(_SMALL), found.starts, found.ends)


def _read(found: re.Match[str]) -> str:
    hexadecimal = (found[name] for name in ("x", "u", "U", "r", "p", "P"))
    if digits := next(filter(None, hexadecimal), None):
        return chr(min(int(digits, 16), sys.maxunicode))
    if found["o"]:
        return chr(int(found["o"], 8))
    if entity := found["entity"]:
        return html.unescape(entity)[:1]
    return " " if found["blank"] else ""


def from_base64(letters: TextView) -> Iterator[TextView]:
    """Three bytes are four letters, so it depends on where they began."""
    for start in range(4):
        run = letters.text[start:].translate(_URL_SAFE)
        whole = len(run) - (len(run) % 4 == 1)
        data = base64.b64decode(run[:whole] + "A" * (-whole % 4))[: whole * 6 // 8]
        first = [start + n * 8 // 6 for n in range(len(data))]
        last = [start + (n * 8 + 7) // 6 for n in range(len(data))]
        yield _bytes(data, letters, first, last)


def from_hex(digits: TextView) -> Iterator[TextView]:
    for start in range(2):
        whole = (len(digits.text) - start) // 2
        data = bytes.fromhex(digits.text[start : start + 2 * whole])
        first = range(start, start + 2 * whole, 2)
        yield _bytes(data, digits, first, range(start + 1, start + 2 * whole, 2))


def _bytes(data: bytes, written: TextView, first: Sequence[int], last: Sequence[int]) -> TextView:
    starts, ends = [written.starts[n] for n in first], [written.ends[n] for n in last]
    return TextView(data.decode("latin-1"), starts, ends)


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found
