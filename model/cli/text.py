"""Numbers and lines as people read them."""

from __future__ import annotations

import re
from pathlib import Path

from model.common.secrets import redact

CONTROL = re.compile(r"(\x1b\[[0-?]*[ -/]*[@-~])|\x1b|[\x00-\x1a\x1c-\x1f\x7f-\x9f\u2028\u2029]+")


def short(value: float | None) -> str:
    """0.7123 -> .712, as scores are read."""
    return "-" if value is None else f"{value:.3f}".replace("0.", ".", 1)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def one_line(text: str) -> str:
    """Without control characters, colours and secrets, whatever a message brought along."""
    return redact(CONTROL.sub(lambda found: "" if found[1] else " ", text))


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def shown_path(path: Path) -> str:
    """As short as can be copied; never cut."""
    here = Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)
