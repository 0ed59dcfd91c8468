"""Reading YAML with line numbers, and writing files that appear whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from model.common.errors import InputError
from model.common.untrusted import open_regular, read_regular

MOST_YAML = 1 << 22  # bytes; YAML is slow to read, and what people write has some thousands

Key = tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """A YAML mapping as plain data, with the line on which each key stands."""

    path: Path
    data: dict[str, Any]
    lines: dict[Key, int] = field(default_factory=dict)

    def at(self, *key: str) -> str:
        """'line 7: ', ready to stand before a fault about that key; '' where unknown."""
        for length in range(len(key), 0, -1):
            if line := self.lines.get(tuple(key[:length])):
                return f"line {line}: "
        return ""


def read_yaml(path: Path, *, links: bool = True) -> Document:
    """Read a YAML file that must hold one mapping. Plain values only (SafeLoader)."""
    try:
        text = read_regular(path, MOST_YAML, links=links).decode("utf-8")
    except FileNotFoundError:
        raise InputError(str(path), ["no such file; check the path"]) from None
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the name
        raise InputError(str(path), [f"cannot be read as UTF-8 text: {error}"]) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except Exception as error:  # besides its own errors PyYAML lets Key-, Index- and others pass
        problem = getattr(error, "problem", None) or next(iter(str(error).splitlines()), "")
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise InputError(str(path), [f"{where}not valid YAML: {problem}"]) from None
    if data is None:
        return Document(path, {})
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise InputError(str(path), [f"must be a mapping of keys to values, but is a {kind}"])
    lines: dict[Key, int] = {}
    faults: list[str] = []
    _note_lines(node, (), lines, faults, set())
    if faults:
        raise InputError(str(path), faults)
    return Document(path, data, lines)


def _note_lines(
    node: yaml.Node, key: Key, lines: dict[Key, int], faults: list[str], done: set[int]
) -> None:
    if not isinstance(node, yaml.MappingNode) or id(node) in done:
        return  # aliases may point back at a node they stand in, or double at every level
    done.add(id(node))
    seen: set[str] = set()
    for name_node, value_node in node.value:
        name = str(name_node.value)
        line = name_node.start_mark.line + 1
        if name in seen:
            faults.append(f"line {line}: '{name}' is given twice; keep one of them")
        seen.add(name)
        lines[(*key, name)] = line
        _note_lines(value_node, (*key, name), lines, faults, done)


def to_yaml(data: dict[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)


def fsync_folder(path: Path) -> None:
    """Make a rename or a new name in this folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, content: bytes | str, *, beside: str | None = None) -> None:
    """Write beside, fsync, rename: a reader sees the old file or the new one, never a part.

    `beside`: what it is called until it is whole, if not like the file.
    """
    place = path.with_name(f".{beside or path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with open(place, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(place, path)
    finally:
        place.unlink(missing_ok=True)
    fsync_folder(path.parent)


def check_room(folder: Path, need: int) -> None:
    """Raise OSError, with the place and the space missing, rather than begin what cannot fit."""
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if free < need:
        fault = f"a checkpoint takes {need / 1e6:.1f} MB, and {free / 1e6:.1f} MB are free"
        raise OSError(errno.ENOSPC, f"{fault}; make room", str(folder))


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, renamed to `path` when the block ends well and removed when not."""
    path.parent.mkdir(exist_ok=True)  # but not a run's folder that went away
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    beside.mkdir()
    try:
        yield beside
        for file in sorted(beside.rglob("*")):
            if file.is_file():
                with open(file, "rb") as handle:
                    os.fsync(handle.fileno())
            else:
                fsync_folder(file)
        fsync_folder(beside)
        _put_in_place(beside, path)
        fsync_folder(path.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _put_in_place(beside: Path, path: Path) -> None:
    if not path.exists():
        os.replace(beside, path)
        return
    # Left by a run that died after this rename and before its record. It is out of the way for
    # a moment only, and comes back if the new one cannot take its place.
    aside = _aside(path)
    os.replace(path, aside)
    try:
        os.replace(beside, path)
    except BaseException:
        os.replace(aside, path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Remove a folder so that a half-removed one is never seen under its name."""
    if not path.exists():
        return
    aside = _aside(path)
    os.replace(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old")


def is_leftover(path: Path) -> bool:
    """Whether it has a name that the functions above give to what they write or remove."""
    return re.fullmatch(r"\..+\.[0-9a-f]{8}\.(tmp|old)", path.name) is not None


def remove_leftovers(folders: Iterable[Path], age: float = 0.0) -> None:
    """Remove what a killed process left half-written there, if it is so many seconds old."""
    places = [place for folder in folders if folder.is_dir() for place in folder.iterdir()]
    for place in filter(is_leftover, places):
        with suppress(FileNotFoundError):
            if time.time() - place.stat().st_mtime < age:
                continue
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink()


def sha256_of(path: Path, *, links: bool = True) -> str:
    with open(open_regular(path, links=links), "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; those with several names once."""
    found = {}
    for file in (path, *path.rglob("*")):
        try:
            if file.is_file():
                status = file.stat()
                found[status.st_dev, status.st_ino] = status.st_size
        except OSError:
            continue  # gone meanwhile
    return sum(found.values())
