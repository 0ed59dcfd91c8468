"""Passwords and keys, kept out of whatever is written or shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

HIDDEN = "***"
_IN_URL = re.compile(r"(\b[a-zA-Z][a-zA-Z0-9+.-]*:/{1,2})[^/\s@'\"]+@")
_IN_QUERY = re.compile(
    r"([?&;][\w.-]*(?:key|secret|token|passw(?:or)?d|signature|credential)[\w.-]*=)[^&;\s'\"]+",
    re.IGNORECASE,
)
_AWS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_NAMES = re.compile(r"(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIALS)$", re.IGNORECASE)
SHORTEST = 8  # characters; a shorter value could be any word


def redact(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text without user names and passwords in URLs, keys in queries, and whatever this
    process has in its environment under the name of a key, a token or a password."""
    text = _IN_URL.sub(rf"\1{HIDDEN}@", text)
    text = _IN_QUERY.sub(rf"\1{HIDDEN}", text)
    text = _AWS_KEY.sub(HIDDEN, text)
    for name, value in environment.items():
        if len(value) >= SHORTEST and _NAMES.search(name) and value in text:
            text = text.replace(value, HIDDEN)
    return text
