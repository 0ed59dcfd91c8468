"""Numbers and lines as people read them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

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
    return tame(redact(text))


def tame(line: str) -> str:
    """Without what would command the terminal."""
    return CONTROL.sub(lambda found: "" if found[1] else " ", line)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print to a stream that may be closed or know few characters: the work is done by now, and
    nobody should lose it to its last line. What it quotes may be a stranger's."""
    stream = stream or sys.stdout
    parts = re.split("(\r?\n|\t)", text)  # between these every other one
    parts[::2] = map(tame, parts[::2])
    text = "".join(parts).replace("\r\n", "\n")
    try:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), file=stream, flush=True)
    except (OSError, ValueError, AttributeError):  # a closed pipe, a terminal that has gone
        # What is left in its buffer would be tried once more when Python ends.
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def settings_text(settings: Mapping[str, Any]) -> str:
    """encoder.dropout=0.1 smart.weight=0.02: full names, and as many digits as tell apart."""
    return " ".join(
        f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in settings.items()
    )


def shown_path(path: Path) -> str:
    """As short as can be copied; never cut."""
    here = Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)
