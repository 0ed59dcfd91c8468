"""What a person gets from the same compute: one run, presets, searches of others, ours.

    python benchmarks/outcome.py --tasks sample --budget 9000 --seeds 0 1 2
    python benchmarks/outcome.py --tasks cs224n --data DIR --budget 36000 --arms default ours
    python benchmarks/outcome.py --arms ours --ours-without promotion
    python benchmarks/outcome.py --report

Every arm may train on the same number of examples and chooses by the same dev rows. What it hands
out is scored on 1,000 rows of each task that no arm has ever seen. `sides/arms.py` has the arms.

It takes hours. Each finished cell (tasks, budget, arm, seed) is a row of `--out`, and what is there
is not done again: to go on after a kill, start it again. In parentheses stand standard errors over
the seeds; differences are of the same seed. The scratch folder takes up to 20 GB.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any

import torch
from sides.arms import ARMS, GENEROUS
from sides.cell import Cell, Handed
from sides.held_out import HELD_OUT, get_material, score_model
from sides.measure import THREADS
from sides.our_search import PARTS
from sides.outcome_table import CONDITIONS, Row, add_rows, read_rows, table

HERE = Path(__file__).parent
OUT = "outcome.parquet"
BUDGETS = {"sample": 9000, "cs224n": 36_000}
USUAL = {"encoder": "minilm", "trials": 8, "held_out": HELD_OUT}
QUICK = {"encoder": "tiny", "trials": 2, "held_out": 60, "budget": 240, "dev_rows": 40}


def run_cells(arguments: argparse.Namespace, work: Path) -> int:
    """Do what is missing, one cell after the other; the number of those that failed."""
    torch.set_num_threads(arguments.threads)
    material = get_material(
        arguments.tasks, arguments.data, work, arguments.dev_rows, arguments.held_out
    )
    place, failed = work / "cell", 0
    for seed, arm in product(arguments.seeds, arguments.arms):
        name = arguments.ours_name if arm == "ours" else arm
        key = {each: getattr(arguments, each) for each in CONDITIONS} | {"seed": seed}
        if any((key | {"arm": name}).items() <= row.items() for row in read_rows(arguments.out)):
            continue
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        cell = Cell(
            material=material,
            budget=arguments.budget,
            seed=seed,
            encoder=arguments.encoder,
            dev_rows=arguments.dev_rows,
            trials=arguments.trials,
            work=place,
            search_flags=shlex.split(arguments.ours_flags) if arm == "ours" else (),
            search_name=arguments.ours_name,
            without=arguments.ours_without or "",
        )
        try:
            rows = [key | row for row in run_cell(arm, cell)]
            if arguments.keep_runs is not None:
                keep_run(place / "run", arguments.keep_runs / f"{arguments.tasks}-{name}-{seed}")
        except Exception:  # the others may do, and there are hours of them
            traceback.print_exc()
            print(f"{name}, seed {seed}: failed; start again to try again", file=sys.stderr)
            failed += 1
            continue
        finally:
            shutil.rmtree(place, ignore_errors=True)
        add_rows(arguments.out, rows)
        for row in rows:
            print(
                f"{row['arm']:22} seed {seed}  {row['held_out']:.4f} (dev {row['dev']:.4f})  "
                f"{row['examples']:,} examples  {row['seconds']:.0f} s",
                flush=True,
            )
    return failed


def keep_run(run: Path, place: Path) -> None:
    """Where `soup.py` finds it; arms other than searches leave none."""
    if run.is_dir():
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(run, place)


def run_cell(arm: str, cell: Cell) -> list[Row]:
    """A row for each model that the arm hands out."""
    began, version = time.monotonic(), commit()
    handed = (ARMS | GENEROUS)[arm](cell)
    took = time.monotonic() - began
    rows = []
    for name, model in handed.items():
        seconds = took if model.seconds is None else model.seconds
        known = {"arm": name, "seconds": seconds, "commit": version}
        rows.append(known | measured(cell, model))
    return rows


def measured(cell: Cell, handed: Handed) -> dict[str, Any]:
    return (
        (handed.scores or scores_of(cell, handed.model))
        | handed.more
        | {
            "examples": handed.examples,
            "evaluated": handed.evaluated,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "flags": shlex.join(cell.search_flags),
        }
    )


def scores_of(cell: Cell, model: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, rows in (("held_out", cell.material.held_out), ("dev", cell.material.dev)):
        scores = score_model(model, cell.material.tasks, rows)
        found[name] = scores.overall.value
        found |= {f"{name}.{task}": score.value for task, score in scores.tasks.items()}
    return found


def commit() -> str:
    """What was measured, with a + where the packages differ from it."""

    def git(*command: str) -> str:
        git_command = ["git", "-C", str(HERE.parent), *command]
        return subprocess.run(git_command, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "model", "tuner", "search_spaces")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", choices=BUDGETS, default="sample")
    parser.add_argument("--data", type=Path, help="folder of the task set's files")
    parser.add_argument("--budget", type=int, help="training examples of an arm, in all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    names = [*ARMS, *GENEROUS]
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=names, metavar="ARM")
    parser.add_argument("--dev-rows", type=int, default=400, help="of each task, to choose by")
    parser.add_argument("--threads", type=int, default=THREADS, help="of runs without Ray")
    parser.add_argument("--ours-flags", default="", help="more flags for the search")
    parser.add_argument("--ours-name", default="ours", help="its name in the table, if it has more")
    parser.add_argument("--ours-without", choices=PARTS, help="a part that our search leaves out")
    parser.add_argument("--work", type=Path, help="scratch folder (default: a temporary one)")
    text = "keep the searches' runs here, as for soup.py (their data are in --work)"
    parser.add_argument("--keep-runs", type=Path, metavar="DIR", help=text)
    parser.add_argument("--out", type=Path, help=f"its rows (default: benchmarks/{OUT})")
    parser.add_argument("--report", action="store_true", help="print the table of what is there")
    parser.add_argument("--quick", action="store_true", help="tiny, to see it work")
    parser.set_defaults(**USUAL)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    if arguments.quick:
        vars(arguments).update(QUICK, seeds=arguments.seeds[:1])
    arguments.budget = arguments.budget or BUDGETS[arguments.tasks]
    if arguments.ours_without:
        arguments.ours_name = f"ours-without-{arguments.ours_without}"
    scratch = tempfile.TemporaryDirectory if arguments.work is None else nullcontext
    failed = 0
    with scratch(arguments.work) as name:
        work = Path(name).absolute()
        arguments.out = arguments.out or (work if arguments.quick else HERE) / OUT
        if not arguments.report:
            # An exception, so that a search that runs as a program of its own is ended too.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; start it again to go on"))
            failed = run_cells(arguments, work)
        print(table(read_rows(arguments.out)) or f"{arguments.out} has no rows yet")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
