"""The frame that all commands share: description, examples, version, and how faults are told."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from model import __version__
from model.cli.flags import faults_of, flags_of
from model.cli.invocation import command
from model.common.errors import InputError, suggest


class Parser(argparse.ArgumentParser):
    """Tells every fault at once, a line each, as all others are told; the usage is for --help."""

    def __init__(self, **settings: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=formatter, exit_on_error=False, **settings)
        self._positionals.title = "arguments"
        self._option_string_actions["-h"].help = "Show this help and end."
        self.tables: list[type] = []
        self.faults: list[str] = []
        self.unread: set[str] = set()  # flags whose values are at fault, by where they would go
        # What else is wrong with the flags that could be read: told beside those that could not.
        self.check: Callable[[argparse.Namespace], list[str]] = lambda found: []

    def add_table(self, table: type) -> None:
        """A flag for each field of a dataclass that has one, see `model.cli.flags`."""
        self.tables.append(table)
        for each in flags_of(table).values():
            each.add_to(self.group(each.flag.group))

    def group(self, title: str) -> argparse._ArgumentGroup:
        """The group of this title, made when it is first asked for."""
        found = [group for group in self._action_groups if group.title == title]
        return found[0] if found else self.add_argument_group(title)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        try:
            found, unknown = self.parse_known_args(args, namespace)
        except argparse.ArgumentError as error:  # after which nothing else can be read
            raise InputError(self.prog, [*self._gathered(), _told(error)]) from None
        faults = [*self._unknown_faults(unknown), *self._gathered()]
        if not faults:
            return found
        for name in self.unread & vars(found).keys():
            setattr(found, name, default := self.get_default(name))
            if default is argparse.SUPPRESS:
                delattr(found, name)
        faults += [fault for each in self.tables for fault in faults_of(each, vars(found))]
        raise InputError(self.prog, [*faults, *self.check(found)])

    # --- argparse stops at the first fault; these note it and go on ---------------------------

    def error(self, message: str) -> None:  # type: ignore[override]
        self.faults.append(f"{message}; --help shows all")

    def _match_argument(self, action: argparse.Action, pattern: str) -> int:
        try:
            return super()._match_argument(action, pattern)
        except argparse.ArgumentError as error:
            self.faults.append(_told(error))
            self.unread.add(action.dest)
            return 0

    def _get_values(self, action: argparse.Action, words: list[str]) -> Any:
        if not words and action.dest in self.unread:
            return None
        if isinstance(action, argparse._SubParsersAction) and words[0] not in action.choices:
            fault = f"'{words[0]}' is not a command; {suggest(words[0], action.choices)}"
            raise InputError(self.prog, [fault])
        try:
            return super()._get_values(action, words)
        except argparse.ArgumentError as error:
            kind = "a whole number" if action.type is int else ""
            if action.choices is not None:
                kind = f"one of {', '.join(map(str, action.choices))}"
            must = f"{error.argument_name} must be {kind}, but is '{words[0]}'"
            self.faults.append(must if kind else _told(error))
            self.unread.add(action.dest)
            return None

    def _gathered(self) -> list[str]:
        """The faults of this parser and of its subcommands'."""
        return [*self.faults, *(fault for each in self._commands() for fault in each._gathered())]

    def _commands(self) -> list[Parser]:
        actions = [each for each in self._actions if isinstance(each, argparse._SubParsersAction)]
        return [each for action in actions for each in action.choices.values()]

    def _unknown_faults(self, words: Sequence[str]) -> Iterator[str]:
        # After a flag that is none, whatever is no flag is likely its value.
        flags = [word.partition("=")[0] for word in words if word.startswith("-")]
        for word in flags:
            known = {flag.lstrip("-"): flag for flag in self._known_flags()}
            near = get_close_matches(word.lstrip("-"), known, n=1)
            remedy = f"did you mean {known[near[0]]}?" if near else "--help shows all"
            yield f"'{word}' is not a flag; {remedy}"
        if words and not flags:
            yield f"'{' '.join(words)}' is one too many; --help shows what there is"

    def _known_flags(self) -> list[str]:
        """Of the subcommands too."""
        own = list(self._option_string_actions)
        return [*own, *(flag for each in self._commands() for flag in each._known_flags())]


def _told(error: argparse.ArgumentError) -> str:
    name = f"{error.argument_name}: " if error.argument_name else ""
    return f"{name}{error.message}; --help shows all"


def command_parser(
    name: str, about: str, examples: Mapping[str, str], note: str = "", usage: str | None = None
) -> Parser:
    """The parser of one command. `examples`: what each shows, and its arguments."""
    prog = command(name)
    epilog = examples_told(prog, examples) + (f"\n\n{note}" if note else "")
    parser = Parser(prog=prog, description=about, epilog=epilog, usage=usage and f"{prog} {usage}")
    text = "Print the version and end."
    parser.add_argument("--version", action="version", version=f"stockpot {__version__}", help=text)
    return parser


def add_command(
    commands: Any, parent: str, name: str, about: str, examples: Mapping[str, str]
) -> Parser:
    """The parser of one of a command's subcommands, with those of the examples that are its."""
    own = {label: text for label, text in examples.items() if text.split()[0] == name}
    epilog = examples_told(command(parent), own)
    found: Parser = commands.add_parser(name, help=about, description=about, epilog=epilog)
    return found


def examples_told(prog: str, examples: Mapping[str, str]) -> str:
    width = max(map(len, examples))
    lines = [f"  {label:<{width}}  {prog} {text}".rstrip() for label, text in examples.items()]
    return "\n".join(["examples:", *lines])


def add_data(group: Any, default: str = "the run's") -> None:
    text = f"Read the tasks' files in this folder (default: {default})."
    group.add_argument("--data", type=Path, metavar="DIR", help=text)


def add_quiet(group: Any, text: str = "Print only warnings and the result.") -> None:
    group.add_argument("-q", "--quiet", action="store_true", help=text)
