"""`stockpot COMMAND`"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import pytest

from model import __version__
from tuner.__main__ import COMMANDS, main


def test_help_lists_the_commands_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, (_, about) in COMMANDS.items():
        assert f"  {name:<11}{about}" in lines
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


def test_the_version_is_the_project_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"stockpot {__version__}\n"


def test_a_command_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serach", "--help"]) == 2
    assert "'serach' is not a command; did you mean 'search'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_version_and_its_own_codes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"stockpot {__version__}\n"
    assert main([name, "--what-is-this"]) == 2
    said = capsys.readouterr().err
    assert "'--what-is-this' is not a flag" in said and "usage" not in said
    assert callable(import_module(COMMANDS[name][0]).make_parser)


def helps(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What is said of each flag, argument and subcommand."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from (choice.help or "" for choice in action._choices_actions)
            for command in action.choices.values():
                yield from helps(command)
        elif action.dest not in ("help", "version"):
            yield action.help or ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_is_a_short_sentence(name: str) -> None:
    """Short: what to do, and perhaps how. So it begins with a verb, and none has two of them."""
    said = list(helps(import_module(COMMANDS[name][0]).make_parser()))
    for text in said:
        sentence = re.sub(r" \(default: .*\)(?=\.$)", "", text)
        assert sentence.split()[0].rstrip(",") in VERBS, text
        assert re.search(r"[^.)]\.$", sentence) and len(sentence) <= 160, text
    assert said


@pytest.mark.parametrize(("name", "subcommand"), [("data", "info"), ("cluster", "has")])
def test_a_subcommand_shows_its_own_examples(name: str, subcommand: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main([name, subcommand, "--help"])
    printed = capsys.readouterr().out
    _, examples = printed.split("examples:\n")
    assert examples.strip()
    assert all(
        f"tuner.{name} {subcommand} " in line or f"model.{name} {subcommand} " in line
        for line in examples.splitlines()
    )
    assert "Show this help and end." in printed and "positional" not in printed


VERBS = set(
    "Add Answer Ask Begin Check Choose Combine Copy Count Cross-fit Distil Drop Evaluate Fetch Fix "
    "Give Go Have Hold Keep Learn Let Look Make Maximise Measure Name Print Propose Read Remove "
    "Repeat Restart Resume Rewrite Run Sample Say Search Seed Send Set Show Stop Take Tell Test "
    "Train Try Use Wait Write".split()
)
HEAVY = ("torch", "ray", "optuna", "numpy", "mlflow", "wandb", "trackio", "aim")


@pytest.mark.parametrize(
    "words", ["['--help']", "['serach']", "['search', '--help']", "['export', '--help']"]
)
def test_help_loads_nothing_heavy(words: str) -> None:
    assert loaded_by(words, HEAVY) == "[]"


def test_a_typo_in_a_search_is_told_without_pytorch_and_ray() -> None:
    assert loaded_by("['search', '--sede', '3', '--set', 'smart.wieght=1']", HEAVY[:2]) == "[]"


def loaded_by(words: str, heavy: Sequence[str]) -> str:
    """Which of these modules a command imports."""
    code = f"import sys; from tuner.__main__ import main\ntry:\n main({words})\nfinally:\n"
    code += f" print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1, 2) and done.stdout, done.stderr
    return done.stdout.splitlines()[-1]


def test_it_starts_as_a_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "data", "inof"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2 and "inof" in done.stderr and "Traceback" not in done.stderr
