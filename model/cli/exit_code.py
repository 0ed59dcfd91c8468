"""How a command ends: 0, or one line that says why not and a code for it.

2: the input is at fault, 130: interrupted, 1: the machine let the work down (a full disk, no
memory). Anything else is a fault of the program and keeps its traceback.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable

from model.cli.text import say
from model.common.errors import InputError


def exit_code(
    work: Callable[[], int],
    failed: str,
    *,
    interrupted: str = "interrupted",
    mishap: Callable[[Exception], bool] = lambda error: isinstance(error, OSError),
    remedy: str | None = None,
) -> int:
    """The code that the work returns, or that of what came in between; `failed` begins its line."""
    # Python looks for cycles among all that was ever loaded before it ends: four fifths of the time
    # between a command's last word and the prompt, for memory that goes with the process anyway.
    atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", "") in ("strict", "surrogateescape"):
            # A name in Greek is no reason to end.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        return work()
    except InputError as error:
        said, code = str(error), 2
    except KeyboardInterrupt:
        said, code = interrupted, 130
    except Exception as error:
        if not mishap(error):
            raise
        said, code = "\n".join(filter(None, [f"{failed}: {error}", remedy])), 1
    say(said, sys.stderr)
    return code


def of_the_machine(error: Exception) -> bool:
    """Where a model runs, memory and threads can fail as well; torch has no other class for it."""
    return isinstance(error, OSError | RuntimeError)
