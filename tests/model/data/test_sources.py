from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model.common.errors import InputError
from model.data.clean import lower, spaced
from model.data.imported import imported_path, write_split
from model.data.rows import SCHEMA
from model.data.sources import (
    absent_files,
    import_split,
    load_augmentation,
    load_source,
    load_split,
    read_sentences,
    require_data,
)
from model.tasks.task_set import Task, load_task_set

Make = Callable[..., Task]
GOOD_ROW = b"id\ttext\tlabel\n1\tfine\t1\n"
SAMPLE = {"text": "sentence1", "label": "label"}
PAIRS = {"id": "id", "text": ["sentence1", "sentence2"], "label": "is_duplicate"}


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_cs224n_files_are_read_with_their_quirks(make_task: Make, tmp_path: Path) -> None:
    task = make_task(binary=True, format="cs224n", columns=PAIRS, clean="spaced")
    lines = [
        "\tid\tsentence1\tsentence2\tis_duplicate",
        "7\t AbC1 \tIs it  Big?\tYes, it's big.\t1.0",
        '8\td2\t"""Quoted"", he said"\tplain\t0',
        "9\td3\tno label here\tnone at all\t",
        "10\td4\tcut short",
        '11\td5\t"an open quote\teats the rest\t1',
        "12\td6\tlast one\tis fine\t0.0",
    ]
    (tmp_path / "train.tsv").write_bytes("\r\n".join(lines).encode())
    split = load_split(task, "train", tmp_path)
    assert split.table.schema.equals(SCHEMA)
    assert rows_of(split.table) == [
        ("abc1", "is it big ?", "yes , it 's big .", 1.0),
        ("d2", '"quoted" , he said', "plain", 0.0),
        ("d6", "last one", "is fine", 0.0),
    ]
    assert split.damaged == (
        "train.tsv row 3: no label",
        "train.tsv row 4: cut short: 3 of 5 fields",
        "train.tsv row 5: cut short: 3 of 5 fields, with an unbalanced quote",
    )


def test_test_rows_need_no_label_and_no_label_column(make_task: Make, tmp_path: Path) -> None:
    task = make_task(format="cs224n", clean="lower")
    (tmp_path / "test.tsv").write_text("0\t\tid\ttext\n5\t5\tX\t Some Words \n6\t6\tY\t\n")
    split = load_split(task, "test", tmp_path)
    assert rows_of(split.table) == [("x", "some words", None, None), ("y", "", None, None)]
    assert split.damaged == ()


def test_glue_files_know_no_quotes_and_rows_without_id_are_numbered(
    make_task: Make, tmp_path: Path
) -> None:
    task = make_task(columns={"text": "text", "label": "label"})
    (tmp_path / "dev.tsv").write_text('text\tlabel\n"Open quote\t2\nsecond "one" here\t0\n')
    table = load_split(task, "dev", tmp_path).table
    assert rows_of(table) == [
        ("1", '"Open quote', None, 2.0),
        ("2", 'second "one" here', None, 0.0),
    ]


def test_class_names_become_the_numbers_of_their_places(make_task: Make, tmp_path: Path) -> None:
    names = ["entailment", "neutral", "contradiction"]
    rows = "1\ta\tneutral\n2\tb\t contradiction\n3\tc\t\n4\td\tentailment\n5\te\tnan\n"
    for form in ("glue", "cs224n"):
        (tmp_path / "train.tsv").write_text("id\ttext\tlabel\n" + rows)
        split = load_split(make_task(format=form, labels=names), "train", tmp_path)
        assert split.table["label"].to_pylist() == [1.0, 2.0, 0.0]
        assert split.damaged == ("train.tsv row 3: no label", "train.tsv row 5: no label")
    (tmp_path / "train.tsv").write_text("id\ttext\tlabel\n1\ta\tnot_entailment\n2\tb\tentailment\n")
    task = make_task(binary=True, labels=["not_entailment", "entailment"])
    assert load_split(task, "train", tmp_path).table["label"].to_pylist() == [0.0, 1.0]


