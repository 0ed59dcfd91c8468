"""Sources that already are columns: Parquet, Arrow files in our schema, the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.common.errors import InputError, install
from model.common.hub import away, hub_is_away
from model.common.secrets import redact
from model.data.delimited import missing_column, wanted_columns
from model.data.rows import SCHEMA, RawRow
from model.tasks.task_set import Source


def read_parquet(path: Path, source: Source, labelled: bool) -> Iterator[RawRow]:
    try:
        names = pq.read_schema(path).names
        wanted = [name for name in (source.id, *source.text, source.label) if name in names]
        table = pq.ParquetFile(path).read(columns=wanted)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(str(path), [f"cannot be read as Parquet: {first_line(error)}"]) from None
    return records_of(str(path), table, source, labelled, names)


def read_arrow(path: Path, source: Source, labelled: bool) -> Iterator[RawRow]:
    return records_of(str(path), open_arrow(path), source, labelled)


def open_arrow(path: Path) -> pa.Table:
    """An Arrow IPC file in `SCHEMA`, mapped rather than read."""
    try:
        with pa.memory_map(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)  # a damaged file must not crash a later read
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            str(path), [f"cannot be read as an Arrow file: {first_line(error)}; import it again"]
        ) from None
    if not table.schema.equals(SCHEMA):
        found = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
        wanted = ", ".join(f"{field.name}: {field.type}" for field in SCHEMA)
        raise InputError(str(path), [f"its columns are ({found}), but must be ({wanted})"])
    return table


def read_hub(source: Source, split: str, labelled: bool) -> Iterator[RawRow]:
    """A data set of the Hugging Face Hub, by name (or any that `datasets` can load)."""
    where = f"{source.dataset} ({source.config or 'default'}), split {source.files[split]}"
    try:
        import datasets
    except ImportError:
        fault = f"format hub needs the package 'datasets'; {install('hub')}"
        raise InputError(where, [fault]) from None
    is_away = hub_is_away(source.dataset)
    try:
        loaded = datasets.load_dataset(
            source.dataset, source.config or None, split=source.files[split]
        )
        table = loaded.with_format("arrow")[:]
    except Exception as error:  # whatever the network, the Hub or a data set's files bring up
        if is_away:
            fault = f"'{source.dataset}' is not in the cache, and {away()}"
            raise InputError(where, [fault]) from error
        remedy = "check the names under 'hub' and the network"
        fault = f"cannot be loaded: {type(error).__name__}: {first_line(error)}; {remedy}"
        raise InputError(where, [fault]) from error
    return records_of(where, table, source, labelled)


def records_of(
    where: str, table: pa.Table, source: Source, labelled: bool, names: list[str] | None = None
) -> Iterator[RawRow]:
    header = names or table.column_names
    wanted = wanted_columns(source, labelled)
    faults = [missing_column(name, header) for name in wanted if name not in header]
    faults += [
        f"column '{name}' stands there more than once; rename one"
        for name in (source.id, *source.text, source.label)
        if table.column_names.count(name) > 1
    ]
    faults += [
        f"column '{name}' holds {table.schema.field(name).type}, not text"
        for name in source.text
        if table.column_names.count(name) == 1 and not _is_text(table.schema.field(name).type)
    ]
    if faults:
        raise InputError(where, faults)
    texts = [_python(where, table, name) for name in source.text]
    labels = _python(where, table, source.label)
    ids = _python(where, table, source.id)
    for row in range(len(table)):
        found = ids[row]
        yield RawRow(
            row + 1,
            None if found is None else str(found),
            tuple(text[row] for text in texts),
            labels[row],
        )


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _python(where: str, table: pa.Table, name: str | None) -> list[Any]:
    """A column as Python values; all None where there is no such column."""
    if name not in table.column_names:
        return [None] * len(table)
    try:
        values: list[Any] = table[name].to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:  # such as dates beyond 9999
        raise InputError(where, [f"column '{name}' cannot be read: {first_line(error)}"]) from None
    return values


def first_line(error: BaseException) -> str:
    return (redact(str(error)).strip() or type(error).__name__).splitlines()[0][:200]
