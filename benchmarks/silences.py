"""The longest silences of the commands that people wait for, as a terminal shows them.

A silence is the time between two outputs on a pseudo-terminal, from the command's start to its
last word; what it takes to end after that stands beside it, as does the machine's load: a process
that waits for a core says nothing either. `work` is the most processor time in one silence, which
hardly depends on the load.

    python benchmarks/silences.py            # a search as `make search` runs it, and what follows
    python benchmarks/silences.py --quick    # with a tiny encoder
    python benchmarks/silences.py --record DIR    # keeps the run and what was said, for pictures
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Silence:
    seconds: float
    work: float  # seconds of processor time in it, which a crowded machine does not stretch
    at: float  # seconds after the start
    after: str  # what was said last


def listen(command: Sequence[str], folder: Path) -> tuple[float, list[Silence], Silence, bytes]:
    """How long a command takes, its silences, the longest first, its end, and all it said."""
    ours, its = pty.openpty()
    began = time.monotonic()
    # A terminal of people, and not of whoever runs this.
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=its, stderr=its
    )
    os.close(its)
    found, last, worked, said, record = [], began, 0.0, "(the start)", b""
    while True:
        try:
            heard = os.read(ours, 65536)
        except OSError:  # the terminal's other end is closed
            heard = b""
        now, work = time.monotonic(), processor_seconds(process)
        record += heard
        found.append(Silence(now - last, work - worked, last - began, said))
        if not heard:
            break
        worked = work
        lines = re.split(r"[\r\n]", CONTROL.sub("", heard.decode(errors="replace")))
        last, said = now, next((line for line in reversed(lines) if line.strip()), said)
    os.close(ours)
    if process.wait():
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {said}")
    *silences, end = found
    return now - began, sorted(silences, key=lambda each: -each.seconds), end, record


def processor_seconds(process: subprocess.Popen[bytes]) -> float:
    """Of the process so far; as its parent, we can read it even when it has just ended."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="A tiny encoder, few examples.")
    text = "Work in this folder, and keep the run there and what each command said."
    parser.add_argument("--record", type=Path, metavar="DIR", help=text)
    given = parser.parse_args()
    quick = given.quick
    few = ["--encoder", "tiny", "--budget-examples", "600"] if quick else []
    with tempfile.TemporaryDirectory(prefix="stockpot-silences-") as name:
        folder = given.record or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        python = [sys.executable, "-m"]
        commands = {
            "search": [*python, "tuner.search", *few],
            "resume": [*python, "tuner.search", "--resume", "--num-samples", "8"],
            "soup": [*python, "tuner.soup", "runs/default"],
            "report": [*python, "tuner.report", "runs/default"],
            "report of two": [*python, "tuner.report", *["runs/default"] * 2, "--out", "two.html"],
            "predict": [*python, "tuner.predict", "runs/default", "--out", "predictions"],
            "predict --text": [*python, "tuner.predict", "runs/default", "--text", "never dull"],
        }
        heads = [f"{head:>9}" for head in ("seconds", "silence", "work", "end", "work", "load")]
        print(f"{'command':<16}{''.join(heads)}  after")
        for what, command in commands.items():
            seconds, silences, end, record = listen(command, folder)
            if given.record:
                (given.record / f"{what}.txt").write_bytes(record)
            load, longest = os.getloadavg()[0], silences[0]
            most = max(silence.work for silence in silences)
            figures = (seconds, longest.seconds, most, end.seconds, end.work, load)
            told = "".join(f"{figure:>9.1f}" for figure in figures)
            print(f"{what:<16}{told}  {longest.after.strip()[:60]}", flush=True)


if __name__ == "__main__":
    main()
