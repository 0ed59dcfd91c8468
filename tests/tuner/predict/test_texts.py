"""A file of texts answered, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from model.common.errors import InputError
from model.data.teacher import TEXTS
from model.evaluation.model_folder import save_model
from model.modules.encoder import load_tokenizer
from model.modules.multitask import MultitaskModel
from tuner.predict.__main__ import main
from tuner.predict.predictor import Predictor, load_predictor
from tuner.predict.texts import answer_file


@pytest.fixture(scope="module")
def predictor(
    model_of: Callable[..., MultitaskModel], tmp_path_factory: pytest.TempPathFactory
) -> Predictor:
    folder = tmp_path_factory.mktemp("model") / "model"
    save_model(folder, model_of(), load_tokenizer("tiny"))
    return load_predictor(folder)


def test_texts_are_answered_as_a_student_reads_them(predictor: Predictor, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a good film\n\na bad book\n")
    out, file = str(tmp_path / "out"), str(tmp_path / "texts.txt")
    assert main([str(predictor.place), "--texts", file, "--out", out, "-q"]) == 0
    table = pq.read_table(tmp_path / "out" / "texts.parquet")
    assert set(table.column_names) >= set(TEXTS)
    names = [name for name, task in predictor.tasks.items() if not task.pair]
    assert table["task"].to_pylist() == [name for name in names for _ in range(2)]
    assert table["sentence1"].to_pylist()[:2] == ["a good film", "a bad book"]
    answers = predictor.answer_texts({names[0]: ["a good film", "a bad book"]})[names[0]]
    assert table["prediction"].to_pylist()[:2] == pytest.approx(list(answers.values))
    assert table["label"].null_count == len(table)


def test_each_phase_and_who_answered_are_told(
    predictor: Predictor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("a good film\n")
    assert main([str(predictor.place), "--texts", str(file), "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines()[:2] == ["loading the model", f"answering {file}"]
    assert told.err.splitlines()[2].startswith("answered by ") and told.err.count("\n") == 3
    assert told.out == f"{tmp_path / 'texts.parquet'}\n"


def test_pairs_have_a_tab_between_them(predictor: Predictor, tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text("one\tother\n")
    pair = next(name for name, task in predictor.tasks.items() if task.pair)
    alone = next(name for name, task in predictor.tasks.items() if not task.pair)
    table = pq.read_table(answer_file(predictor, path, pair, tmp_path))
    assert table["sentence2"].to_pylist() == ["other"]
    with pytest.raises(InputError, match=f"'{alone}' takes one text; remove the tabs"):
        answer_file(predictor, path, alone, tmp_path)
    path.write_text("one\tother\nalone\n")
    with pytest.raises(InputError, match="one text in each line, or two with a tab"):
        answer_file(predictor, path, None, tmp_path)
