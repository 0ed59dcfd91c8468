"""`python -m tuner.search`: from one command to a finished study."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from model.cli.exit_code import exit_code
from model.cli.flags import given_for, sound
from model.cli.parser import Parser, command_parser
from model.cli.status import doing
from model.cli.text import say
from model.common.errors import Gathered
from tuner.runs.request import ExecutionOptions, SearchRequest

if TYPE_CHECKING:
    from tuner.search.finish import SearchResult

EXAMPLES = {
    "laptop": "",
    "cluster": "--address auto --space full --tasks cs224n --data /data/cs224n \\\n"
    "                --encoder bert-base-uncased --num-samples 200 --gpus-per-trial 0.5 --name big",
    "resume": "--resume --name big",
}


def make_parser() -> Parser:
    about = "Search the settings of a multitask text encoder."
    parser = command_parser("search", about, EXAMPLES, usage="[flags]")
    parser.add_table(SearchRequest)
    parser.add_table(ExecutionOptions)
    text = "Check everything, and run one step of the most expensive setting."
    parser.group("the run").add_argument("--dry-run", action="store_true", help=text)
    parser.check = setting_faults
    return parser


def setting_faults(arguments: argparse.Namespace) -> list[str]:
    """What the space and --set have wrong, beside flags that cannot be read."""
    from tuner.space.space import load_space  # without PyTorch, so that a typo is told at once

    gathered = Gathered("search")
    given = given_for(SearchRequest, vars(arguments))
    with gathered:
        if not getattr(arguments, "resume", False):  # a run that goes on has a space of its own
            request = sound(SearchRequest(**given))
            load_space(request.space, request.tasks, request.overrides)
    return gathered.faults


def main(argv: Sequence[str] | None = None) -> int:
    remedy = "what was done is kept; mend that, and --resume goes on"
    return exit_code(
        lambda: run(make_parser().parse_args(argv)), "the search stopped", remedy=remedy
    )


def run(arguments: argparse.Namespace) -> int:
    quiet = getattr(arguments, "quiet", False)
    with doing("loading PyTorch, Ray and Optuna", quiet):
        from tuner.search.driver import search

        request, options = read_arguments(arguments)
    if arguments.dry_run:
        from tuner.search.dry_run import dry_run

        with doing("checking everything, and trying the most expensive step", quiet):
            told = dry_run(request, options)
        say(told)
        return 0
    try:
        result = search(request, options)
    except KeyboardInterrupt:
        say(cut_short(request, options), sys.stderr)
        return EXIT_CODES["interrupted"]
    say(result.summary.text())
    if result.soup is not None:
        from tuner.soup.text import soup_text

        say(f"\n{soup_text(result.soup, result.folder, options.verbose)}")
    if result.complete:
        return 0
    if result.stopped == "failures":
        say(f"\n{first_failure(result)}", sys.stderr)
    from tuner.search.next_steps import resume_command

    say(f"\nstopped ({result.stopped}); nothing is lost. Go on with:", sys.stderr)
    say(f"  {resume_command(result.folder, options)}", sys.stderr)
    return EXIT_CODES.get(result.stopped or "", 1)


EXIT_CODES = {"time": 0, "interrupted": 130}


def cut_short(request: SearchRequest, options: ExecutionOptions) -> str:
    from tuner.runs.folder import name_of
    from tuner.runs.open import has_begun
    from tuner.search.next_steps import resume_command

    folder = options.storage_path / name_of(request, options)
    if not has_begun(folder):
        return "ended before anything was begun"
    return f"ended at once; what was done is kept. Go on with:\n  {resume_command(folder, options)}"


def first_failure(result: SearchResult) -> str:
    """Of those in a row that stopped the search, the first: the others likely say the same.

    By now the row may be over, as what ran beside them came to its end while the search drained.
    """
    row = result.state.longest_row
    first = result.state.trials[row[0]]
    return f"{len(row)} trials failed in a row; the first, {first.id}: {first.reason}\n" + (
        first.traceback.rstrip()
    )


def read_arguments(arguments: argparse.Namespace) -> tuple[SearchRequest, ExecutionOptions]:
    from tuner.search.checks import complete

    options = ExecutionOptions(**given_for(ExecutionOptions, vars(arguments)))
    return complete(given_for(SearchRequest, vars(arguments)), options)


if __name__ == "__main__":
    raise SystemExit(main())
