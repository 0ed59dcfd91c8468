"""A program of ours, run as a person runs it."""

from __future__ import annotations

import subprocess


def run_program(command: list[str]) -> None:
    """Wait for it. Whatever ends the waiting ends it too, in order."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        try:
            told, _ = program.communicate()
        except BaseException:
            program.terminate()
            program.communicate()
            raise
    if program.returncode:
        last = told.decode(errors="replace").strip()[-2000:]
        raise RuntimeError(f"{' '.join(command)} ended with {program.returncode}:\n{last}")
