"""Commands for people to copy, in the form in which this process was started.

They work from where the person stands: after `make` nothing of `.venv` is in PATH.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

CONSOLE = "stockpot"
MODULES = {"train": "model.train", "data": "model.data"}  # the others are tuner's


def program(name: str) -> str:
    """This environment's program: by its name where PATH finds it there, else by its path."""
    own = Path(sys.executable).absolute().parent / name
    found = shutil.which(name)
    if not own.is_file() or (found and Path(found).parent.samefile(own.parent)):
        return name
    return os.path.relpath(own) if own.is_relative_to(Path.cwd()) else str(own)


def command_words(name: str) -> list[str]:
    """`stockpot NAME` where that was typed, or where no `python` is this one; else `python -m`."""
    typed = Path(sys.argv[0]).stem == CONSOLE
    if typed or (program("python") != "python" and program(CONSOLE) != CONSOLE):
        return [program(CONSOLE), name]
    return [program("python"), "-m", MODULES.get(name, f"tuner.{name}")]


def command(name: str, *arguments: object) -> str:
    return shlex.join([*command_words(name), *map(str, arguments)])
