"""`python -m model.data import` and `info`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model.data.info import aligned, describe
from model.data.rows import Split
from model.data.sources import (
    imported_path,
    load_source,
    load_split,
    require_data,
    write_split,
)
from model.errors import InputError
from model.tasks import SPLITS, Task, load_task_set

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
    chosen = [tasks[name] for name in options.task] if options.task else list(tasks)
    require_data(chosen, options.data, imported=options.command == "info")
    return chosen


def _import(options: argparse.Namespace, tasks: list[Task]) -> list[InputError]:
    rows = [["task", "split", "rows", "damaged", "file"]]
    errors: list[InputError] = []
    for task in tasks:
        for name in _splits(task):
            try:
                split = load_source(task, name, options.data)
                path = imported_path(task, name, options.out)
                write_split(task, split, path)
            except InputError as error:
                errors.append(error)
                continue
            counts = [f"{len(split.table):,}", f"{len(split.damaged):,}"]
            rows.append([task.name, name, *counts, str(path)])
    print("\n".join(aligned(rows, right={2, 3})))
    return errors


def _info(options: argparse.Namespace, tasks: list[Task]) -> list[InputError]:
    tokenizer = _tokenizer(options.encoder) if options.encoder else None
    errors: list[InputError] = []
    for task in tasks:
        splits: dict[str, Split] = {}
        for name in _splits(task):
            try:
                splits[name] = load_split(task, name, options.data)
            except InputError as error:
                errors.append(error)
        if splits:
            print(describe(task, splits, tokenizer), end="\n\n")
    print("words and tokens: of a row, median / 95th percentile / most")
    return errors


def _splits(task: Task) -> list[str]:
    return [split for split in SPLITS if split in task.source.files]


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    from model.encoder import MINILM, TINY, minilm_folder, tiny_tokenizer

    if name == TINY:
        return tiny_tokenizer()
    place = str(minilm_folder()) if name == MINILM else name
    try:
        return AutoTokenizer.from_pretrained(place)
    except Exception as error:  # the library has no one error for "no such tokenizer"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        fault = f"'{name}' has no tokenizer that can be loaded ({reason})"
        raise InputError("--encoder", [f"{fault}; give a folder, a Hub id or {MINILM}"]) from None


if __name__ == "__main__":
    sys.exit(main())
