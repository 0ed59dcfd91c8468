from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from model.common.errors import InputError
from model.tasks.prediction_file import PredictionFile
from tests.model.cs224n_files import write_cs224n
from tests.tuner.soup_runs import POINTS, made_up_method, made_up_soup, make_run, write_record
from tuner.predict.__main__ import main
from tuner.predict.choose import RunModels, choose
from tuner.predict.predictor import load_predictor
from tuner.runs.open import open_run
from tuner.soup.ensemble_file import EnsembleMember, EnsembleSpec

ROWS = 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cs224n(tmp_path_factory.mktemp("data"), ROWS)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials on CS224N's kind of files; without a soup."""
    folder = tmp_path_factory.mktemp("predict") / "run"
    return make_run(folder, POINTS[:2], tasks="cs224n", data=data, examples=48)


@pytest.fixture(scope="module")
def written(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    assert main([str(run), "--out", str(out), "--quiet"]) == 0
    return out


FILES = {
    "sst": "Predicted_Sentiment",
    "para": "Predicted_Is_Paraphrase",
    "sts": "Predicted_Similiary",
}


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("task", FILES)
def test_the_six_files_are_in_the_projects_format(written: Path, task: str, split: str) -> None:
    data = (written / f"{task}-{split}-output.csv").read_bytes().decode()
    header, *lines = data.split("\n")
    assert header == f"id \t {FILES[task]} "
    assert lines.pop() == "" and len(lines) == ROWS
    table = pq.read_table(written / f"{split}.parquet").to_pylist()
    rows = [row for row in table if row["task"] == task]
    assert len(rows) == ROWS
    for line, row in zip(lines, rows, strict=True):
        identity, value, rest = line.split(" , ")[0], line.split(" , ")[1][:-1], line[-1]
        assert identity == row["id"] == identity.lower() and rest == " "
        assert float(value) == pytest.approx(row["prediction"], abs=1e-5)
        if task == "sst":
            assert value in "01234"
        elif task == "para":
            assert value in ("0.0", "1.0")
        assert (row["label"] is None) == (split == "test")
        assert (row["probabilities"] is None) == (task == "sts")


def test_the_format_byte_for_byte() -> None:
    file = PredictionFile("sst-{split}-output.csv", "Predicted_Sentiment")
    assert file.name("dev") == "sst-dev-output.csv"
    assert file.text(["a1", "b2"], [3.0, 0.0], "classes") == (
        "id \t Predicted_Sentiment \na1 , 3 \nb2 , 0 \n"
    )
    assert file.text(["a"], [1.0], "binary").endswith("a , 1.0 \n")
    assert file.text(["a"], [2.345678], "regression").endswith("a , 2.345678 \n")


def test_a_run_without_a_soup_answers_with_its_best(
    run: Path, written: Path, tmp_path: Path
) -> None:
    chosen = choose(run)
    best = chosen.place
    assert best.name == "model" and best.parents[2].parent.name == "trials"
    assert chosen.who == f"{best.parents[2].name}, the best trial; the run has no soup"
    assert main([str(best.parents[2]), "--out", str(tmp_path), "-q", "--split", "test"]) == 0
    assert not (tmp_path / "sst-dev-output.csv").exists()
    for path in tmp_path.glob("*.csv"):
        assert path.read_bytes() == (written / path.name).read_bytes()


def test_a_sentence_and_a_pair_are_answered_by_what_fits(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), "--text", "a slow film"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("sst: ") and "para" not in said
    assert main([str(run), "--text", "a slow film", "a film that is slow"]) == 0
    said = capsys.readouterr().out
    assert "para: " in said and "sts: " in said and "of 0 to 5" in said
    assert main([str(run), "--text", "a", "b", "--task", "sts"]) == 0
    assert capsys.readouterr().out.count("\n") == 1


@pytest.fixture
def with_soup(run: Path, tmp_path: Path) -> Path:
    """The run as if its soup had found that an ensemble of both trials is best."""
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    models = sorted(copy.glob("trials/*/checkpoints/*/model"))
    parts = {task: EnsembleMember("mean", tuple(models), (1.0,) * len(models)) for task in FILES}
    for name in ("soups/greedy-ensemble", "soup"):
        (copy / name).mkdir(parents=True)
    place = copy / "soups/greedy-ensemble"
    EnsembleSpec("greedy ensemble", "cs224n", parts).write(place, place)
    for file in models[0].iterdir():
        shutil.copy(file, copy / "soup")
    methods = [
        made_up_method("greedy ensemble", "predictions", folder="soups/greedy-ensemble", models=2),
        made_up_method("greedy soup", "weights", folder="soup"),
        made_up_method("weighted soup", "weights", folder=None),
    ]
    soup = made_up_soup(methods=methods, recommended="greedy ensemble", task_set="cs224n")
    write_record(copy, soup)
    return copy


def test_a_run_answers_with_what_it_recommends_and_says_so(
    with_soup: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(with_soup), "--text", "a slow film"]) == 0
    said = capsys.readouterr()
    who = "the greedy ensemble (2 models), which the search recommends"
    assert said.err == f"loading the model\nanswering\nanswered by {who}\n"
    assert said.out.startswith("sst: ")
    predictor = load_predictor(with_soup)
    assert predictor.who == who and predictor.place == with_soup / "soups/greedy-ensemble"
    assert main([str(with_soup), "--text", "a slow film", "--quiet"]) == 0
    assert capsys.readouterr() == (said.out, "")


