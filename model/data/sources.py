"""A task's rows, from wherever its task file says they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from model.common.errors import InputError, suggest
from model.data.clean import CLEAN
from model.data.columnar import first_line, read_arrow, read_hub, read_parquet, records_of
from model.data.delimited import read_cs224n, read_glue
from model.data.imported import imported_path, is_file, open_imported, state_of, write_split
from model.data.rows import RawRow, Split, build_split
from model.data.sample import sample_split
from model.tasks.task_set import SPLITS, Source, Task

REMEDY = "point --data at the folder with the task's files"
NO_FOLDER = f"is not a folder that can be read; {REMEDY}"
Reader = Callable[[Path, Source, bool], Iterator[RawRow]]
READERS: dict[str, Reader] = {
    "cs224n": read_cs224n,
    "glue": read_glue,
    "parquet": read_parquet,
    "arrow": read_arrow,
}


def load_split(task: Task, split: str, data_dir: Path | None) -> Split:
    """The rows of one split: from `{task}-{split}.arrow` if imported, else from the source.

    Both are in `data_dir`, or else in the task file's folder.
    """
    if (folder := data_dir or task.source.folder) is not None:
        imported = imported_path(task, split, folder)
        if imported.is_file():
            return _read_imported(task, split, imported)
    return load_source(task, split, data_dir)


def load_source(task: Task, split: str, data_dir: Path | None) -> Split:
    """The rows of one split from the source itself, whether or not they have been imported."""
    source = task.source
    if split not in source.files:
        remedy = suggest(split, source.files)
        raise InputError(f"task {task.name}", [f"has no split '{split}'; {remedy}"])
    if source.format == "sample":
        return _sample(task, split)
    if source.format == "hub":
        records = read_hub(source, split, split != "test")
        place = f"{source.dataset} {source.files[split]}"
        return _build(task, split, records, where=place, name=place)
    if (path := _file_of(task, split, data_dir)) is None:
        fault = f"its data are files ({source.files[split]}, ...); name their folder with --data"
        raise InputError(f"task {task.name}", [fault])
    require_file(path)
    records = READERS[source.format](path, source, split != "test")
    return _build(task, split, records, where=str(path), name=path.name)


def load_augmentation(task: Task, path: Path) -> Split:
    """Extra labelled training rows: in the task's own format and columns, or .parquet, .arrow."""
    path = Path(path)
    form = {".parquet": "parquet", ".arrow": "arrow"}.get(path.suffix, task.source.format)
    if form not in READERS:
        fault = f"must be a .parquet or .arrow file: task {task.name} is of format {form}"
        raise InputError(str(path), [fault])
    source = replace(task.source, id=None)  # nobody looks for an extra row by its id
    if form == "arrow" or (form == "parquet" and not source.header):  # no names of its own
        text = ("sentence1", "sentence2")[: len(source.text)]
        source = replace(source, id="id", text=text, label="label")
    require_file(path)
    records = READERS[form](path, source, True)
    return _build(task, "train", records, where=str(path), name=path.name)


def read_sentences(path: Path) -> list[str]:
    """A plain text file, one sentence a line; blank lines do not count."""
    path = Path(path)
    require_file(path)
    sentences, faults = [], []
    for number, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            sentence = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            faults.append(f"line {number}: not UTF-8 text")
            continue
        if sentence:
            sentences.append(sentence)
    if len(faults) > 10:
        faults = [*faults[:10], f"and {len(faults) - 10:,} more lines; save the file as UTF-8"]
    if not sentences and not faults:
        faults = ["holds no sentences; write one a line"]
    if faults:
        raise InputError(str(path), faults)
    return sentences


def import_split(task: Task, split: str, data_dir: Path | None, path: Path) -> Split:
    """Read the source and write `path` from it."""
    # Before the reading: a file that changes meanwhile is then refused later, not trusted.
    made_from = state_of(_file_of(task, split, data_dir))
    loaded = load_source(task, split, data_dir)
    write_split(task.source, loaded, path, made_from)
    return loaded


