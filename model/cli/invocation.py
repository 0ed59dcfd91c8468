"""Commands for people to copy, in the form in which this process was started."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

CONSOLE = "stockpot"
MODULES = {"train": "model.train", "data": "model.data"}  # the others are tuner's


def command(name: str, *arguments: object) -> str:
    """`stockpot NAME ...` where that was typed, else `python -m ...`."""
    if Path(sys.argv[0]).stem == CONSOLE:
        start = [CONSOLE, name]
    else:
        start = ["python", "-m", MODULES.get(name, f"tuner.{name}")]
    return shlex.join([*start, *map(str, arguments)])
