"""`python -m tuner.study`: an experiment of a paper, run, and its table with ours beside it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from model.cli.exit_code import exit_code
from model.cli.flags import Flag, flags_of, given_for
from model.cli.parser import Parser, command_parser
from model.cli.status import doing
from model.cli.text import say
from tuner.runs.request import ExecutionOptions

EXAMPLES = {
    "all": "list",
    "one": "show 004-orders",
    "run": "run 004-orders --tasks cs224n --data DIR --encoder minilm --examples 9000 --seeds 3",
    "go on": "run 004-orders --data DIR --encoder minilm --examples 9000 --seeds 3 --resume",
    "again": "table 004-orders",
    "a row": "ensemble 001-dropout 'Ensemble of five' --out runs/five",
}
INTERRUPTED = 130


def make_parser() -> Parser:
    from tuner.study.request import StudyRequest

    about = "Run a paper's experiment, and set its table beside ours."
    parser = command_parser("study", about, EXAMPLES)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="list | show | run | table | ensemble"
    )
    about = "Tell which studies there are."
    commands.add_parser("list", help=about, description=about)
    about = "Tell what a study varies, holds and reports."
    show = commands.add_parser("show", help=about, description=about)
    show.add_argument(
        "study", metavar="NAME", help="Take this study: a shipped one's name or a YAML file."
    )
    about = "Train every row of a study, and set its table."
    work = commands.add_parser("run", help=about, description=about)
    work.add_argument(
        "study", metavar="NAME", help="Take this study: a shipped one's name or a YAML file."
    )
    work.add_table(StudyRequest)
    work.add_table(ExecutionOptions)
    about = "Print the table from existing runs."
    table = commands.add_parser("table", help=about, description=about)
    table.add_argument(
        "study", metavar="NAME", help="Take this study: a shipped one's name or a YAML file."
    )
    about = "Write a row that was trained as a folder that predict takes."
    ensemble = commands.add_parser("ensemble", help=about, description=about)
    ensemble.add_argument(
        "study", metavar="NAME", help="Take this study: a shipped one's name or a YAML file."
    )
    ensemble.add_argument(
        "row", metavar="ROW", help="Take the row of this label, an ensemble's or any other."
    )
    ensemble.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="Write this folder, a new one."
    )
    flags = flags_of(ExecutionOptions)
    named = Flag("Read the run of this name.", "the run", "NAME", "the study's")
    for flag in (replace(flags["name"], flag=named), flags["storage_path"]):
        flag.add_to(table)
        flag.add_to(ensemble)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    remedy = "what was done is kept; mend that, and --resume goes on"
    return exit_code(
        lambda: run(make_parser().parse_args(argv)), "the study stopped", remedy=remedy
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.command == "list":
        from tuner.study.show import list_text

        say(list_text())
        return 0
    if arguments.command == "show":
        from tuner.study.show import show_text

        say(show_text(arguments.study))
        return 0
    with doing("loading PyTorch, Ray and Optuna", getattr(arguments, "quiet", False)):
        from tuner.study.request import StudyRequest
        from tuner.study.run import read_study, run_study

    options = ExecutionOptions(**given_for(ExecutionOptions, vars(arguments)))
    if arguments.command == "ensemble":
        from tuner.study.write import write_row

        say(write_row(arguments.study, arguments.row, options, arguments.out))
        return 0
    if arguments.command == "table":
        result = read_study(arguments.study, options)
    else:
        request = StudyRequest(**given_for(StudyRequest, vars(arguments)))
        result = run_study(arguments.study, request, options)
    say(result.text)
    if not result.complete:
        say(f"\nnot all of it is trained: {result.again} goes on")
    return 0 if result.complete or arguments.command == "table" else INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
