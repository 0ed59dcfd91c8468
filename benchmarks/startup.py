"""How long commands take to begin: help, import, and a search up to its first step.

    python benchmarks/startup.py [--quick]

Each is a fresh process. The bare interpreter is measured too: nothing can start faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sides.measure import interleave, spread

BARE, IMPORT, HELP = "bare interpreter", "import model", "tuner.search --help"
COMMANDS = {
    BARE: ["-c", "pass"],
    IMPORT: ["-c", "import model"],
    "stockpot --help": ["-m", "tuner", "--help"],
    HELP: ["-m", "tuner.search", "--help"],
    "model.train --help": ["-m", "model.train", "--help"],
}
SEARCH = """
import sys
from pathlib import Path
import turnover
turnover.of_the_search("minilm", 1, Path(sys.argv[1]))
"""


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def first_step() -> float:
    """From the start of the search's process to the first step of its first trial."""
    here = str(Path(__file__).resolve().parent)
    with tempfile.TemporaryDirectory(prefix="stockpot-startup-") as folder:
        began = time.time()
        subprocess.run(
            [sys.executable, "-c", SEARCH, folder],
            env={**os.environ, "PYTHONPATH": here},  # from which Ray's workers import it too
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        notes = (Path(folder) / "turnover.jsonl").read_text(encoding="utf-8")
    return float(json.loads(notes.splitlines()[0])["first"]) - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--searches", type=int, default=5, help="0: none")
    parser.add_argument("--quick", action="store_true", help="once, and no search")
    asked = parser.parse_args()
    sides = {name: lambda c=command: seconds(c) for name, command in COMMANDS.items()}
    found = interleave(sides, 1 if asked.quick else asked.repeats)  # type: ignore[arg-type]
    if asked.searches and not asked.quick:
        found |= interleave({"first step of a search": first_step}, asked.searches)
    goals = {IMPORT: "  asked: under 0.3", HELP: "  asked: under 1"}
    print("seconds")
    for name, values in found.items():
        print(f"  {name:24}{spread(values, 3)}{goals.get(name, '')}")


if __name__ == "__main__":
    main()
