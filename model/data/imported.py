"""Files that `import` has written: `{task}-{split}.arrow`, read in place of their source.

What one was made from (the task's settings, the file) and which rows were left out travel in
its metadata, so that one that no longer tells what the source says is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from model.common.errors import InputError
from model.common.files import sha256_of, write_atomic
from model.data.columnar import first_line, open_arrow
from model.data.rows import Split
from model.tasks.task_set import Source, Task

SOURCE, FILE, DAMAGED = b"stockpot.source", b"stockpot.file", b"stockpot.damaged"


def imported_path(task: Task, split: str, folder: Path) -> Path:
    return Path(folder) / f"{task.name}-{split}.arrow"


def write_split(
    source: Source, split: Split, path: Path, made_from: Mapping[str, Any] | None = None
) -> None:
    """Write what will be read instead of the source; whole or not at all."""
    notes = {SOURCE: _fingerprint(source), DAMAGED: json.dumps(split.damaged).encode()}
    if made_from:
        notes[FILE] = json.dumps(made_from, sort_keys=True).encode()
    table = split.table.replace_schema_metadata(notes)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, sink.getvalue().to_pybytes())
    except OSError as error:
        raise InputError(str(path), [f"cannot be written: {first_line(error)}"]) from None


def open_imported(source: Source, path: Path, made_from: Path | None) -> tuple[pa.Table, list[str]]:
    """Its table and damaged rows, if it is what importing `made_from` would still give."""
    table = open_arrow(path)
    notes = table.schema.metadata or {}
    if SOURCE in notes and notes[SOURCE] != _fingerprint(source):
        fault = "was imported with other settings (format, files, columns, labels or cleaning)"
        raise InputError(str(path), [f"{fault}; import it again, or remove it"])
    _refuse_stale(_parsed(notes.get(FILE)), made_from, path)
    lines = _parsed(notes.get(DAMAGED))
    return table, [str(line) for line in lines] if isinstance(lines, list) else []


def _refuse_stale(note: Any, source: Path | None, path: Path) -> None:
    """The source may have been edited since; where it still stands beside, that can be told."""
    if not isinstance(note, dict) or source is None or not is_file(source):
        return
    if source.absolute() == path.absolute():  # an Arrow file that was imported onto itself
        return
    if source.stat().st_size != note.get("size") or state_of(source) != note:
        fault = f"{source.name} changed since it was imported; import it again, or remove {path}"
        raise InputError(str(path), [fault])


def state_of(source: Path | None) -> dict[str, Any] | None:
    """What a source file is like now; None where there is none."""
    if source is None or not is_file(source):
        return None
    try:
        return {"size": source.stat().st_size, "sha256": sha256_of(source)}
    except OSError as error:
        raise InputError(str(source), [f"cannot be read: {first_line(error)}"]) from None


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL in it
        return False


def _parsed(note: bytes | None) -> Any:
    try:
        return json.loads(note or b"null")
    except ValueError:
        return None


def _fingerprint(source: Source) -> bytes:
    return json.dumps(asdict(replace(source, folder=None)), sort_keys=True).encode()
