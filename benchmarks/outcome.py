"""What a person gets from the same compute: one run, presets, searches of others, ours.

    python benchmarks/outcome.py --tasks sample --budget 9000 --seeds 0 1 2
    python benchmarks/outcome.py --tasks cs224n --data DIR --budget 36000 --arms default ours
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
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BUDGETS = {"sample": 9000, "cs224n": 36_000}
DEV_ROWS = 400
OURS = "ours"
OUT = "outcome.parquet"
QUICK = {"encoder": "tiny", "budget": 240, "trials": 2, "dev_rows": 40, "held_out": 60}


def run_cells(arguments: argparse.Namespace, work: Path) -> int:
    """Do what is missing, one cell after the other; the number of those that failed."""
    import torch
    from sides.arms import ARMS, GENEROUS
    from sides.cell import Cell
    from sides.held_out import get_material
    from sides.measure import THREADS
    from sides.outcome_table import add_rows, read_rows, table

    torch.set_num_threads(THREADS)
    material = get_material(
        arguments.tasks, arguments.data, work, arguments.dev_rows, arguments.held_out
    )
    arms, place, failed = ARMS | GENEROUS, work / "cell", 0
    for seed in arguments.seeds:
        for arm in arguments.arms:
            name = arguments.ours_name if arm == OURS else arm
            key = cell_key(arguments, name, seed)
            if any(key.items() <= row.items() for row in read_rows(arguments.out)):
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
                search_flags=shlex.split(arguments.ours_flags),
                search_name=arguments.ours_name,
            )
            began, version = time.monotonic(), commit()
            try:
                handed = arms[arm](cell)
                took = {"seconds": time.monotonic() - began, "commit": version}
                rows = [
                    cell_key(arguments, label, seed) | measured(cell, given) | took
                    for label, given in handed.items()
                ]
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
    print(f"\n{table(read_rows(arguments.out))}")
    return failed


def cell_key(arguments: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    of_all = {name: getattr(arguments, name) for name in ("tasks", "budget", "encoder", "dev_rows")}
    return of_all | {"arm": name, "seed": seed}


def measured(cell: Any, handed: Any) -> dict[str, Any]:
    """What stands in a row beside its key."""
    from sides.held_out import score_model

    found: dict[str, Any] = {}
    for name in ("held_out", "dev"):
        scores = score_model(handed.model, cell.material.tasks, getattr(cell.material, name))
        found[name] = scores.overall.value
        found |= {f"{name}.{task}": score.value for task, score in scores.tasks.items()}
    return found | {
        "examples": handed.examples,
        "evaluated": handed.evaluated,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "flags": shlex.join(cell.search_flags),
    }


def commit() -> str:
    """What was measured, with a + where the packages differ from it."""

    def git(*command: str) -> str:
        git_command = ["git", "-C", str(HERE.parent), *command]
        return subprocess.run(git_command, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "model", "tuner", "search_spaces")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def make_parser() -> argparse.ArgumentParser:
    from sides.arms import ARMS, GENEROUS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", choices=BUDGETS, default="sample")
    parser.add_argument("--data", type=Path, help="folder of the task set's files")
    parser.add_argument("--budget", type=int, help="training examples of an arm, in all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    names = [*ARMS, *GENEROUS]
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=names, metavar="ARM")
    parser.add_argument("--dev-rows", type=int, default=DEV_ROWS, help="of each task, to choose by")
    parser.add_argument("--ours-flags", default="", help="more flags for the search")
    parser.add_argument("--ours-name", default=OURS, help="its name in the table, if it has more")
    parser.add_argument("--work", type=Path, help="scratch folder (default: a temporary one)")
    parser.add_argument("--out", type=Path, help=f"its rows (default: benchmarks/{OUT})")
    parser.add_argument("--report", action="store_true", help="print the table of what is there")
    parser.add_argument("--quick", action="store_true", help="tiny, to see it work")
    parser.set_defaults(encoder="minilm", trials=8, held_out=1000)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    if arguments.report:
        from sides.outcome_table import read_rows, table

        print(table(read_rows(arguments.out or HERE / OUT)))
        return 0
    if arguments.quick:
        vars(arguments).update(QUICK, seeds=arguments.seeds[:1])
    arguments.budget = arguments.budget or BUDGETS[arguments.tasks]
    # A search that runs as a program of its own is then ended in order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    temporary = tempfile.TemporaryDirectory(prefix="stockpot-outcome-")
    with temporary if arguments.work is None else nullcontext(arguments.work) as name:
        work = Path(name).absolute()
        arguments.out = arguments.out or (work if arguments.quick else HERE) / OUT
        return 1 if run_cells(arguments, work) else 0


if __name__ == "__main__":
    raise SystemExit(main())