@pytest.mark.parametrize("form", ["glue", "cs224n"])
def test_where_classes_have_names_labels_may_be_names_or_numbers(
    make_task: Make, tmp_path: Path, form: str
) -> None:
    task = make_task(format=form, classes=["bad", "fair", "good"])
    (tmp_path / "dev.tsv").write_text("id\ttext\tlabel\n1\ta\tgood\n2\tb\t1\n3\tc\tbad\n")
    assert load_split(task, "dev", tmp_path).table["label"].to_pylist() == [2.0, 1.0, 0.0]


def test_files_stand_beside_the_task_file_unless_a_folder_is_named(
    make_task: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, label in ((tmp_path, 0), (tmp_path / "other", 1), (tmp_path / "third", 2)):
        place.mkdir(exist_ok=True)
        (place / "dev.tsv").write_text(f"id\ttext\tlabel\n1\ta\t{label}\n")
    monkeypatch.chdir(tmp_path / "other")  # where somebody stands says nothing

    def label(task: Task, data: Path | None) -> list[float]:
        require_data([task], data, ["dev"])
        found: list[float] = load_split(task, "dev", data).table["label"].to_pylist()
        return found

    task = make_task(files={"train": "train.tsv", "dev": "dev.tsv"})
    assert label(task, None) == [0.0] and label(task, tmp_path / "other") == [1.0]
    absolute = make_task(files={"train": "t.tsv", "dev": str(tmp_path / "third" / "dev.tsv")})
    assert label(absolute, None) == [2.0] and label(absolute, tmp_path / "other") == [2.0]
    with pytest.raises(InputError, match=r"mood: train.tsv: no such file") as refused:
        require_data([task], None, ["train"])
    assert refused.value.where == str(tmp_path)


@pytest.mark.timeout(60)
def test_files_outside_of_the_data_folder_are_read_as_rows_and_nothing_else(
    make_task: Make, tmp_path: Path
) -> None:
    """As docs/security.md says: a task file may name any file that its reader may read."""
    (tmp_path / "data").mkdir()
    (tmp_path / "dev.tsv").write_text("id\ttext\tlabel\n1\ta\t1\n")
    for name in ("../dev.tsv", str(tmp_path / "dev.tsv")):
        task = make_task(files={"train": "t.tsv", "dev": name})
        assert load_split(task, "dev", tmp_path / "data").table["label"].to_pylist() == [1.0]
    assert [path.name for path in (tmp_path / "data").iterdir()] == []
    os.mkfifo(tmp_path / "pipe")
    for name in ("../pipe", "/dev/zero"):
        task = make_task(files={"train": "t.tsv", "dev": name})
        with pytest.raises(InputError, match="no such file"):
            load_split(task, "dev", tmp_path / "data")


def test_where_a_task_file_lies_is_no_part_of_what_it_says(make_task: Make, tmp_path: Path) -> None:
    task = make_task()
    moved = replace(task, source=replace(task.source, folder=tmp_path / "elsewhere"))
    assert moved == task and repr(moved) == repr(task)
    (tmp_path / "dev.tsv").write_text("id\ttext\tlabel\n1\ta\t0\n")
    import_split(task, "dev", tmp_path, tmp_path / "mood-dev.arrow")
    assert load_split(moved, "dev", tmp_path).table["label"].to_pylist() == [0.0]


@pytest.mark.parametrize("form", ["glue", "cs224n"])
def test_files_with_commas_are_read_as_those_with_tabs(
    make_task: Make, tmp_path: Path, form: str
) -> None:
    rows = 'label,id,text\n2,A,"one, two"\n0,B,"say ""no"""\n1,C,plain\n1,D,a,b\n1,"E\n'
    (tmp_path / "dev.tsv").write_text(rows)
    split = load_split(make_task(format=form), "dev", tmp_path)
    assert split.table["sentence1"].to_pylist() == ["one, two", 'say "no"', "plain"]
    assert split.table["label"].to_pylist() == [2.0, 0.0, 1.0]
    assert split.damaged == (
        "dev.tsv row 4: 4 fields under a header of 3; a comma without quotes around its field?",
        "dev.tsv row 5: cut short: 2 of 3 fields, with an unbalanced quote",
    )
    (tmp_path / "dev.tsv").write_text('"one, two",2\nplain,0\n')
    task = make_task(format=form, header=False, columns={"text": 1, "label": 2})
    split = load_split(task, "dev", tmp_path)
    assert split.table["sentence1"].to_pylist() == ["one, two", "plain"]


def test_commas_in_a_file_with_tabs_are_commas(make_task: Make, tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("id\ttext\tlabel\n1\tone, two\t1\n")
    table = load_split(make_task(), "dev", tmp_path).table
    assert table["sentence1"].to_pylist() == ["one, two"]


def test_a_class_name_that_is_not_listed_is_told_with_those_that_are(
    make_task: Make, tmp_path: Path
) -> None:
    task = make_task(labels=["bad", "fair", "good"])
    (tmp_path / "dev.tsv").write_text("id\ttext\tlabel\n1\ta\tgood\n2\tb\tGood\n3\tc\t7\n")
    with pytest.raises(InputError) as caught:
        load_split(task, "dev", tmp_path)
    assert caught.value.where == str(tmp_path / "dev.tsv")
    assert caught.value.faults == [
        "row 2: label 'Good' is neither a class of the task nor a number",
        "row 3: label 7 is outside 0 to 2, the range of mood",
        "the task file says that the classes are bad, fair, good; correct it, or the rows",
    ]


def test_class_names_without_a_list_say_how_to_add_one(make_task: Make, tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("id\ttext\tlabel\n1\ta\tno\n2\tb\tyes\n3\tc\tno\n")
    with pytest.raises(InputError, match=r"as in 'labels: \[no, yes\]'; else check which column"):
        load_split(make_task(binary=True), "dev", tmp_path)
    with pytest.raises(InputError, match=r"as in 'classes: \[no, yes, \.\.\.\]'"):
        load_split(make_task(), "dev", tmp_path)
    with pytest.raises(InputError, match=r"a regression needs numbers \(found no, yes\)"):
        load_split(make_task(regression=[0, 1]), "dev", tmp_path)


def test_class_names_in_columns_are_mapped_and_numbers_stay(
    make_task: Make, tmp_path: Path
) -> None:
    task = make_task(format="parquet", labels=["bad", "fair", "good"])
    words = pa.array(["good", "bad", None]).dictionary_encode()
    for labels, expected in ((words, [2.0, 0.0]), ([1, 2, -1], [1.0, 2.0])):
        table = pa.table({"id": ["1", "2", "3"], "text": ["a", "b", "c"], "label": labels})
        pq.write_table(table, tmp_path / "train.tsv")
        split = load_split(task, "train", tmp_path)
        assert split.table["label"].to_pylist() == expected
        assert split.damaged == ("train.tsv row 3: no label",)


@pytest.mark.parametrize("form", ["glue", "cs224n"])
def test_a_file_without_a_header_is_read_from_its_first_row(
    make_task: Make, tmp_path: Path, form: str
) -> None:
    task = make_task(
        binary=True, format=form, header=False, columns={"text": 4, "label": 2}, clean="lower"
    )
    rows = ["gj04\t1\t\tThe first.", "cut\t1", "gj04\t0\t*\tSecond the.", "a\t1\t\tb\tstray"]
    (tmp_path / "train.tsv").write_bytes("\ufeff".encode() + "\r\n".join(rows).encode())
    split = load_split(task, "train", tmp_path)
    assert rows_of(split.table) == [
        ("1", "the first.", None, 1.0),
        ("3", "second the.", None, 0.0),
    ]
    assert split.damaged == (
        "train.tsv row 2: cut short: 2 of 4 fields",
        "train.tsv row 4: 5 fields where most rows have 4; a stray tab?",
    )


def test_a_file_without_a_header_may_have_ids_names_and_no_labels_to_test(
    make_task: Make, tmp_path: Path
) -> None:
    columns = {"id": 1, "text": [2, 3], "label": 4}
    task = make_task(binary=True, header=False, columns=columns, labels=["no", "yes"])
    (tmp_path / "dev.tsv").write_text("A\tx\ty\tyes\n")
    (tmp_path / "test.tsv").write_text("B\tx\ty\n")
    assert rows_of(load_split(task, "dev", tmp_path).table) == [("A", "x", "y", 1.0)]
    assert rows_of(load_split(task, "test", tmp_path).table) == [("B", "x", "y", None)]


def test_the_two_cleaning_rules() -> None:
    assert lower("  Oh, DEAR. ") == "oh, dear."
    assert spaced(" Who's  there?\tMe, I.e. ") == "who 's there ? me , i .e ."
    assert spaced(spaced("It's a.b, c?")) == spaced("It's a.b, c?")


def test_a_missing_file_is_told_with_what_the_folder_holds(make_task: Make, tmp_path: Path) -> None:
    task = make_task()
    (tmp_path / "other.tsv").touch()
    with pytest.raises(InputError) as caught:
        load_split(task, "train", tmp_path)
    told = str(caught.value)
    assert "train.tsv" in told and "holds other.tsv, tasks.yaml" in told and "--data" in told
    with pytest.raises(InputError, match="not a folder that can be read"):
        load_split(task, "train", tmp_path / "nowhere")
    with pytest.raises(InputError, match="name their folder with --data"):
        load_split(load_task_set("cs224n")["sst"], "train", None)
    for name in ("x" * 5000, "a\0b"):
        odd = make_task(files={"train": name, "dev": name})
        with pytest.raises(InputError, match="no such file"):
            load_split(odd, "train", tmp_path)


def test_all_missing_files_are_told_at_once(make_task: Make, tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").touch()
    with pytest.raises(InputError) as caught:
        require_data([make_task()], tmp_path)
    assert [fault.split(":")[1].strip() for fault in caught.value.faults[:-1]] == [
        "train.tsv",
        "test.tsv",
    ]
    assert absent_files([make_task()], tmp_path) == {
        ("mood", "train"): "train.tsv",
        ("mood", "test"): "test.tsv",
    }
    require_data([make_task()], tmp_path, splits=("dev",))
    require_data([make_task(format="sample", columns=SAMPLE)], None)


def test_a_split_that_is_not_named_is_told(make_task: Make, tmp_path: Path) -> None:
    task = make_task(files={"train": "a", "dev": "b"})
    with pytest.raises(InputError, match="has no split 'test'; known: dev, train"):
        load_split(task, "test", tmp_path)


def test_parquet_columns_of_many_types_are_read(make_task: Make, tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [4, 5, 6, 7],
            "text": pa.array(["a", "b", None, "b"]).dictionary_encode(),
            "label": pa.array([2, None, 1, -1], pa.int8()),
        }
    )
    pq.write_table(table, tmp_path / "train.tsv")
    split = load_split(make_task(format="parquet"), "train", tmp_path)
    assert rows_of(split.table) == [("4", "a", None, 2.0)]
    assert [row.split(": ")[1] for row in split.damaged] == [
        "no label",
        "no sentence 1",
        "no label",
    ]
    pq.write_table(table, tmp_path / "test.tsv")
    test = load_split(make_task(format="parquet"), "test", tmp_path).table
    assert test["label"].to_pylist() == [2.0, None, None]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"text": [1], "label": [1]}, "column 'text' holds int64, not text"),
        ({"id": [1], "text": ["x"], "label": [[1]]}, r"label '\[1\]' is not a number"),
        ({"id": [1], "text": ["x"], "label": ["good"]}, "list them in the task file"),
        ({"label": [1]}, "has no column 'text'"),
    ],
)
def test_wrong_parquet_columns_are_told(
    make_task: Make, tmp_path: Path, columns: dict[str, list[Any]], said: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "train.tsv")
    with pytest.raises(InputError, match=said):
        load_split(make_task(format="parquet"), "train", tmp_path)


