"""Benchmarks as they are run: each is a program in its folder."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from runpy import run_path
from tempfile import TemporaryFile

from tests.forks import Fork

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(program: str, *arguments: str) -> str:
    """What a program of that folder prints, or lines of Python as if they were one."""
    with TemporaryFile("w+", encoding="utf-8") as out:

        def work() -> int:
            os.chdir(BENCHMARKS)
            sys.path.insert(0, str(BENCHMARKS))
            sys.argv = [program, *arguments]
            with redirect_stdout(out), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if program.endswith(".py"):
                    run_path(str(BENCHMARKS / program), run_name="__main__")
                else:
                    exec(program, {"__name__": "__main__"})
            out.flush()
            return 0

        done = Fork(work)
        faults, _ = done.communicate(1200)
        assert done.returncode == 0, faults
        out.seek(0)
        return out.read()
