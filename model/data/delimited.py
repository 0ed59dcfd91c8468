"""Tab-separated text: CS224N's files (csv quoting) and GLUE's (none), each with a header.

Bytes are split into lines first and each line is parsed by itself: an unbalanced quote, a
broken character or a stray tab damages its own row and no other.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

from model.data.rows import Record
from model.errors import InputError, suggest
from model.tasks import Source

Fields = Callable[[str], list[str]]


def read_cs224n(path: Path, source: Source, labelled: bool) -> Iterator[Record]:
    return _records(path, source, labelled, _quoted, _cs224n_id)


def read_glue(path: Path, source: Source, labelled: bool) -> Iterator[Record]:
    return _records(path, source, labelled, lambda line: line.split("\t"), str)


def _quoted(line: str) -> list[str]:
    return next(csv.reader([line], delimiter="\t"), [])


def _cs224n_id(text: str) -> str:
    return text.lower().strip()


def _records(
    path: Path, source: Source, labelled: bool, fields: Fields, name: Callable[[str], str]
) -> Iterator[Record]:
    lines = path.read_bytes().split(b"\n")
    while lines and not lines[-1].strip(b"\r"):
        del lines[-1]
    header = _header(path, lines, fields)
    identity, texts, label = _places(path, header, source, labelled)
    for number, raw in enumerate(lines[1:], 1):
        try:
            line = raw.removesuffix(b"\r").decode("utf-8")
            row = fields(line)
        except UnicodeDecodeError:
            yield Record(number, None, (), None, "not UTF-8 text")
            continue
        except csv.Error as error:
            yield Record(number, None, (), None, f"cannot be parsed ({error})")
            continue
        if damage := _damage(line, row, header):
            yield Record(number, None, (), None, damage)
            continue
        yield Record(
            number,
            None if identity is None else name(row[identity]),
            tuple(row[place] for place in texts),
            None if label is None else row[label],
        )


def _header(path: Path, lines: list[bytes], fields: Fields) -> list[str]:
    if not lines or not lines[0].strip():
        raise InputError(str(path), ["is empty; it needs a header line and rows"])
    try:
        header = fields(lines[0].removesuffix(b"\r").decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError(str(path), ["is not UTF-8 text; save it as UTF-8"]) from None
    except csv.Error as error:
        raise InputError(str(path), [f"its header cannot be parsed ({error})"]) from None
    return [column.strip() for column in header]


def _places(
    path: Path, header: list[str], source: Source, labelled: bool
) -> tuple[int | None, list[int], int | None]:
    """Where the columns stand; those that the task does not name (an index, say) are ignored."""
    faults = []
    wanted = [*source.text, *([source.label] if labelled else [])]
    for column in wanted:
        if column not in header:
            faults.append(missing_column(column, header))
        elif header.count(column) > 1:
            faults.append(f"column '{column}' stands in the header more than once; rename one")
    if faults:
        if len(header) == 1:
            faults.append("the header is a single column; fields must be separated by tabs")
        raise InputError(str(path), faults)
    return (
        header.index(source.id) if source.id in header else None,
        [header.index(column) for column in source.text],
        header.index(source.label) if source.label in header else None,
    )


def missing_column(column: str, header: list[str]) -> str:
    names = [name for name in header if name]
    return f"has no column '{column}', which the task names under columns; {suggest(column, names)}"


def _damage(line: str, row: list[str], header: list[str]) -> str:
    if len(row) < len(header):
        quote = ", with an unbalanced quote" if line.count('"') % 2 else ""
        return f"cut short: {len(row)} of {len(header)} fields{quote}"
    if any(field.strip() for field in row[len(header) :]):
        return f"{len(row)} fields under a header of {len(header)}; a stray tab?"
    return ""
