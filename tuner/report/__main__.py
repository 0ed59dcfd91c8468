"""`python -m tuner.report`: one page about a search, or about several side by side."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from model.cli.exit_code import exit_code
from model.cli.invocation import program
from model.cli.parser import Parser, add_data, command_parser
from model.cli.status import doing, warn
from model.cli.text import say
from tuner.runs.folder import REPORT

EXAMPLES = {
    "a run": "runs/default",
    "two runs": "runs/default runs/full --out compared.html",
    "moved data": "runs/big --data /data/cs224n --tensorboard",
}


def make_parser() -> Parser:
    about = "Write a page about a search: one file that opens offline."
    parser = command_parser("report", about, EXAMPLES)
    parser.add_argument(
        "run", nargs="+", type=Path, metavar="RUN", help="Read this search's folder."
    )
    text = f"Write this file (default: {REPORT} in the first run's folder)."
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
    add_data(parser)
    text = "Write the runs' TensorBoard files again as well."
    parser.add_argument("--tensorboard", action="store_true", help=text)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code(lambda: run(make_parser().parse_args(argv)), "no report")


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    with doing("loading"):
        from tuner.report.write import write_report
    with doing(f"writing the report of {', '.join(map(str, arguments.run))}"):
        out = write_report(arguments.run, arguments.out, data=arguments.data)
    size = out.stat().st_size / 1e6
    print(f"report  {out}  ({size:.1f} MB, {time.monotonic() - began:.1f} s)")
    for folder in arguments.run:
        with doing(f"writing the table of {folder}'s trials"):
            told = write_table(folder)
        if told is not None:
            say(told)
    if arguments.tensorboard:
        for folder in arguments.run:
            with doing(f"writing TensorBoard's files of {folder}"):
                from tuner.export.tensorboard.board import rebuild

                rebuild(folder, warn, data=arguments.data)
            print(shlex.join([program("tensorboard"), "--logdir", str(folder)]))
    return 0


def write_table(folder: Path) -> str | None:
    """In the run's own folder, which may well be one that only allows reading."""
    from tuner.runs.open import open_run
    from tuner.runs.trial_table import write_trials

    try:
        return f"trials  {write_trials(folder, open_run(folder).state)}"
    except OSError as error:
        warn(f"no table of trials: {error}")
        return None


if __name__ == "__main__":
    raise SystemExit(main())
