"""The one door for files that somebody else may have written: a run's folder, what storage has.

Regular files only, of a bounded size and depth, and no path that leads out of its folder. What is
opened is looked at by its handle, so nothing can take its place between the look and the reading.
`links=True` is for files that a person names, which may be links; a run has none.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from model.common.errors import InputError
from model.common.secrets import bounded

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 1 << 26  # of a file that is read as a whole, but for ledgers
MOST_ROWS = 1 << 24  # of a table: its file may be small, if one row is there often
MOST_DEPTH = 32  # of values in values; what we write has five
KINDS = {
    stat.S_ISLNK: "a symbolic link",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISDIR: "a folder",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}
TEXTS = (".json", ".txt", ".jinja", ".model")  # of a model's folder
# Of weights in several files, as transformers reads them.
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
TEMPLATES = "additional_chat_templates"  # the one folder in it that transformers reads
REMEDY = "put back the file that was there, or remove this"


def inside(root: Path, path: str | Path, start: Path | None = None) -> Path:
    """The place that a path out of a file means, counted from `start` or `root`; never outside of
    `root`, not even through a link. Raises InputError."""
    place = Path(start or root) / str(path)
    try:
        real, home = place.resolve(), Path(root).resolve()
    except (OSError, ValueError, RuntimeError):  # a NUL in it, links that go in a circle
        real = home = Path("/")
    if Path(path).is_absolute() or real == home or not real.is_relative_to(home):
        fault = f"'{shown(str(path))}' leads out of it; files of a run name places inside only"
        raise InputError(str(root), [fault])
    return place


def shown(text: str) -> str:
    """Of a text that may be anything, what fits into a sentence, without secrets."""
    return printable(bounded(text))


def printable(text: str) -> str:
    """The same where the text is a name that is compared: nothing in it is hidden."""
    return "".join(c if c.isprintable() else "?" for c in text[:80])


def open_regular(path: Path, flags: int = os.O_RDONLY, *, links: bool = False) -> int:
    """A handle of a regular file; never waits. OSError as usual, InputError for anything else.

    The last part of the path must be no link: a run has none, and behind one could be any file.
    """
    follow = 0 if links else os.O_NOFOLLOW
    try:
        file = os.open(path, flags | follow | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError:
        refuse_irregular(path, links=links)
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        refuse_irregular(path, links=links)
        raise InputError(str(path), [f"is not a regular file; {REMEDY}"])
    return file


def refuse_irregular(path: Path, *, links: bool = False) -> None:
    try:
        mode = (os.stat if links else os.lstat)(path).st_mode
    except (OSError, ValueError):
        return
    for is_kind, name in KINDS.items():
        if is_kind(mode):
            remedy = "name another" if links else REMEDY
            fault = f"is {name}, where a regular file is expected; {remedy}"
            raise InputError(str(path), [fault])


def refuse_unreadable(folder: Path) -> None:
    """For libraries that read a folder by themselves: nothing in it would be waited for, and no
    text in it is too large. Links are fine, the Hub's snapshots consist of them."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir():
            if entry.name == TEMPLATES:
                refuse_unreadable(Path(entry.path))
            continue
        refuse_irregular(Path(entry.path), links=True)
        if entry.name.endswith(TEXTS) and (size := _size_of(entry)) > MOST_BYTES:
            fault = f"has {size:,} bytes, and no such file has more than {MOST_BYTES:,}; {REMEDY}"
            raise InputError(entry.path, [fault])
        if entry.name in INDEXES and entry.is_file():
            _refuse_parts_elsewhere(Path(entry.path))


def _refuse_parts_elsewhere(index: Path) -> None:
    """Of weights in several files, those that do not lie beside their list."""
    data = read_json(index, links=True, finite=False)
    parts = data.get("weight_map") if isinstance(data, dict) else None
    names = parts.values() if isinstance(parts, dict) else [None]
    if any(not isinstance(name, str) or os.path.basename(name) != name for name in names):
        fault = f"must name files of its own folder, for each tensor one; {REMEDY}"
        raise InputError(str(index), [fault])


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:  # a link to nowhere
        return 0


@contextmanager
def held(path: Path, *, links: bool = False) -> Iterator[Path]:
    """For libraries that open files by name: a name that leads to the regular file that was there,
    whatever takes its place meanwhile."""
    file = open_regular(path, links=links)
    try:
        name = Path(f"/proc/self/fd/{file}")
        yield name if name.exists() else path
    finally:
        os.close(file)


def read_regular(path: Path, most: int = MOST_BYTES, *, links: bool = False) -> bytes:
    """All of a regular file. OSError as usual, InputError for what is none or too large."""
    with open(open_regular(path, links=links), "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            fault = f"has {size:,} bytes, and no such file has more than {most:,}; {REMEDY}"
            raise InputError(str(path), [fault])
        return file.read(most + 1)


def read_parquet(path: Path, columns: Sequence[str], *, links: bool = False) -> pa.Table:
    """Those of the columns that a table has. OSError, pyarrow's errors and InputError."""
    import pyarrow.parquet as pq

    with held(path, links=links) as name, pq.ParquetFile(name) as table:
        if (rows := table.metadata.num_rows) > MOST_ROWS:
            fault = f"has {rows:,} rows, and no such file has more than {MOST_ROWS:,}; {REMEDY}"
            raise InputError(str(path), [fault])
        return table.read(columns=[name for name in columns if name in table.schema_arrow.names])


def read_json(path: Path, *, links: bool = False, finite: bool = True) -> Any:
    """A JSON file of plain, finite values. FileNotFoundError, or InputError for anything else."""
    try:
        return parse_json(read_regular(path, links=links), finite=finite)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(str(path), [f"cannot be read as JSON: {reason}"]) from None


def parse_json(text: bytes | str, *, finite: bool = True) -> Any:
    """ValueError for what is no JSON, too deep, or, if so wanted, has a number that is not finite
    or too long."""
    try:
        value = json.loads(text, parse_constant=_refuse if finite else None)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    for fault in unfit(value) if finite else ():
        raise ValueError(fault)
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a finite number")


def unfit(value: Any, where: str = "", depth: int = 0) -> Iterator[str]:
    """The places inside a value that JSON would refuse or change, or that are too deep."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is float or isinstance(value, float):  # NumPy's float64 is one, its others are not
        if not math.isfinite(value):
            yield f"'{where}' is {value}, not a finite number"
    elif kind is int:
        if not -(1 << 63) <= value < 1 << 64:
            yield f"'{where}' is a number of too many digits"
    elif depth > MOST_DEPTH:
        yield f"'{shown(where)}' is nested too deeply"
    elif isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                yield f"{where or 'a key'}: {key!r} must be text to be a key"
            else:
                yield from unfit(entry, f"{where}.{key}" if where else key, depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            yield from unfit(entry, f"{where}[{index}]", depth + 1)
    elif not isinstance(value, (bool, int, str)):
        yield f"'{where}' is a {kind.__name__}; only plain values can be written"