def hub_task(make_task: Make) -> Task:
    splits = {"train": "train", "test": "test", "dev": "validation"}
    return make_task(format="hub", hub={"dataset": "glue", "config": "mood", "splits": splits})


def test_hub_rows_are_read_and_minus_one_is_no_label(
    make_task: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    asked = []

    def load_dataset(name: str, config: str | None, *, split: str) -> Any:
        asked.append((name, config, split))
        return datasets.Dataset.from_dict({"id": [1, 2], "text": ["one", "two"], "label": [0, -1]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = hub_task(make_task)
    dev = load_split(task, "dev", None)
    assert rows_of(dev.table) == [("1", "one", None, 0.0)]
    assert dev.damaged == ("glue validation row 2: no label",)
    assert load_split(task, "test", None).table["label"].to_pylist() == [0.0, None]
    assert asked == [("glue", "mood", "validation"), ("glue", "mood", "test")]


def test_a_hub_failure_is_told_with_its_reason(
    make_task: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_dataset(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route\nto the host")

    fake = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    with pytest.raises(InputError, match="ConnectionError: no route; check the names under 'hub'"):
        load_split(hub_task(make_task), "train", None)


def test_a_data_set_that_only_the_hub_has_says_that_the_hub_is_away(
    make_task: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_dataset(*_: Any, **__: Any) -> Any:
        raise ConnectionError("offline")

    monkeypatch.setattr("model.common.hub.no_way", lambda: True)
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    for split in ("train", "dev"):
        with pytest.raises(InputError, match=r"'glue' is not in the cache, and the Hub "):
            load_split(hub_task(make_task), split, None)


def test_without_datasets_the_extra_is_named(
    make_task: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"a clone of Stockpot: pip install '\.\[hub\]'"):
        load_split(hub_task(make_task), "train", None)


def test_an_imported_split_is_read_instead_of_its_source(make_task: Make, tmp_path: Path) -> None:
    task = make_task(clean="lower")
    (tmp_path / "train.tsv").write_bytes(GOOD_ROW + b"2\tNo Label\t\n3\tLast\t2\n")
    split = load_source(task, "train", tmp_path)
    out = tmp_path / "out"
    write_split(task.source, split, imported_path(task, "train", out))
    again = load_split(task, "train", out)
    assert again.table.equals(split.table) and again.damaged == split.damaged
    other = make_task(clean="none")
    with pytest.raises(InputError, match="imported with other settings"):
        load_split(other, "train", out)


def test_an_import_whose_source_has_changed_beside_it_is_refused(
    make_task: Make, tmp_path: Path
) -> None:
    task = make_task()
    source, path = tmp_path / "train.tsv", imported_path(make_task(), "train", tmp_path)
    source.write_bytes(GOOD_ROW)
    import_split(task, "train", tmp_path, path)
    assert rows_of(load_split(task, "train", tmp_path).table) == [("1", "fine", None, 1.0)]
    for changed in (GOOD_ROW.replace(b"fine", b"good"), GOOD_ROW + b"2\tmore\t1\n"):
        source.write_bytes(changed)
        said = f"train.tsv changed since it was imported; import it again, or remove {path}"
        with pytest.raises(InputError) as caught:
            load_split(task, "train", tmp_path)
        assert caught.value.faults == [said]
        assert import_split(task, "train", tmp_path, path).table.equals(
            load_split(task, "train", tmp_path).table
        )
    source.touch()  # the same bytes
    load_split(task, "train", tmp_path)
    source.unlink()  # the import is all that is left
    assert len(load_split(task, "train", tmp_path).table) == 2


def test_an_import_away_from_its_source_stands_for_itself(make_task: Make, tmp_path: Path) -> None:
    task, out = make_task(), tmp_path / "out"
    (tmp_path / "train.tsv").write_bytes(GOOD_ROW)
    import_split(task, "train", tmp_path, imported_path(task, "train", out))
    (tmp_path / "train.tsv").write_bytes(GOOD_ROW + b"2\tmore\t1\n")
    assert len(load_split(task, "train", out).table) == 1


def test_an_arrow_file_may_be_imported_onto_itself(make_task: Make, tmp_path: Path) -> None:
    files = {"train": "mood-train.arrow", "dev": "dev.arrow"}
    task = make_task(format="arrow", columns=SAMPLE, files=files)
    path = imported_path(task, "train", tmp_path)
    row = {"id": "1", "sentence1": "x", "sentence2": None, "label": 1.0}
    table = pa.Table.from_pylist([row], schema=SCHEMA)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    import_split(task, "train", tmp_path, path)
    assert load_split(task, "train", tmp_path).table.equals(table)


def test_other_names_for_the_classes_make_an_import_another(
    make_task: Make, tmp_path: Path
) -> None:
    (tmp_path / "train.tsv").write_text("id\ttext\tlabel\n1\ta\tyes\n")
    path = imported_path(make_task(), "train", tmp_path)
    task = make_task(binary=True, labels=["no", "yes"])
    import_split(task, "train", tmp_path, path)
    assert load_split(task, "train", tmp_path).table["label"].to_pylist() == [1.0]
    with pytest.raises(InputError, match="imported with other settings"):
        load_split(make_task(binary=True, labels=["yes", "no"]), "train", tmp_path)


def test_an_arrow_file_of_another_schema_is_refused(make_task: Make, tmp_path: Path) -> None:
    table = pa.table({"sentence1": ["x"], "label": [1]})
    with pa.ipc.new_file(tmp_path / "train.tsv", table.schema) as writer:
        writer.write_table(table)
    task = make_task(format="arrow", columns=SAMPLE)
    with pytest.raises(InputError, match=r"its columns are \(sentence1: string, label: int64\)"):
        load_split(task, "train", tmp_path)


def test_augmentation_comes_in_the_tasks_own_format_or_as_columns(
    make_task: Make, tmp_path: Path
) -> None:
    task = make_task(clean="lower")
    (tmp_path / "more.tsv").write_bytes(b"id\ttext\tlabel\nA\tExtra\t0\n")
    pq.write_table(
        pa.table({"id": ["A"], "text": ["Extra"], "label": [0]}), tmp_path / "more.parquet"
    )
    plain = load_augmentation(task, tmp_path / "more.tsv")
    write_split(task.source, plain, tmp_path / "more.arrow")
    for name in ("more.tsv", "more.parquet", "more.arrow"):
        ((_, *row),) = rows_of(load_augmentation(task, tmp_path / name).table)
        assert row == ["extra", None, 0.0]  # whatever its id: nobody looks for one
    bare = make_task(header=False, columns={"id": 1, "text": 2, "label": 3}, clean="lower")
    (tmp_path / "bare.tsv").write_bytes(b"A\tExtra\t0\n")
    names = ["id", "sentence1", "label"]  # columns that have to be called something
    renamed = pq.read_table(tmp_path / "more.parquet").rename_columns(names)
    pq.write_table(renamed, tmp_path / "bare.parquet")
    for name in ("bare.tsv", "bare.parquet", "more.arrow"):
        ((_, *row),) = rows_of(load_augmentation(bare, tmp_path / name).table)
        assert row == ["extra", None, 0.0]
    sample = make_task(format="sample", columns=SAMPLE)
    with pytest.raises(InputError, match=r"must be a \.parquet or \.arrow file"):
        load_augmentation(sample, tmp_path / "more.tsv")


def test_sentences_are_read_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffOne.\r\n\n  Two\n".encode())
    assert read_sentences(path) == ["One.", "Two"]
    path.write_bytes(b"fine\n\xff\n\xfe\n")
    with pytest.raises(InputError) as caught:
        read_sentences(path)
    assert caught.value.faults == ["line 2: not UTF-8 text", "line 3: not UTF-8 text"]
    path.write_bytes(b" \n")
    with pytest.raises(InputError, match="holds no sentences"):
        read_sentences(path)
