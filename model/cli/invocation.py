"""Commands for people to copy, in the form in which this process was started."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

CONSOLE = "stockpot"
MODULES = {"train": "model.train", "data": "model.data"}  # the others are tuner's


def command_words(name: str) -> list[str]:
    """`stockpot NAME` where that was typed, else `python -m ...`."""
    if Path(sys.argv[0]).stem == CONSOLE:
        return [CONSOLE, name]
    return ["python", "-m", MODULES.get(name, f"tuner.{name}")]


def command(name: str, *arguments: object) -> str:
    return shlex.join([*command_words(name), *map(str, arguments)])
