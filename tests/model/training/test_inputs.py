from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from model.common.errors import InputError
from model.config.parse import parse_settings
from model.config.settings import SimcseSettings
from model.data.rows import labels_of
from model.tasks.task_set import TaskSet, load_task_set
from model.training.inputs import load_tables, sample_rows, simcse_sentences
from model.training.prepare import prepare

TASKS = """
tasks:
  mood:
    classes: 3
    format: glue
    files: {train: mood-train.tsv, dev: mood-dev.tsv}
    columns: {text: sentence, label: label}
  near:
    regression: [0, 5]
    format: glue
    files: {train: near-train.tsv, dev: near-dev.tsv}
    columns: {text: [first, second], label: score}
"""
TRAIN, DEV = 20, 8


@pytest.fixture
def own(tmp_path: Path) -> TaskSet:
    """A task set of two with its files beside it."""
    (tmp_path / "own.yaml").write_text(TASKS)
    for split, count in (("train", TRAIN), ("dev", DEV)):
        moods = [f"{split} word {n}\t{n % 3}" for n in range(count)]
        (tmp_path / f"mood-{split}.tsv").write_text("\n".join(["sentence\tlabel", *moods]) + "\n")
        pairs = [f"{split} one {n}\tother {n}\t{n % 6}" for n in range(count)]
        (tmp_path / f"near-{split}.tsv").write_text(
            "\n".join(["first\tsecond\tscore", *pairs]) + "\n"
        )
    return load_task_set(str(tmp_path / "own.yaml"))


@pytest.fixture
def extra(tmp_path: Path) -> Path:
    path = tmp_path / "extra.tsv"
    path.write_text("sentence\tlabel\n" + "".join(f"extra {n}\t1\n" for n in range(15)))
    return path


def tables_of(tasks: TaskSet, data: Path | None, **settings: Any) -> Any:
    config = parse_settings({k.replace("__", "."): v for k, v in settings.items()}, tasks)
    return load_tables(config, tasks, data, pytest.fail)


def test_every_task_has_its_rows(own: TaskSet, tmp_path: Path) -> None:
    tables = tables_of(own, tmp_path)
    assert list(tables) == ["mood", "near"]
    for table in tables.values():
        assert (len(table.train), table.real, len(table.dev)) == (TRAIN, TRAIN, DEV)
    assert labels_of(tables["near"].train).tolist() == [n % 6 for n in range(TRAIN)]
    assert labels_of(tables["near"].train).dtype == np.float64


def test_the_sample_needs_no_files(tasks: TaskSet) -> None:
    tables = tables_of(tasks, None)
    assert list(tables) == list(tasks.names)
    assert all(table.real == len(table.train) > len(table.dev) > 50 for table in tables.values())


# --- augmentation -------------------------------------------------------------------------------


def test_extra_rows_are_trained_on_and_not_counted(
    own: TaskSet, tmp_path: Path, extra: Path
) -> None:
    tables = tables_of(own, tmp_path, augment__mood=str(extra))
    assert (len(tables["mood"].train), tables["mood"].real) == (TRAIN + 15, TRAIN)
    assert tables["mood"].train["sentence1"][TRAIN:].to_pylist() == [
        f"extra {n}" for n in range(15)
    ]
    assert len(tables["mood"].dev) == DEV
    assert (len(tables["near"].train), tables["near"].real) == (TRAIN, TRAIN)


