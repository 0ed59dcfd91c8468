"""How long commands take to begin and what memory they need for it: help, imports, a search.

    python benchmarks/startup.py [--against FOLDER] [--quick]

Each is a fresh process. The bare interpreter is measured too: nothing can start faster. FOLDER has
another version of the project (`git worktree add FOLDER COMMIT`), which is measured in turn, with
the packages of this environment, and whose dependencies are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sides.measure import interleave, spread

ROOT = Path(__file__).resolve().parents[1]
BARE, IMPORT, HELP = "bare interpreter", "import model", "tuner.search --help"
COMMANDS = {
    BARE: ["-c", "pass"],
    IMPORT: ["-c", "import model"],
    "stockpot --help": ["-m", "tuner", "--help"],
    HELP: ["-m", "tuner.search", "--help"],
    "model.train --help": ["-m", "model.train", "--help"],
    "import the driver": ["-c", "import tuner.search.driver"],
}
# In a small process: Linux counts the memory of whoever starts a process as that process's own.
MEASURE = """
import os, sys, time
silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
began = time.perf_counter()
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=silent)
_, status, used = os.wait4(process, 0)
print(time.perf_counter() - began, used.ru_maxrss / 1024)
sys.exit(os.waitstatus_to_exitcode(status))
"""
SEARCH = """
import sys
from pathlib import Path
import turnover
turnover.of_the_search("minilm", 1, Path(sys.argv[1]))
"""


def seconds(command: list[str], root: Path, peaks: list[float]) -> float:
    """Of a fresh process with the project of that folder; its peak of memory, in MB, is noted."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, sys.executable, *command],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    taken, peak = map(float, done.stdout.split())
    peaks.append(peak)
    return taken


def installed(root: Path) -> set[str]:
    """The packages that a plain installation of that folder's version brings here, with theirs."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    (block,) = re.findall(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    found: set[tuple[str, str]] = set()
    todo = [Requirement(line) for line in re.findall(r'"(.+?)"', block)]
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        for extra in ("", *one.extras):
            if (name, extra) not in found:
                found.add((name, extra))
                todo += needs(name, extra)
    return {name for name, _ in found}


def needs(name: str, extra: str) -> Iterator[Requirement]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return
    for one in map(Requirement, lines):
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            yield one


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
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another version")
    parser.add_argument("--quick", action="store_true", help="once, and no search")
    asked = parser.parse_args()
    roots = {"": ROOT} | ({", other": asked.against.resolve()} if asked.against else {})
    peaks: dict[str, list[float]] = {}
    sides: dict[str, Callable[[], float]] = {}
    for name, command in COMMANDS.items():
        for which, root in roots.items():
            noted = peaks[name + which] = []
            sides[name + which] = partial(seconds, command, root, noted)
    found = interleave(sides, 1 if asked.quick else asked.repeats)
    if asked.searches and not asked.quick:
        found |= interleave({"first step of a search": first_step}, asked.searches)
    goals = {IMPORT: "  goal: under 0.3", HELP: "  goal: under 1"}
    print("seconds")
    for name, values in found.items():
        print(f"  {name:28}{spread(values, 3)}{goals.get(name, '')}")
    print("MB at the peak")
    for name, values in peaks.items():
        print(f"  {name:28}{spread(values, 1)}")
    ours, *other = map(installed, roots.values())
    print(f"packages of a plain installation: {len(ours)}")
    for theirs in other:
        print(f"  more than the other: {', '.join(sorted(ours - theirs)) or 'none'}")
        print(f"  fewer: {', '.join(sorted(theirs - ours)) or 'none'}")


if __name__ == "__main__":
    main()
