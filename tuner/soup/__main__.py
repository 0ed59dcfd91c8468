"""`python -m tuner.soup RUN`: one model out of the best checkpoints, and what that bought."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from model.cli.exit_code import exit_code, of_the_machine
from model.cli.parser import Parser, add_data, add_quiet, command_parser
from model.common.errors import InputError, suggest

EXAMPLES = {
    "after a search": "runs/default",
    "more of it": "runs/big --halvings 3 --folders",
    "only some": "runs/big --methods 'greedy soup,mean,vote'",
}
NOTE = "Killed half-way, the same command goes on. docs/soup.md says what each method is."


def make_parser() -> Parser:
    about = "Combine the best checkpoints of a run into one model."
    parser = command_parser("soup", about, EXAMPLES, NOTE)
    what = parser.add_argument_group("what to combine")
    what.add_argument("run", type=Path, metavar="RUN", help="A run's folder, as runs/default.")
    text = "Combine the best K trials (default: the search's --keep)."
    what.add_argument("-k", "--keep", type=int, metavar="K", help=text)
    what.add_argument("--methods", metavar="A,B", help="Only these methods (default: all).")
    add_data(what)
    how = parser.add_argument_group("how to combine")
    text = "Halvings of dev, to cross-fit averages (default: 1)."
    how.add_argument("--halvings", type=int, metavar="N", default=1, help=text)
    how.add_argument("--folders", action="store_true", help="Write every soup's model folder.")
    add_quiet(how, "Print only warnings and the table.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code(
        lambda: run(make_parser().parse_args(argv)),
        "the soup stopped",
        interrupted="ended; the same command goes on from here",
        mishap=of_the_machine,
    )


def run(arguments: argparse.Namespace) -> int:
    from tuner.runs.folder import LOCK, RUN
    from tuner.runs.lock import RunLock
    from tuner.soup.make import make_soup
    from tuner.soup.text import soup_text
    from tuner.terminal import SearchConsole

    folder = arguments.run.absolute()
    if not (folder / RUN).is_file():
        fault = f"no {RUN} in it; give the folder of a search, as runs/default"
        raise InputError(str(arguments.run), [fault])
    methods = read_methods(arguments.methods)
    console = SearchConsole(quiet=arguments.quiet)
    with RunLock(folder / LOCK, console.warn):
        soup = make_soup(
            folder,
            keep=arguments.keep,
            methods=methods,
            data=arguments.data,
            halvings=arguments.halvings,
            folders=arguments.folders,
            log=console.log,
            warn=console.warn,
        )
    print(soup_text(soup, folder), flush=True)
    return 0


def read_methods(text: str | None) -> list[str] | None:
    from tuner.soup.methods import METHODS

    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    faults = [
        f"no method is called '{n}'; {suggest(n, METHODS)}" for n in names if n not in METHODS
    ]
    if faults or not names:
        raise InputError("--methods", faults or [f"name some of {', '.join(METHODS)}"])
    return names


if __name__ == "__main__":
    raise SystemExit(main())