@pytest.mark.parametrize(
    ("name", "place", "who"),
    [
        ("greedy soup", "soup", "the greedy soup (1 model)"),
        ("greedy-soup", "soup", "the greedy soup (1 model)"),
        ("t0001", "trials/t0001/", "t0001;"),
        ("default", "trials/t0000/", "t0000, the default configuration;"),
        ("best", "trials/", ", the best trial;"),
        ("greedy ensemble", "soups/greedy-ensemble", "models), which the search recommends"),
    ],
)
def test_another_model_of_the_run_is_taken_by_its_name(
    with_soup: Path, name: str, place: str, who: str
) -> None:
    found = load_predictor(str(with_soup), model=name)
    assert str(found.place.relative_to(with_soup)).startswith(place)
    assert who in found.who and "the search recommends" in found.who


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gredy soup", "did you mean 'greedy soup'? There are best, greedy ensemble, greedy soup"),
        ("xyzzy", "known: best, default, greedy ensemble, greedy soup, t0000, t0001"),
        ("weighted soup", "the weighted soup was not written; make it with"),
    ],
)
def test_a_model_that_the_run_does_not_have_is_refused_with_those_it_has(
    with_soup: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(with_soup), "--model", name, "--text", "a"]) == 2
    assert said in capsys.readouterr().err


def test_what_is_gone_is_told_with_the_way_to_it(with_soup: Path, run: Path) -> None:
    shutil.rmtree(with_soup / "soups")
    with pytest.raises(InputError, match=r"greedy ensemble, which .* is not there; make it with"):
        choose(with_soup)
    shutil.rmtree(with_soup / "trials/t0001/checkpoints")
    with pytest.raises(InputError, match=r"of t0001 was not kept; there are best, greedy soup, d"):
        choose(with_soup, "t0001")
    with pytest.raises(InputError, match="the run has no soup; make it with"):
        choose(run, "greedy soup")
    with pytest.raises(InputError, match="not the folder of a search"):
        choose(with_soup / "soup", "best")
    models = RunModels(run, open_run(run).state)
    assert list(models.names()) == ["best", "default", "t0000", "t0001"]


def test_an_ensemble_is_a_ensemble_that_can_be_written_by_hand(
    run: Path, data: Path, tmp_path: Path
) -> None:
    models = sorted(run.glob("trials/*/checkpoints/*/model"))
    members = [{"model": str(model), "weight": 1} for model in models]
    answers = {task: {"rule": "mean", "members": members} for task in FILES}
    ensemble = {"format": 1, "tasks": "cs224n", "answers": answers}
    (tmp_path / "ensemble.json").write_text(json.dumps(ensemble))
    flags = ["--split", "dev", "--data", str(data), "--out", str(tmp_path / "out"), "-q"]
    assert main([str(tmp_path), *flags]) == 0
    rows = [
        r for r in pq.read_table(tmp_path / "out/dev.parquet").to_pylist() if r["task"] == "sst"
    ]
    assert len(rows) == ROWS and all(sum(r["probabilities"]) == pytest.approx(1) for r in rows)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "--out is missing"),
        (["--out", "x", "--text", "a"], "leave --out away"),
        (["--text", "a", "b", "c"], "put each in quotes"),
        (["--out", "x", "--split", "tset"], "known: train, dev, test"),
        (["--modle", "x"], "did you mean --model?\n  --out is missing"),
        (["--text", "a", "--task", "stt"], "no task 'stt'"),
        (["--text", "a", "--task", "sts"], "takes pairs"),
        (["--out", "x", "--data", "nowhere"], "nowhere: 1 problem"),
        (["--out", "x", "--tasks", "sample"], "the model has no task 'sentiment'"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_a_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--text", "a"]) == 2
    assert "has no model in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rule": "median"}, "rule is 'median'; known: mean, vote"),
        ({"members": []}, "has no members"),
        ({"members": [{"model": "gone", "weight": 1}]}, "no model in gone"),
        ({"members": [{"model": "gone", "weight": 0}]}, "a number above 0"),
    ],
)
def test_a_ensemble_that_cannot_be_followed_is_refused(
    tmp_path: Path, change: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    part = {"rule": "mean", "members": [{"model": "gone", "weight": 1}], **change}
    ensemble = {"format": 1, "tasks": "cs224n", "answers": {"sst": part}}
    (tmp_path / "ensemble.json").write_text(json.dumps(ensemble))
    assert main([str(tmp_path), "--text", "a"]) == 2
    assert said in capsys.readouterr().err


def test_a_checkpoint_knows_where_its_runs_data_were(run: Path, data: Path) -> None:
    (place, *_) = sorted((run / "trials/t0000/checkpoints").iterdir())
    found = load_predictor(place)
    assert found.place == place / "model"
    assert found.data == data and found.task_set == "cs224n"
