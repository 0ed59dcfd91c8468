"""Text in columns: CS224N's files (tabs, csv quoting), GLUE's (tabs, no quoting), and files with
commas (csv quoting) in place of either, with a header or without.

Bytes are split into lines first and each line is parsed by itself: an unbalanced quote, a
broken character or a stray tab damages its own row and no other.
"""

from __future__ import annotations

import codecs
import csv
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from model.common.errors import InputError, suggest
from model.data.rows import RawRow
from model.tasks.task_set import Source

Fields = Callable[[str], list[str]]
FIRST_ROWS = 1000  # that tell how many columns a file without a header has


def read_cs224n(path: Path, source: Source, labelled: bool) -> Iterator[RawRow]:
    return _records(path, source, labelled, _quoted, _cs224n_id)


def read_glue(path: Path, source: Source, labelled: bool) -> Iterator[RawRow]:
    return _records(path, source, labelled, lambda line: line.split("\t"), str)


def _quoted(line: str) -> list[str]:
    return next(csv.reader([line], delimiter="\t"), [])


def _with_commas(line: str) -> list[str]:
    return next(csv.reader([line]), [])


def _cs224n_id(text: str) -> str:
    return text.lower().strip()


def _records(
    path: Path, source: Source, labelled: bool, fields: Fields, name: Callable[[str], str]
) -> Iterator[RawRow]:
    lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    while lines and not lines[-1].strip(b"\r"):
        del lines[-1]
    # A task needs two columns at least, so a first line without a tab is not one of them.
    commas = bool(lines) and b"\t" not in lines[0] and b"," in lines[0]
    fields = _with_commas if commas else fields
    if source.header:
        header, lines = _header(path, lines, fields), lines[1:]
    else:
        header = _numbers(path, lines, fields)
    identity, texts, label = _places(path, header, source, labelled)
    for number, raw in enumerate(lines, 1):
        try:
            line = raw.removesuffix(b"\r").decode("utf-8")
            row = fields(line)
        except UnicodeDecodeError:
            yield RawRow(number, None, (), None, "not UTF-8 text")
            continue
        except csv.Error as error:
            yield RawRow(number, None, (), None, f"cannot be parsed ({error})")
            continue
        if damage := _damage(line, row, header, source.header, commas):
            yield RawRow(number, None, (), None, damage)
            continue
        yield RawRow(
            number,
            None if identity is None else name(row[identity]),
            tuple(row[place] for place in texts),
            None if label is None else row[label],
        )


def _header(path: Path, lines: list[bytes], fields: Fields) -> list[str]:
    if not lines or not lines[0].strip():
        raise InputError(str(path), ["is empty; it needs a header line and rows"])
    try:
        header = fields(lines[0].removesuffix(b"\r").decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(str(path), ["is not UTF-8 text; save it as UTF-8"]) from None
    except csv.Error as error:
        raise InputError(str(path), [f"its header cannot be parsed ({error})"]) from None
    return [column.strip() for column in header]


def _numbers(path: Path, lines: list[bytes], fields: Fields) -> list[str]:
    """The columns of a file without a header: 1, 2, ..., as many as most of its rows have."""
    widths: Counter[int] = Counter()
    for raw in lines[:FIRST_ROWS]:
        try:
            widths[len(fields(raw.removesuffix(b"\r").decode("utf-8")))] += 1
        except (UnicodeDecodeError, csv.Error):
            continue  # told as damage when its turn comes
    if not widths:
        raise InputError(str(path), ["holds no rows of UTF-8 text; is this the right file?"])
    return [str(number) for number in range(1, widths.most_common(1)[0][0] + 1)]


def _places(
    path: Path, header: list[str], source: Source, labelled: bool
) -> tuple[int | None, list[int], int | None]:
    """Where the columns stand; those that the task does not name (an index, say) are ignored."""
    faults = []
    wanted = wanted_columns(source, labelled)
    for column in wanted:
        if column not in header and not source.header:
            faults.append(f"has no column {column}: its rows have {len(header)} fields")
        elif column not in header:
            faults.append(missing_column(column, header))
        elif header.count(column) > 1:
            faults.append(f"column '{column}' stands in the header more than once; rename one")
    if faults:
        if len(header) == 1:
            what = "the header is a single column" if source.header else "a row is a single field"
            faults.append(f"{what}; fields must be separated by tabs or commas")
        elif source.header and not {*wanted} & {*header}:
            remedy = "say 'header: false' and give the columns by number"
            faults.append(f"if the file has no header line, {remedy}")
        raise InputError(str(path), faults)
    return (
        header.index(source.id) if source.id in header else None,
        [header.index(column) for column in source.text],
        header.index(source.label) if source.label in header else None,
    )


def wanted_columns(source: Source, labelled: bool) -> list[str]:
    """What must be there: a test set may lack its labels, and an id that the others have."""
    own = [source.label, *([source.id] if source.id else [])]
    return [*source.text, *(own if labelled else [])]


def missing_column(column: str, header: list[str]) -> str:
    names = [name for name in header if name]
    return f"has no column '{column}', which the task names under columns; {suggest(column, names)}"


def _damage(line: str, row: list[str], header: list[str], named: bool, commas: bool) -> str:
    if len(row) < len(header):
        quote = ", with an unbalanced quote" if line.count('"') % 2 else ""
        return f"cut short: {len(row)} of {len(header)} fields{quote}"
    if any(field.strip() for field in row[len(header) :]):
        where = (
            f"under a header of {len(header)}" if named else f"where most rows have {len(header)}"
        )
        stray = "a comma without quotes around its field?" if commas else "a stray tab?"
        return f"{len(row)} fields {where}; {stray}"
    return ""
