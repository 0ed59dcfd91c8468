"""`python -m model.data import` and `info`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model.data.imported import imported_path
from model.data.info import aligned, describe
from model.data.rows import Split
from model.data.sources import absent_files, import_split, load_split, require_data
from model.errors import InputError
from model.tasks import SPLITS, Task, load_task_set

Absent = Mapping[tuple[str, str], str]  # task and split -> the file that is not there
EXAMPLES = """examples:
  python -m model.data info --tasks cs224n --data ~/cs224n --encoder minilm
  python -m model.data import --tasks cs224n --data ~/cs224n --out data/
  python -m model.data import --tasks my_tasks.yaml --data raw/ --out data/ --task mood
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        tasks = _chosen(options)
        errors = _import(options, tasks) if options.command == "import" else _info(options, tasks)
    except InputError as error:
        errors = [error]
    for told in errors:
        print(told, file=sys.stderr)
    return 2 if errors else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m model.data",
        description="Bring data into one Arrow schema, and see what they are like.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="import | info")
    for name, about in (
        ("import", "write {task}-{split}.arrow files, which a run reads in place of the source"),
        ("info", "sizes, labels, lengths, damaged rows, and rows in more than one split"),
    ):
        command = commands.add_parser(
            name,
            help=about,
            description=f"{name}: {about}.",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument(
            "--tasks",
            default="sample",
            help="a task set: its name or a .yaml file (default sample)",
        )
        command.add_argument(
            "--data", type=Path, metavar="DIR", help="the folder of its files (default none)"
        )
        command.add_argument(
            "--task",
            action="append",
            metavar="NAME",
            help="only this task; repeatable (default all)",
        )
        if name == "import":
            command.add_argument(
                "--out", type=Path, required=True, metavar="DIR", help="where to write"
            )
        else:
            command.add_argument(
                "--encoder",
                metavar="NAME",
                help="count tokens too, by this encoder's tokenizer: minilm, a folder or a Hub id "
                "(default words only)",
            )
    return parser


def _chosen(options: argparse.Namespace) -> list[Task]:
    tasks = load_task_set(options.tasks)
    return [tasks[name] for name in options.task] if options.task else list(tasks)


def _import(options: argparse.Namespace, tasks: list[Task]) -> list[InputError]:
    require_data(tasks, options.data, ("train", "dev"), imported=False)
    absent = absent_files(tasks, options.data, imported=False)
    rows = [["task", "split", "rows", "damaged", "file"]]
    errors: list[InputError] = []
    for task, name in _splits(tasks, absent):
        path = imported_path(task, name, options.out)
        try:
            split = import_split(task, name, options.data, path)
        except InputError as error:
            errors.append(error)
            continue
        counts = [f"{len(split.table):,}", f"{len(split.damaged):,}"]
        rows.append([task.name, name, *counts, str(path)])
    print("\n".join([*aligned(rows, right={2, 3}), *_told(absent)]))
    return errors


def _info(options: argparse.Namespace, tasks: list[Task]) -> list[InputError]:
    absent = absent_files(tasks, options.data)
    there = _splits(tasks, absent)
    if not there:
        require_data(tasks, options.data)  # says what is missing, and where
    tokenizer = _tokenizer(options.encoder) if options.encoder else None
    errors: list[InputError] = []
    for task in tasks:
        splits: dict[str, Split] = {}
        for name in (name for one, name in there if one is task):
            try:
                splits[name] = load_split(task, name, options.data)
            except InputError as error:
                errors.append(error)
        if splits:
            print(describe(task, splits, tokenizer), end="\n\n")
    print(
        "\n".join([*_told(absent), "words and tokens: of a row, median / 95th percentile / most"])
    )
    return errors


def _tokenizer(name: str) -> Any:
    from model.encoder import load_tokenizer  # loads torch, which nothing else here needs

    try:
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
    return [f"absent: {name} ({task}, {split})" for (task, split), name in absent.items()]


if __name__ == "__main__":
    sys.exit(main())
