"""`python -m tuner.push RUN NAME`: the recommended model on the Hugging Face Hub."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from model.cli.exit_code import exit_code, of_the_machine
from model.cli.parser import Parser, add_quiet, command_parser
from model.cli.status import doing

EXAMPLES = {
    "what it would send": "runs/default me/films --dry-run",
    "what the run recommends": "runs/default me/films --license apache-2.0",
    "for yourself": "runs/default me/films --private",
    "another of its models": "runs/default me/films --model 'greedy soup'",
}


def make_parser() -> Parser:
    about = "Put the recommended model on the Hugging Face Hub, with a card."
    parser = command_parser("push", about, EXAMPLES)
    parser.add_argument("run", type=Path, metavar="RUN", help="Read this search's folder.")
    parser.add_argument(
        "name", metavar="NAME", help="Give the model this name on the Hub, as USER/MODEL."
    )
    parser.add_argument("--private", action="store_true", help="Let nobody else see it.")
    text = "Send another of the run's models: a soup's method."
    parser.add_argument("--model", metavar="NAME", help=text)
    text = "Name this licence in the card, as the Hub names it (default: the card says none)."
    parser.add_argument("--license", metavar="ID", help=text)
    text = "Check the folder and say what would be sent; send nothing."
    parser.add_argument("--dry-run", action="store_true", help=text)
    add_quiet(parser, "Print only warnings.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code(
        lambda: run(make_parser().parse_args(argv)),
        "the push failed",
        interrupted="interrupted; the same command goes on",
        mishap=of_the_machine,
        remedy="the same command goes on",
    )


def run(arguments: argparse.Namespace) -> int:
    with doing("loading", arguments.quiet):
        from tuner.export.hub.push import prepared, send

    with ExitStack() as stack:
        with doing("gathering the model's files", arguments.quiet):
            about = (arguments.name, arguments.model, arguments.license)
            made = stack.enter_context(prepared(arguments.run, *about))
        if not arguments.quiet:
            print(f"model   {made.who}")
            for name, size in made.files.items():
                print(f"  {name}  ({size / 1e6:.1f} MB)" if size > 1e5 else f"  {name}")
            if arguments.license is None:
                print("the card names no licence; --license does")
        if arguments.dry_run:
            return 0
        if not arguments.quiet:  # a line that stands: the Hub's library draws those that move
            print(f"sending to {arguments.name}", flush=True)
        address = send(made, arguments.name, private=arguments.private, quiet=arguments.quiet)
    if not arguments.quiet:
        print(f"pushed  {address}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
