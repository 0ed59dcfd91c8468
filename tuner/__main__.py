"""`stockpot COMMAND`, or `python -m tuner COMMAND`: every command by one name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from model import __version__
from model.cli.status import doing, on_terminal
from model.common.errors import InputError, suggest

# What starts each, loaded when it is wanted: --help must not wait for torch or Ray.
COMMANDS = {
    "search": ("tuner.search.__main__", "Search the settings of a multitask text encoder."),
    "study": ("tuner.study.__main__", "Run a paper's experiment, and set its table beside ours."),
    "train": ("model.cli.command", "Train one multitask model."),
    "soup": ("tuner.soup.__main__", "Combine the best checkpoints of a run into one model."),
    "predict": ("tuner.predict.__main__", "Answer the tasks' dev and test rows, or a sentence."),
    "report": ("tuner.report.__main__", "Write a page about a search, or about several."),
    "export": (
        "tuner.export.__main__",
        "Copy a search into MLflow, W&B, Optuna, tables and others.",
    ),
    "push": ("tuner.push", "Put the recommended model on the Hugging Face Hub."),
    "cluster": ("tuner.cluster.__main__", "Check a cluster file; fetch a run from storage."),
    "data": ("model.data.__main__", "Inspect, import and augment data sets."),
    "selfcheck": ("model.selfcheck", "Test and time training on this machine's CPU or GPU."),
}
HELP = """\
usage: stockpot COMMAND [flags]

Hyperparameter search for multitask text encoders, and soups of the best checkpoints.

commands:
{commands}

`stockpot COMMAND --help` shows a command's flags, `stockpot --version` the version."""


def main(argv: Sequence[str] | None = None) -> int:
    name, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if name in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if name == "--version":
        print(f"stockpot {__version__}")
        return 0
    if name not in COMMANDS:
        fault = f"'{name}' is not a command; {suggest(name, COMMANDS)}"
        print(InputError("stockpot", [fault]) if name else help_text(), file=sys.stderr)
        return 2
    with doing("loading", quiet=not on_terminal()):  # in a log the command says so itself
        command = import_module(COMMANDS[name][0])
    code: int = command.main(rest)
    return code


def help_text() -> str:
    commands = "\n".join(f"  {name:<11}{about}" for name, (_, about) in COMMANDS.items())
    return HELP.format(commands=commands)


if __name__ == "__main__":
    raise SystemExit(main())
