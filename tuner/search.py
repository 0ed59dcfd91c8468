"""`python -m tuner.search`: from one command to a finished study."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model import __version__
from model.exit_code import exit_code

if TYPE_CHECKING:
    from tuner.afterwards import SearchResult
    from tuner.asked import Asked, How

SAMPLERS = ("tpe", "random", "gp", "cmaes", "nsga2")
EXAMPLES = """
examples:
  laptop    python -m tuner.search
  cluster   python -m tuner.search --address auto --space full --tasks cs224n --data /data/cs224n \\
                --encoder bert-base-uncased --num-samples 200 --gpus-per-trial 0.5 --name big
  resume    python -m tuner.search --resume --name big
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tuner.search",
        description="Search the settings of a multitask text encoder.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to search")
    what.add_argument("--space", metavar="S", help="shipped space or file (default: default)")
    what.add_argument("--tasks", metavar="SET", help="task set (default: the space's)")
    what.add_argument("--data", metavar="DIR", help="folder with the tasks' files (default: none)")
    what.add_argument(
        "--encoder", metavar="NAME", help="minilm, tiny, a folder, a Hub id (default: the space's)"
    )
    what.add_argument(
        "--set", action="append", metavar="K=V", help="hold a setting in all trials (default: none)"
    )
    what.add_argument("--seed", type=int, metavar="N", help="of sampler and trials (default: 0)")
    how = parser.add_argument_group("how to search")
    how.add_argument("--num-samples", type=int, metavar="N", help="trials (default: 8)")
    how.add_argument("--sampler", choices=SAMPLERS, help="who proposes (default: tpe)")
    how.add_argument(
        "--objectives", metavar="A,B", help="tasks, for a Pareto front (default: overall)"
    )
    how.add_argument(
        "--max-examples",
        type=int,
        metavar="N",
        help="a trial's whole training (default: the space's)",
    )
    how.add_argument(
        "--grace-examples", type=int, metavar="N", help="before it may be stopped (default: 1/3)"
    )
    how.add_argument(
        "--reduction-factor", type=float, metavar="X", help="1 of X goes on (default: 2)"
    )
    how.add_argument("--no-early-stopping", action="store_true", help="train every trial in full")
    how.add_argument(
        "--confirm", metavar="NxS", help="run the best N again over S seeds, as 3x3 (default: no)"
    )
    how.add_argument("--keep", type=int, metavar="K", help="checkpoints of the best K (default: 5)")
    where = parser.add_argument_group("where to run")
    where.add_argument("--name", metavar="NAME", help="of the run (default: the space's)")
    where.add_argument(
        "--storage-path", metavar="DIR", help="or s3://bucket/path, gs://... (default: runs)"
    )
    where.add_argument(
        "--local-path",
        type=Path,
        metavar="DIR",
        help="with a URL: the driver's own copy (default: runs)",
    )
    where.add_argument(
        "--address", metavar="A", help="a Ray cluster, 'auto' on its head (default: none)"
    )
    where.add_argument(
        "--max-concurrent-trials", type=int, metavar="N", help="(default: what fits)"
    )
    where.add_argument(
        "--cpus-per-trial", type=float, metavar="X", help="threads too (default: an equal share)"
    )
    where.add_argument(
        "--gpus-per-trial",
        type=float,
        metavar="X",
        help="fractions too (default: 1 where there are any)",
    )
    where.add_argument(
        "--time-budget-s", type=float, metavar="S", help="then finish in order (default: never)"
    )
    where.add_argument("--resume", action="store_true", help="go on with the run of this name")
    where.add_argument("--force", action="store_true", help="resume although things changed")
    where.add_argument(
        "--no-soup", dest="soup", action="store_false", default=None, help="end without a soup"
    )
    where.add_argument("--dry-run", action="store_true", help="check, and fit one costly step")
    where.add_argument(
        "--no-report", dest="report", action="store_false", default=None, help="no report.html"
    )
    where.add_argument("-v", "--verbose", action="store_true", help="a line per evaluation too")
    where.add_argument("-q", "--quiet", action="store_true", help="only warnings and the summary")
    parser.add_argument("--version", action="version", version=f"stockpot {__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    remedy = "what was done is kept; mend that, and --resume goes on"
    return exit_code(lambda: run(arguments), "the search stopped", remedy=remedy)


def run(arguments: argparse.Namespace) -> int:
    from tuner.driver import search

    asked, how = read_arguments(arguments)
    if arguments.dry_run:
        from tuner.dry_run import dry_run

        print(dry_run(asked, how))
        return 0
    try:
        result = search(asked, how)
    except KeyboardInterrupt:
        print(cut_short(asked, how), file=sys.stderr)
        return EXIT_CODES["interrupted"]
    print(result.summary.text(), flush=True)
    if result.soup is not None:
        from tuner.soup_text import text_of

        print(f"\n{text_of(result.soup, result.folder)}", flush=True)
    if result.complete:
        return 0
    if result.stopped == "failures":
        print(f"\n{first_failure(result)}", file=sys.stderr)
    from tuner.next_steps import resume_command

    print(f"\nstopped ({result.stopped}); nothing is lost. Go on with:", file=sys.stderr)
    print(f"  {resume_command(result.folder, how)}", file=sys.stderr)
    return EXIT_CODES.get(result.stopped or "", 1)


EXIT_CODES = {"time": 0, "interrupted": 130}


def cut_short(asked: Asked, how: How) -> str:
    from tuner.next_steps import resume_command
    from tuner.run_folder import LEDGER, name_of

    folder = how.storage_path / name_of(asked, how)
    if not (folder / LEDGER).exists():
        return "ended before anything was begun"
    return f"ended at once; what was done is kept. Go on with:\n  {resume_command(folder, how)}"


def first_failure(result: SearchResult) -> str:
    """Of those in a row that stopped the search, the first: the others likely say the same.

    By now the row may be over, as what ran beside them came to its end while the search drained.
    """
    row = result.state.longest_row
    first = result.state.trials[row[0]]
    return f"{len(row)} trials failed in a row; the first, {first.id}: {first.reason}\n" + (
        first.traceback.rstrip()
    )


def read_arguments(arguments: argparse.Namespace) -> tuple[Asked, How]:
    from tuner.asked import Asked, How
    from tuner.run_folder import complete

    how = How(**_given(arguments, {item.name for item in fields(How)}))
    given = _given(arguments, {item.name for item in fields(Asked)})
    return complete({**given, **_converted(arguments)}, how)


def _given(arguments: argparse.Namespace, names: set[str]) -> dict[str, Any]:
    plain = names - {"set", "objectives", "confirm", "early_stopping"}
    found = {name: getattr(arguments, name, None) for name in plain}
    return {name: value for name, value in found.items() if value is not None}


def _converted(arguments: argparse.Namespace) -> dict[str, Any]:
    from model.config import parse_assignments

    found: dict[str, Any] = {}
    if arguments.set:
        found["set"] = parse_assignments(arguments.set)
    if arguments.objectives:
        found["objectives"] = tuple(part.strip() for part in arguments.objectives.split(","))
    if arguments.confirm:
        found["confirm"] = arguments.confirm
    if arguments.no_early_stopping:
        found["early_stopping"] = False
    return found


if __name__ == "__main__":
    raise SystemExit(main())
