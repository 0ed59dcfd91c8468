"""`python -m tuner.soup RUN`: one model out of the best checkpoints, and what that bought."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from model import __version__
from model.errors import InputError, suggest
from model.exit_code import exit_code, of_the_machine

EXAMPLES = """
examples:
  after a search   python -m tuner.soup runs/default
  more of it       python -m tuner.soup runs/big --halvings 3 --folders
  only some        python -m tuner.soup runs/big --methods 'greedy soup,mean,vote'

Killed half-way, the same command goes on. docs/soup.md says what each method is.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tuner.soup",
        description="Cook the best checkpoints of a run into one model.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to cook")
    what.add_argument("run", type=Path, metavar="RUN", help="a run's folder, as runs/default")
    what.add_argument(
        "-k", "--keep", type=int, metavar="K", help="of the best K trials (default: the search's)"
    )
    what.add_argument("--methods", metavar="A,B", help="only these (default: all)")
    what.add_argument("--data", type=Path, metavar="DIR", help="where the tasks' files are now")
    how = parser.add_argument_group("how to cook")
    how.add_argument(
        "--halvings", type=int, metavar="N", default=1, help="of dev, to cross-fit averages (1)"
    )
    how.add_argument("--folders", action="store_true", help="write every soup's model folder")
    how.add_argument("-q", "--quiet", action="store_true", help="only warnings and the table")
    parser.add_argument("--version", action="version", version=f"stockpot {__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = make_parser().parse_args(argv)
    interrupted = "ended; the same command goes on from here"
    return exit_code(
        lambda: run(arguments), "the soup stopped", interrupted=interrupted, mishap=of_the_machine
    )


def run(arguments: argparse.Namespace) -> int:
    from tuner.console import SearchConsole
    from tuner.cook import cook
    from tuner.lock import RunLock
    from tuner.run_folder import LOCK, RUN
    from tuner.soup_text import text_of

    folder = arguments.run.absolute()
    if not (folder / RUN).is_file():
        fault = f"no {RUN} in it; give the folder of a search, as runs/default"
        raise InputError(str(arguments.run), [fault])
    methods = read_methods(arguments.methods)
    console = SearchConsole(quiet=arguments.quiet)
    with RunLock(folder / LOCK, console.warn):
        soup = cook(
            folder,
            keep=arguments.keep,
            methods=methods,
            data=arguments.data,
            halvings=arguments.halvings,
            folders=arguments.folders,
            log=console.log,
            warn=console.warn,
        )
    print(text_of(soup, folder), flush=True)
    return 0


def read_methods(text: str | None) -> list[str] | None:
    from tuner.methods import METHODS

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
