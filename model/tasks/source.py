"""Where a task's rows come from: the part of a task file about files, columns and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.common.typed import show
from model.tasks.yaml_reader import YamlSection

SPLITS = ("train", "dev", "test")
FORMATS = ("cs224n", "glue", "parquet", "hub", "arrow", "sample")
DELIMITED = ("cs224n", "glue")  # text files, which may have no header
OTHER_NAMES = dict.fromkeys(("csv", "tsv"), "glue reads files with commas or tabs")
CLEANING = ("none", "lower", "spaced")
MOST_COLUMNS = 10_000
KEYS = {"format", "files", "hub", "columns", "header", "labels", "clean"}


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a task's rows come from."""

    format: str
    files: Mapping[str, str] = field(hash=False)  # split -> file, or the Hub's name of the split
    id: str | None  # this and the next two are columns: names, or numbers where no header is
    text: tuple[str, ...]
    label: str
    clean: str
    dataset: str = ""  # format hub only
    config: str = ""
    header: bool = True
    labels: tuple[str, ...] = ()  # the classes' names, in the order of their numbers
    # Of the task file: where relative files are if no --data is given. What it says is the same
    # wherever it lies, so no fingerprint has this. None for sets that come with the package.
    folder: Path | None = field(default=None, repr=False, compare=False)

    def label_name(self, number: float) -> str:
        """A class as a reader knows it: its name, or its number where none is given."""
        return self.labels[int(number)] if self.labels else f"{number:g}"


def read_source(part: YamlSection, kind: str | None, classes: int) -> Source | None:
    """The source of a task of that kind; None, with the faults noted, where there are any."""
    before = len(part.faults)
    form = part.one_of("format", FORMATS, hints=OTHER_NAMES)
    clean = part.one_of("clean", CLEANING, default="none")
    files, dataset, config = _files(part, form)
    header = _header(part, form)
    identity, text, label = _columns(part, form, header)
    labels = _labels(part, kind, classes)
    if len(part.faults) > before or form is None or clean is None:
        return None
    return Source(
        format=form,
        files=files,
        id=identity,
        text=text,
        label=label,
        clean=clean,
        dataset=dataset,
        config=config,
        header=header,
        labels=labels,
    )


def _files(part: YamlSection, form: str | None) -> tuple[dict[str, str], str, str]:
    """The files of each split; for the Hub its splits, the data set and its configuration."""
    wanted = {"hub": "hub", "sample": None}.get(form or "", "files")
    for key in ("files", "hub"):
        if key in part.data and key != wanted and form is not None:
            part.fault(f"'{key}' does not go with format {form}; remove it", key)
    if form == "sample":
        return {split: split for split in SPLITS}, "", ""
    if form == "hub":
        hub = part.part("hub", "{dataset: NAME, splits: {train: ..., dev: ...}}")
        if hub is None:
            return {}, "", ""
        hub.refuse_unknown({"dataset", "config", "splits"})
        dataset, config = hub.word("dataset"), hub.word("config", default="")
        return _splits(hub, "splits"), dataset or "", config or ""
    return _splits(part, "files"), "", ""


def _splits(part: YamlSection, key: str) -> dict[str, str]:
    inner = part.part(key, "{train: ..., dev: ...}")
    if inner is None:
        return {}
    inner.refuse_unknown(set(SPLITS))
    words = {split: inner.word(split) for split in SPLITS if split != "test" or split in inner.data}
    return {split: word for split, word in words.items() if word is not None}


def _header(part: YamlSection, form: str | None) -> bool:
    value = part.data.get("header", True)
    if not isinstance(value, bool):
        part.fault(f"'header' must be true or false, but is {show(value)}", "header")
    elif "header" in part.data and form is not None and form not in DELIMITED:
        part.fault(f"'header' does not go with format {form}; remove it", "header")
    return value is not False


def _columns(
    part: YamlSection, form: str | None, header: bool
) -> tuple[str | None, tuple[str, ...], str]:
    inner = part.part("columns", "{text: COLUMN, label: COLUMN}; text: [A, B] for pairs")
    if inner is None:
        return None, (), ""
    inner.refuse_unknown({"id", "text", "label"})
    identity = _column(inner, "id", header) if "id" in inner.data else None
    label = _column(inner, "label", header) or ""
    found = inner.data.get("text")
    given = found if isinstance(found, list) else [found]
    text = tuple(name for value in given if (name := _column_name(value, header)) is not None)
    if len(text) != len(given) or len(text) not in (1, 2):
        what = f"but is {show(found)}" if "text" in inner.data else "and is missing"
        hint = _hint(header, *given)
        inner.fault(
            f"'text' must be {_rule(header)}, or two of them for pairs, {what}{hint}", "text"
        )
    elif len(used := [*text, label, *([identity] if identity else [])]) > len(set(used)):
        inner.fault("one column is named twice; text, label and id are different columns", "text")
    elif form in ("arrow", "sample") and (text, label) not in (
        (("sentence1",), "label"),
        (("sentence1", "sentence2"), "label"),
    ):
        names = "sentence1 (and sentence2), label"
        inner.fault(f"format {form} has its own column names: {names}", "text")
    return identity, text, label


def _column(inner: YamlSection, key: str, header: bool) -> str | None:
    if key not in inner.data:
        inner.fault(f"'{key}' is missing")
        return None
    value = inner.data[key]
    if (name := _column_name(value, header)) is None:
        what = f"but is {show(value)}{_hint(header, value)}"
        inner.fault(f"'{key}' must be {_rule(header)}, {what}", key)
    return name


def _column_name(value: Any, header: bool) -> str | None:
    """How the column is called; one without a header is called by its number."""
    if header:
        return value if isinstance(value, str) and value.strip() else None
    return str(value) if type(value) is int and 1 <= value <= MOST_COLUMNS else None


def _rule(header: bool) -> str:
    return "a column's name" if header else "a column's number, from 1, as there is no header"


def _hint(header: bool, *values: Any) -> str:
    numbers = header and any(type(value) is int for value in values)
    return "; columns go by number only with 'header: false'" if numbers else ""


def _labels(part: YamlSection, kind: str | None, classes: int) -> tuple[str, ...]:
    """The classes' names, of `classes` or of `labels`; a name stands for its place in the list."""
    key = "classes" if isinstance(part.data.get("classes"), list) else "labels"
    if key not in part.data:
        return ()
    value = part.data[key]
    if key == "classes" and "labels" in part.data:
        part.fault("'classes' has the names already; remove 'labels'", "labels")
    elif kind == "regression":
        part.fault("'labels' are names of classes, and a regression has none; remove it", key)
    elif not isinstance(value, list):
        part.fault(f"'labels' must be a list of names, but is {show(value)}", key)
    elif odd := [name for name in value if not _is_name(name)]:
        rule = "each must be a word, in quotes where YAML reads it as something else"
        # A number in the data is the number of a class, whatever the column's type.
        part.fault(f"'{key}' holds {show(odd[0])}; {rule}, and not a number", key)
    elif len({name.strip() for name in value}) < len(value):
        part.fault(f"'{key}' holds one name twice; every class has its own", key)
    elif classes and len(value) != classes:
        count = f"{len(value)} name{'s' if len(value) != 1 else ''}"
        part.fault(f"'labels' has {count}, and there are {classes} classes", key)
    else:
        return tuple(name.strip() for name in value)
    return ()


def _is_name(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False
