"""Passwords and keys, kept out of whatever is written or shown.

Always the raw text first, then whatever makes it shorter or tidier: half a secret, or one without
its line breaks, would not be recognised any more.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from urllib.parse import quote, quote_plus

HIDDEN = "***"
SCHEME = r"\b[a-zA-Z][a-zA-Z0-9+.-]*:/{1,2}"
_IN_URL = re.compile(rf"({SCHEME})[^/\s@'\"]+@")
# A password may hold anything, as "/"; but a host's port is no password.
_WITH_PASSWORD = re.compile(rf"({SCHEME})[^/\s@'\":]+:(?!\d{{1,5}}/)[^\s'\"]*@")
_IN_QUERY = re.compile(
    r"([?&;][\w.-]*(?:key|secret|token|passw(?:or)?d|signature|credential)[\w.-]*=)[^&;\s'\"]+",
    re.IGNORECASE,
)
_IN_HEADER = re.compile(
    r"(\bauthorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token)\s+)[^\s'\",]+", re.IGNORECASE
)
_AWS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_NAMES = re.compile(r"(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS)$", re.IGNORECASE)
SHORTEST = 8  # characters; a shorter value could be any word


def redact(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text without user names and passwords in URLs, keys in queries, and whatever this
    process has in its environment under the name of a key, a token or a password, in whatever
    encoding it is there."""
    for name, value in environment.items():
        if len(value) >= SHORTEST and _NAMES.search(name):
            for form in forms(value):
                text = text.replace(form, HIDDEN)
    text = _WITH_PASSWORD.sub(rf"\1{HIDDEN}@", text)
    text = _IN_URL.sub(rf"\1{HIDDEN}@", text)
    text = _IN_QUERY.sub(rf"\1{HIDDEN}", text)
    text = _IN_HEADER.sub(rf"\1{HIDDEN}", text)
    return _AWS_KEY.sub(HIDDEN, text)


def brief(text: str, most: int = 500, environment: Mapping[str, str] = os.environ) -> str:
    """In one line of so many characters, without secrets."""
    return " ".join(redact(text, environment).split())[:most]


@lru_cache(maxsize=256)
def forms(secret: str) -> tuple[str, ...]:
    """How a secret may stand in a text, the longest first: as it is, its lines by themselves, and
    each of these as programs write them down."""
    plain = {secret, " ".join(secret.split()), *secret.splitlines()}
    plain |= {line.strip() for line in secret.splitlines()}
    found = {form for text in plain if len(text) >= SHORTEST for form in _encoded(text)}
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def _encoded(text: str) -> Iterator[str]:
    yield text
    once = {repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    once |= {text.encode("unicode_escape").decode(), text.replace("'", "\\'")}
    once |= {html.escape(text), html.escape(text, quote=False)}
    data = text.encode("utf-8", "surrogatepass")
    for safe in ("", "/", "~()*!.'", ":/"):
        for escaped in (quote(data, safe=safe), quote_plus(data, safe=safe)):
            once |= {escaped, re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)}
    once |= {data.hex(), data.hex().upper(), repr(data)[2:-1]}
    yield from once
    yield from {repr(form)[1:-1] for form in once} | {json.dumps(form)[1:-1] for form in once}
    # Base64 writes three bytes as four letters, so it depends on what stands before.
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            written = encode(bytes(before) + data).decode().rstrip("=")
            sure = written[-(-before * 8 // 6) :] if before else written
            if len(data) % 3 != (3 - before) % 3 and len(sure) > SHORTEST:
                sure = sure[:-1]  # its last letter depends on what comes after
            if len(sure) >= SHORTEST:
                yield sure
