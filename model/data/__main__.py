"""`python -m model.data import`, `info` and `paraphrase`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model.cli.exit_code import exit_code
from model.cli.paraphrase import run_paraphrase
from model.cli.paraphrase_options import ParaphraseOptions, option_faults
from model.cli.parser import Parser, add_command, add_data, command_parser
from model.cli.status import doing
from model.cli.text import say
from model.common.errors import InputError
from model.common.hub import require_encoder
from model.data.imported import imported_path
from model.data.info import aligned, describe_data
from model.data.rows import Split
from model.data.sources import absent_files, import_split, load_split, require_data
from model.tasks.task_set import SPLITS, Task, load_task_set, take_tasks

Absent = Mapping[tuple[str, str], str]  # task and split -> the file that is not there
EXAMPLES = {
    "look": "info --tasks cs224n --data ~/cs224n --encoder minilm",
    "import": "import --tasks cs224n --data ~/cs224n --out data/",
    "one task": "import --tasks my_tasks.yaml --data raw/ --out data/ --task mood",
    "more rows": "paraphrase --tasks cs224n --data ~/cs224n --task sst --out sst.arrow "
    "--base-url https://HOST/v1 --model NAME --dry-run",
}
COMMANDS = {
    "import": "Write {task}-{split}.arrow files, which a run reads in place of the source.",
    "info": "Tell sizes, labels, lengths, damaged rows, and rows in more than one split.",
    "paraphrase": "Have a language model say training rows in other words, for augment.TASK.",
}


def make_parser() -> Parser:
    about = "Inspect, import and augment data sets."
    parser = command_parser("data", about, EXAMPLES)
    commands = parser.add_subparsers(dest="command", required=True, metavar=" | ".join(COMMANDS))
    for name, about in COMMANDS.items():
        command = add_command(commands, "data", name, about, EXAMPLES)
        if name == "paraphrase":
            command.add_table(ParaphraseOptions)
            continue
        text = "Read this task set: a shipped one's name or a YAML file (default: sample)."
        command.add_argument("--tasks", default="sample", metavar="SET", help=text)
        add_data(command, "none")
        text = "Take only this task; may be repeated (default: all)."
        command.add_argument("--task", action="append", metavar="NAME", help=text)
        if name == "import":
            text = "Write to this folder."
            command.add_argument("--out", type=Path, required=True, metavar="DIR", help=text)
        else:
            text = "Count tokens too, as minilm, a folder or a Hub id does (default: words only)."
            command.add_argument("--encoder", metavar="NAME", help=text)
    parser.check = _flag_faults
    return parser


def _flag_faults(found: argparse.Namespace) -> list[str]:
    return option_faults(vars(found)) if found.command == "paraphrase" else []


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code(lambda: run(make_parser().parse_args(argv)), "the command failed")


def run(options: argparse.Namespace) -> int:
    if options.command == "paraphrase":
        return run_paraphrase(vars(options))
    tasks = _chosen(options)
    errors = _import(options, tasks) if options.command == "import" else _info(options, tasks)
    for told in dict.fromkeys(map(str, errors)):  # two tasks may read one file
        say(told, sys.stderr)
    return 2 if errors else 0


def _chosen(options: argparse.Namespace) -> list[Task]:
    tasks = load_task_set(options.tasks)
    return list(take_tasks(tasks, options.task) if options.task else tasks)


def _import(options: argparse.Namespace, tasks: list[Task]) -> list[InputError]:
    require_data(tasks, options.data, ("train", "dev"), imported=False)
    absent = absent_files(tasks, options.data, imported=False)
    rows = [["task", "split", "rows", "damaged", "file"]]
    errors: list[InputError] = []
    for task, name in _splits(tasks, absent):
        path = imported_path(task, name, options.out)
        try:
            with doing(f"importing {task.name} {name}"):
                split = import_split(task, name, options.data, path)
        except InputError as error:
            errors.append(error)
            continue
        counts = [f"{len(split.table):,}", f"{len(split.damaged):,}"]
        rows.append([task.name, name, *counts, str(path)])
    say("\n".join([*aligned(rows, right={2, 3}), *_told(absent)]))
    return errors


def _info(options: argparse.Namespace, tasks: list[Task]) -> list[InputError]:
    absent = absent_files(tasks, options.data)
    there = _splits(tasks, absent)
    if not there:
        require_data(tasks, options.data)  # says what is missing, and where
    tokenizer = _tokenizer(options.encoder) if options.encoder else None
    errors: list[InputError] = []
    damaged: set[str] = set()
    for task in tasks:
        splits: dict[str, Split] = {}
        for name in (name for one, name in there if one is task):
            try:
                with doing(f"reading {task.name} {name}"):
                    splits[name] = load_split(task, name, options.data)
            except InputError as error:
                errors.append(error)
        if splits:
            with doing(f"looking at {task.name}"):
                told = describe_data(task, splits, tokenizer, damaged)
            say(f"{told}\n")
            damaged.update(row for split in splits.values() for row in split.damaged)
    what = "words and tokens" if tokenizer is not None else "words"
    say("\n".join([*_told(absent), f"{what}: of a row, median / 95th percentile / most"]))
    return errors


def _tokenizer(name: str) -> Any:
    from model.modules.encoder import load_tokenizer  # loads torch, which nothing else here needs

    try:
        require_encoder(name)
        return load_tokenizer(name)
    except InputError as error:
        raise InputError("--encoder", error.faults) from None


def _splits(tasks: list[Task], absent: Absent) -> list[tuple[Task, str]]:
    """What there is to read."""
    return [
        (task, split)
        for task in tasks
        for split in SPLITS
        if split in task.source.files and (task.name, split) not in absent
    ]


def _told(absent: Absent) -> list[str]:
    wanted: dict[str, list[str]] = {}
    for (task, split), name in absent.items():
        wanted.setdefault(name, []).append(f"{task}, {split}")
    return [f"absent: {name} ({'; '.join(by)})" for name, by in wanted.items()]


if __name__ == "__main__":
    sys.exit(main())