def test_a_plan_counts_real_rows_and_streams_have_all(
    own: TaskSet, tmp_path: Path, extra: Path
) -> None:
    settings = {"encoder.name": "tiny", "batch.sizes": 8, "augment.mood": str(extra)}
    ready = prepare(parse_settings(settings, own), own, data=tmp_path, device="cpu")
    assert ready.plan.rows == (TRAIN, TRAIN)
    assert ready.plan.batches == (-(-(TRAIN + 15) // 8), -(-TRAIN // 8))
    stream = ready.streams["mood"]
    seen = np.concatenate([stream.rows(k) for k in range(stream.per_pass)])
    assert sorted(seen.tolist()) == list(range(TRAIN + 15))


def test_extra_rows_of_a_task_without_files_come_as_parquet(tasks: TaskSet, tmp_path: Path) -> None:
    path = tmp_path / "extra.parquet"
    rows = {"id": ["x"], "sentence1": ["so fine"], "label": [4.0]}
    pq.write_table(pa.table(rows), path)
    tables = tables_of(tasks, None, augment__sentiment=str(path))
    assert len(tables["sentiment"].train) == tables["sentiment"].real + 1


# --- a sample of the dev rows -------------------------------------------------------------------


def test_the_rows_to_score_are_the_same_for_every_run(tasks: TaskSet) -> None:
    first = tables_of(tasks, None, budget__eval_rows=30, seed=0)
    second = tables_of(tasks, None, budget__eval_rows=30, seed=7)
    whole = tables_of(tasks, None)
    for name in tasks.names:
        assert len(first[name].dev) == 30
        assert first[name].dev.equals(second[name].dev)
        assert first[name].train.equals(whole[name].train)
        ids = whole[name].dev["id"].to_pylist()
        places = [ids.index(one) for one in first[name].dev["id"].to_pylist()]
        assert places == sorted(set(places))  # in their order, none twice
        assert places != list(range(30))  # and not just the first ones


def test_a_sample_of_all_rows_is_the_table_itself() -> None:
    table = pa.table({"id": ["a", "b"]})
    for limit in (None, 2, 5):
        assert sample_rows(table, limit) is table
    assert len(sample_rows(table, 1)) == 1


# --- faults -------------------------------------------------------------------------------------


def test_the_faults_of_all_files_come_at_once(own: TaskSet, tmp_path: Path, extra: Path) -> None:
    (tmp_path / "mood-dev.tsv").write_text("sentence\tlabel\nfine\t1\ngood\t1.5\n")
    (tmp_path / "near-train.tsv").write_text("first\tsecond\tscore\na\tb\t9\nc\td\tx\n")
    (tmp_path / "near-dev.tsv").write_text("first\tother\tscore\na\tb\t1\n")
    extra.write_text("sentence\tlabel\nfine\t8\n")
    with pytest.raises(InputError) as caught:
        tables_of(own, tmp_path, augment__mood=str(extra))
    assert caught.value.where == "data"
    for beginning in (
        "mood-dev.tsv: row 2: label 1.5 is not a whole number",
        "extra.tsv: row 1: label 8 is outside 0 to 2",
        "near-train.tsv: row 1: label 9 is outside 0 to 5",
        "near-train.tsv: row 2: label 'x' is not a number",
        "near-dev.tsv: ",
    ):
        assert any(fault.startswith(f"{tmp_path}/{beginning}") for fault in caught.value.faults)


def test_missing_files_are_all_named(own: TaskSet, tmp_path: Path) -> None:
    names = [f"{task}-{split}.tsv" for task in own.names for split in ("train", "dev")]
    shipped = load_task_set("cs224n")  # which lies beside no data
    with pytest.raises(InputError) as caught:
        tables_of(shipped, None)
    files = [task.source.files[split] for task in shipped for split in ("train", "dev")]
    assert all(name in str(caught.value) for name in files)
    assert caught.value.where == "--data"
    for name in names[1:]:
        (tmp_path / name).unlink()
    with pytest.raises(InputError) as caught:
        tables_of(own, tmp_path)
    told = str(caught.value)
    assert all(f"{name}: no such file" in told for name in names[1:])
    assert f"{names[0]}: no such file" not in told
    with pytest.raises(InputError) as caught:
        tables_of(own, None)  # they stand beside the task file, too
    assert str(caught.value) == told


def test_a_missing_augmentation_is_told(own: TaskSet, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        tables_of(own, tmp_path, augment__mood=str(tmp_path / "none.tsv"))
    assert "none.tsv: no such file" in caught.value.faults[0]


@pytest.mark.parametrize(("bad", "word"), [(1, "1 damaged row: "), (4, "4 damaged rows: ")])
def test_damaged_rows_are_skipped_and_told(
    own: TaskSet, tmp_path: Path, bad: int, word: str
) -> None:
    with open(tmp_path / "mood-train.tsv", "a") as file:
        file.write("no label\t\n" * bad)
    told: list[str] = []
    tables = load_tables(parse_settings({}, own), own, tmp_path, told.append)
    assert len(tables["mood"].train) == TRAIN
    (line,) = told
    assert line.startswith(f"skipped {word}mood-train.tsv row 21: no label")
    assert line.endswith(" and 2 more") == (bad == 4)


# --- SimCSE -------------------------------------------------------------------------------------


@pytest.fixture
def sentences(own: TaskSet, tmp_path: Path) -> Callable[..., list[str]]:
    def of(**settings: Any) -> list[str]:
        table = simcse_sentences(SimcseSettings(**settings), tables_of(own, tmp_path))
        assert table["sentence2"].null_count == len(table)
        found: list[str] = table["sentence1"].to_pylist()
        return found

    return of


def test_simcse_takes_every_training_sentence_once(
    sentences: Callable[..., list[str]], tmp_path: Path
) -> None:
    with open(tmp_path / "mood-train.tsv", "a") as file:
        file.write("train word 0\t2\n")  # again
    found = sentences()
    assert len(found) == len(set(found)) == 3 * TRAIN
    assert set(found) == {
        f"{start} {n}" for start in ("train word", "train one", "other") for n in range(TRAIN)
    }


def test_simcse_takes_the_sentences_of_the_tasks_that_are_named(
    sentences: Callable[..., list[str]], own: TaskSet
) -> None:
    single, pair = own.names
    assert set(sentences(tasks=(single,))) == {f"train word {n}" for n in range(TRAIN)}
    both_sides = {f"{start} {n}" for start in ("train one", "other") for n in range(TRAIN)}
    assert set(sentences(tasks=(pair,))) == both_sides
    assert set(sentences(tasks=(single, pair))) == set(sentences())


def test_simcse_takes_a_file_of_sentences(
    sentences: Callable[..., list[str]], tmp_path: Path
) -> None:
    path = tmp_path / "some.txt"
    path.write_text("one line\n\n  another \n")
    assert sentences(text=str(path)) == ["one line", "another"]
    with pytest.raises(InputError, match="no such file"):
        sentences(text=str(tmp_path / "none.txt"))


def test_simcse_of_one_run_has_a_stream_of_single_sentences(own: TaskSet, tmp_path: Path) -> None:
    settings = {"encoder.name": "tiny", "pretrain.simcse.epochs": 1.0}
    ready = prepare(parse_settings(settings, own), own, data=tmp_path, device="cpu")
    assert ready.simcse is not None
    assert ready.simcse.batch(0).parts == 1
    assert len(ready.simcse.tokens) == 3 * TRAIN
