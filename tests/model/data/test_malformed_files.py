"""Data files that are wrong in every way: a clear error or counted damage, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.common.errors import InputError
from model.data.rows import SCHEMA, labels_of
from model.data.sources import load_split
from model.tasks.task_set import Task

Make = Callable[..., Task]
SAMPLE = {"text": "sentence1", "label": "label"}

# (format, bytes of the file, what must be said)
GOOD_ROW = b"id\ttext\tlabel\n1\tfine\t1\n"
BAD_FILES = [
    ("glue", b"", "is empty; it needs a header line and rows"),
    ("glue", b"\n\n", "is empty"),
    ("glue", b"id\ttext\tlabel\n", "has no rows; is this the right file?"),
    ("glue", b"id\ttxt\tlabel\n1\tx\t1\n", "has no column 'text', which the task names under"),
    ("glue", b"id\ttxt\tlabel\n1\tx\t1\n", "did you mean 'txt'?"),
    ("glue", b"ids\ttext\tlabel\n1\tx\t1\n", "has no column 'id', which the task names under"),
    ("glue", b"id\ttext\tgold\n1\tx\t1\n", "has no column 'label', which the task names"),
    ("glue", b"id;text;label\n1;x;1\n", "fields must be separated by tabs or commas"),
    ("glue", b"id,txt,label\n1,x,1\n", "has no column 'text', which the task names under columns"),
    ("glue", b"text\ttext\tlabel\n1\tx\t1\n", "stands in the header more than once"),
    ("glue", GOOD_ROW + b"2\tx\t3\n", "row 2: label 3 is outside 0 to 2, the range of mood"),
    ("glue", GOOD_ROW + b"2\tx\t-1\n", "row 2: label -1 is outside 0 to 2"),
    ("glue", GOOD_ROW + b"2\tx\tinf\n", "row 2: label inf is outside 0 to 2"),
    ("glue", GOOD_ROW + b"2\tx\t0.5\n", "row 2: label 0.5 is not a whole number, as mood"),
    ("glue", GOOD_ROW + b"2\tx\tjoy\n", "row 2: label 'joy' is not a number"),
    (
        "glue",
        GOOD_ROW + b"2\tx\tjoy\n",
        "as in 'classes: [joy, ...]'; else check which column is the label",
    ),
    ("glue", b"1\tfine\t1\n2\tx\t1\n", "say 'header: false' and give the columns by number"),
    ("glue", GOOD_ROW + b"2\tx\t1_0\n", "row 2: label '1_0' is not a number"),
    ("glue", b"id\ttext\tlabel\n1\tx\t\n2\ty\n", "has no usable row: all 2 are damaged"),
    ("glue", b"id\ttext\tlabel\n1\t\xff\t1\n", "train.tsv row 1: not UTF-8 text"),
    ("glue", "id\ttext\tlabel\n1\tx\t1\n".encode("utf-16"), "is not UTF-8 text; save it as"),
    ("cs224n", b'id\ttext\tlabel\n1\t"x\t1\n', "cut short: 2 of 3 fields, with an unbalanced"),
    ("cs224n", b"id\ttext\tlabel\n1\ta\tb\t1\n", "4 fields under a header of 3; a stray tab?"),
    ("cs224n", b"id\ttext\tlabel\n1\t" + b"x" * 200_000 + b"\t1\n", "cannot be parsed (field"),
    ("parquet", b"", "cannot be read as Parquet"),
    ("parquet", b"PAR1 is not all PAR1", "cannot be read as Parquet"),
    ("arrow", b"ARROW1 is not all", "cannot be read as an Arrow file"),
]


@pytest.mark.parametrize(("form", "content", "said"), BAD_FILES)
def test_a_malformed_data_file_is_told_with_row_and_remedy(
    make_task: Make, tmp_path: Path, form: str, content: bytes, said: str
) -> None:
    columns = {"text": "sentence1", "label": "label"} if form == "arrow" else None
    task = make_task(format=form, **({"columns": columns} if columns else {}))
    (tmp_path / "train.tsv").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_split(task, "train", tmp_path)
    assert caught.value.where == str(tmp_path / "train.tsv")
    assert any(said in fault for fault in caught.value.faults), caught.value.faults


def test_wrong_rows_are_told_at_once_each_fault_once_and_up_to_ten(
    make_task: Make, tmp_path: Path
) -> None:
    rows = "".join(f"{number}\tx\t{number}\n" for number in range(25))
    (tmp_path / "train.tsv").write_text("id\ttext\tlabel\n" + rows)
    with pytest.raises(InputError) as caught:
        load_split(make_task(), "train", tmp_path)
    faults = caught.value.faults
    assert [fault.split(":")[0] for fault in faults[:10]] == [f"row {n}" for n in range(4, 14)]
    assert faults[10:] == [
        "and 12 more rows",
        "the task says 'classes: 3'; correct it, the label column or the rows",
    ]
    (tmp_path / "train.tsv").write_text("id\ttext\tlabel\n" + "1\tx\t7\n" * 12)
    with pytest.raises(InputError, match=r"2 problems\n  rows 1, 2, 3, 4, 5 and 7 more: label 7"):
        load_split(make_task(), "train", tmp_path)


# With `header: false`, text in column 4 and the label in column 2.
BAD_WITHOUT_HEADER = [
    (b"", "holds no rows of UTF-8 text; is this the right file?"),
    (b"\xff\n\xfe\n", "holds no rows of UTF-8 text"),
    (b"a\t1\tx\n", "has no column 4: its rows have 3 fields"),
    (b"a;1;;x\n", "a row is a single field; fields must be separated by tabs or commas"),
    (b"a,1,x\n", "has no column 4: its rows have 3 fields"),
    (b"a\t1\t\tx\nb\t7\t\ty\n", "row 2: label 7 is outside 0 to 2"),
    (b"a\tb\t\tx\n", "row 1: label 'b' is not a number"),
]


@pytest.mark.parametrize("form", ["glue", "cs224n"])
@pytest.mark.parametrize(("content", "said"), BAD_WITHOUT_HEADER)
def test_a_malformed_file_without_a_header_is_told(
    make_task: Make, tmp_path: Path, form: str, content: bytes, said: str
) -> None:
    task = make_task(format=form, header=False, columns={"text": 4, "label": 2})
    (tmp_path / "train.tsv").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_split(task, "train", tmp_path)
    assert any(said in fault for fault in caught.value.faults), caught.value.faults


def test_every_damaged_row_is_counted_and_named(make_task: Make, tmp_path: Path) -> None:
    content = GOOD_ROW + b"2\t\x80\t1\n3\t \t1\n4\tx\tnan\n5\tx\t1\tmore\n6\twith \x00 in it\t2\t\n"
    (tmp_path / "train.tsv").write_bytes(content)
    split = load_split(make_task(), "train", tmp_path)
    assert labels_of(split.table).tolist() == [1.0, 2.0]
    assert [row.split(": ", 1)[1] for row in split.damaged] == [
        "not UTF-8 text",
        "sentence 1 is empty",
        "no label",
        "4 fields under a header of 3; a stray tab?",
    ]


BYTES = st.binary(max_size=80) | st.lists(
    st.sampled_from(
        [b"id", b"text", b"label", b"\t", b"\n", b"\r", b'"', b"1", b"2.0", b"\x00", b"\xff", b"w"]
    ),
    max_size=40,
).map(b"".join)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    content=BYTES | BYTES.map(GOOD_ROW.__add__),
    form=st.sampled_from(["cs224n", "glue", "parquet", "arrow"]),
    split=st.sampled_from(["train", "test"]),
    header=st.booleans(),
    labels=st.sampled_from([[], ["id", "w", "label"]]),
)
def test_any_bytes_give_a_split_or_an_input_error(
    make_task: Make,
    tmp_path: Path,
    content: bytes,
    form: str,
    split: str,
    header: bool,
    labels: list[str],
) -> None:
    columns: dict[str, Any] = {"id": "id", "text": "text", "label": "label"}
    columns = SAMPLE if form == "arrow" else columns
    changes: dict[str, Any] = {"labels": labels} if labels else {}
    if not header and form in ("cs224n", "glue"):
        columns, changes = {"text": 2, "label": 1}, {**changes, "header": False}
    task = make_task(format=form, columns=columns, **changes)
    (tmp_path / f"{split}.tsv").write_bytes(content)
    try:
        assert len(load_split(task, split, tmp_path).table) > 0
    except InputError as error:
        assert error.faults


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    form=st.sampled_from(["parquet", "arrow"]),
    place=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
    cut=st.booleans(),
)
def test_a_damaged_columnar_file_gives_a_split_or_an_input_error(
    make_task: Make, tmp_path: Path, form: str, place: float, byte: int, cut: bool
) -> None:
    table = pa.Table.from_pylist(
        [{"id": str(n), "sentence1": f"row {n}", "label": n % 3} for n in range(20)], schema=SCHEMA
    )
    path = tmp_path / "train.tsv"
    if form == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    content = bytearray(path.read_bytes())
    at = int(place * len(content))
    if cut:
        del content[at:]
    else:
        content[at] = byte
    path.unlink()
    path.write_bytes(content)
    try:
        load_split(make_task(format=form, columns=SAMPLE), "train", tmp_path)
    except InputError as error:
        assert error.faults


def test_a_missing_id_column_is_told_of_labelled_rows_only(make_task: Make, tmp_path: Path) -> None:
    task = make_task(format="parquet")
    rows = pa.table({"ids": ["a"], "text": ["fine"], "label": [1]})
    for split in ("dev", "test"):
        pq.write_table(rows, tmp_path / f"{split}.tsv")
    with pytest.raises(InputError, match="has no column 'id'.*did you mean 'ids'"):
        load_split(task, "dev", tmp_path)
    assert len(load_split(task, "test", tmp_path).table) == 1