def absent_files(
    tasks: Iterable[Task],
    data_dir: Path | None,
    splits: Sequence[str] = SPLITS,
    *,
    imported: bool = True,
) -> dict[tuple[str, str], str]:
    """By task and split the files that are named but not there, nor imported if that counts."""
    absent: dict[tuple[str, str], str] = {}
    for task in tasks:
        if task.source.format in ("hub", "sample"):
            continue
        for split in splits:
            if (name := task.source.files.get(split)) is None:
                continue
            path, folder = _file_of(task, split, data_dir), data_dir or task.source.folder
            known = imported and folder and imported_path(task, split, folder).is_file()
            if not known and not (path and is_file(path)):
                absent[task.name, split] = name
    return absent


def require_data(
    tasks: Iterable[Task],
    data_dir: Path | None,
    splits: Sequence[str] = SPLITS,
    *,
    imported: bool = True,
) -> None:
    """Name every missing file of these tasks at once, before anything is read."""
    tasks = list(tasks)
    absent = absent_files(tasks, data_dir, splits, imported=imported)
    missing = [f"{task}: {name}" for (task, _), name in absent.items()]
    folder = data_dir or next((task.source.folder for task in tasks), None)
    if missing and folder is None:
        raise InputError("--data", [f"name the folder of these files: {', '.join(missing)}"])
    if missing and folder is not None:
        if not Path(folder).is_dir() and not any(map(os.path.isabs, absent.values())):
            raise InputError(str(folder), [NO_FOLDER])
        faults = [f"{name}: no such file" for name in missing]
        raise InputError(str(folder), [*faults, _held(Path(folder))])


def require_file(path: Path) -> None:
    """Explain a missing file by what is there."""
    if not is_file(path):
        raise InputError(str(path), ["no such file", _held(path.parent)])
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise InputError(str(path), [f"cannot be read: {first_line(error)}"]) from None


def _held(folder: Path) -> str:
    """What a folder has to offer, for someone who looked there in vain."""
    try:
        names = sorted(item.name for item in folder.iterdir() if not item.name.startswith("."))
    except (OSError, ValueError):
        return f"{folder} {NO_FOLDER}"
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    held = f"holds {', '.join(names[:8])}{more}" if names else "is empty"
    return f"{folder} {held}; {REMEDY}"


def _build(task: Task, split: str, records: Iterator[RawRow], *, where: str, name: str) -> Split:
    return build_split(
        records,
        task,
        where=where,
        name=name,
        labelled=split != "test",
        clean=CLEAN[task.source.clean],
        # GLUE's test sets on the Hub, and Parquet copies of them, mark "no label" so.
        minus_one_unlabelled=task.source.format in ("hub", "parquet"),
    )


def _sample(task: Task, split: str) -> Split:
    rows = sample_split(task.name, split)
    width = len(task.source.text)
    records = (
        RawRow(number, row.id, (row.sentence1, row.sentence2)[:width], row.label)
        for number, row in enumerate(rows, 1)
    )
    return _build(task, split, records, where=f"sample {task.name} {split}", name="sample")


def _read_imported(task: Task, split: str, path: Path) -> Split:
    require_file(path)
    table, damaged = open_imported(task.source, path, _file_of(task, split, path.parent))
    text = ("sentence1", "sentence2")[: len(task.source.text)]
    source = replace(task.source, format="arrow", id="id", text=text, label="label", clean="none")
    records = records_of(str(path), table, source, split != "test")
    checked = _build(replace(task, source=source), split, records, where=str(path), name=path.name)
    return Split(checked.table, (*damaged, *checked.damaged))


def _file_of(task: Task, split: str, data_dir: Path | None) -> Path | None:
    """The file that a split comes from; None where it comes from elsewhere, or nobody knows."""
    name, folder = task.source.files.get(split), data_dir or task.source.folder
    if name is None or task.source.format in ("hub", "sample"):
        return None
    if Path(name).is_absolute():
        return Path(name)
    return None if folder is None else Path(folder) / name
