"""The frame that all commands share: description, examples, version, and how faults are told."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from model import __version__
from model.cli.flags import faults_of, flags_of
from model.cli.invocation import command
from model.common.errors import InputError


class Parser(argparse.ArgumentParser):
    """Tells faults as all others are told, a line each; the usage is for --help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.tables: list[type] = []

    def add_table(self, table: type) -> None:
        """A flag for each field of a dataclass that has one, see `model.cli.flags`."""
        self.tables.append(table)
        for each in flags_of(table).values():
            each.add_to(self.group(each.flag.group))

    def group(self, title: str) -> argparse._ArgumentGroup:
        """The group of this title, made when it is first asked for."""
        found = [group for group in self._action_groups if group.title == title]
        return found[0] if found else self.add_argument_group(title)

    def error(self, message: str) -> NoReturn:
        raise InputError(self.prog, [f"{message}; --help shows all"])

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            faults = list(self._unknown_faults(unknown))
            faults += [fault for each in self.tables for fault in faults_of(each, vars(found))]
            raise InputError(self.prog, faults)
        return found

    def _unknown_faults(self, words: Sequence[str]) -> Iterator[str]:
        # After a flag that is none, whatever is no flag is likely its value.
        flags = [word.partition("=")[0] for word in words if word.startswith("-")]
        for word in flags:
            near = get_close_matches(word, self._known_flags(), n=1)
            remedy = f"did you mean {near[0]}?" if near else "--help shows all"
            yield f"'{word}' is not a flag; {remedy}"
        if not flags:
            yield f"'{' '.join(words)}' is one too many; --help shows what there is"

    def _known_flags(self) -> list[str]:
        """Of the subcommands too."""
        found = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for each in action.choices.values():
                    found += each._option_string_actions
        return found


def command_parser(
    name: str, about: str, examples: Mapping[str, str], note: str = "", usage: str | None = None
) -> Parser:
    """The parser of one command. `examples`: what each shows, and its arguments."""
    prog = command(name)
    width = max(map(len, examples))
    lines = [f"  {label:<{width}}  {prog} {text}".rstrip() for label, text in examples.items()]
    epilog = "\n".join(["examples:", *lines, *(["", note] if note else [])])
    parser = Parser(prog=prog, description=about, epilog=epilog, usage=usage and f"{prog} {usage}")
    parser.add_argument("--version", action="version", version=f"stockpot {__version__}")
    return parser


def add_data(group: Any, default: str = "the run's") -> None:
    text = f"Folder with the tasks' files (default: {default})."
    group.add_argument("--data", type=Path, metavar="DIR", help=text)


def add_quiet(group: Any, text: str = "Print only warnings and the result.") -> None:
    group.add_argument("-q", "--quiet", action="store_true", help=text)
