"""Studies run, without Ray and for a few steps each: every one that is shipped."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from model.common.errors import InputError
from model.tasks.task_set import load_task_set
from tests.model.cs224n_files import write_cs224n
from tests.tuner.without_ray import without_ray
from tuner.predict.predictor import load_predictor
from tuner.predict.splits import answer_splits
from tuner.runs.open import open_run
from tuner.runs.request import ExecutionOptions
from tuner.soup.ensemble_file import read_ensemble
from tuner.study.__main__ import main
from tuner.study.reader import load_study, shipped_studies
from tuner.study.request import StudyRequest
from tuner.study.run import StudyResult, read_study, run_study

EXAMPLES = 48


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_cs224n(tmp_path_factory.mktemp("cs224n"))
    (folder / "wiki.txt").write_text("\n".join(f"a made up sentence {n}" for n in range(40)))
    with open(folder / "paraphrases.csv", "w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["", "id", "sentence", "sentiment"])
        writer.writerows([n, f"p{n}", f"another film {n}", n % 5] for n in range(20))
    return folder


def run(
    name: str, data: Path, storage: Path, *, seeds: int = 1, scale: float = 0, **more: Any
) -> StudyResult:
    files = {"wiki": "wiki.txt", "wiki256": "wiki.txt", "paraphrases": "paraphrases.csv"}
    request = StudyRequest(
        data=str(data),
        encoder="tiny",
        examples=None if scale else EXAMPLES,
        scale=scale or 1.0,
        seeds=seeds,
        set={"encoder.max_length": 32},
        file={key: str(data / file) for key, file in files.items()},
    )
    options = {"storage_path": storage, "quiet": True, "report": False, **more}
    options |= {"max_concurrent_trials": 1, "cpus_per_trial": 1}
    with without_ray():
        return run_study(name, request, ExecutionOptions(**options))


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_studies())
def test_every_study_runs(name: str, data: Path, tmp_path: Path) -> None:
    result = run(name, data, tmp_path)
    assert result.complete, result.text
    study = load_study(name)
    for row in study.rows:
        assert f"\n{row.label}" in result.text
        assert f"'{row.label}' has no finished training" not in result.text
    assert study.paper in result.text
    for folder in result.folders:
        state = open_run(folder).state
        assert state.counts()["finished"] == len(state.search_trials) > 0
        assert all(trial.examples >= EXAMPLES for trial in state.trials.values())


@pytest.mark.slow
def test_every_row_has_every_seed_and_a_finished_study_trains_nothing_more(
    data: Path, tmp_path: Path
) -> None:
    first = run("004-encodings", data, tmp_path, seeds=2)
    (folder,) = first.folders
    state = open_run(folder).state
    assert len(state.search_trials) == 3 and len(state.repeats) == 3
    assert {trial.seed for trial in state.trials.values()} == {0, 1}
    assert "2 seeds" in first.text and "one seed" not in first.text
    events = state.events
    with pytest.raises(InputError, match="holds a search already"):
        run("004-encodings", data, tmp_path, seeds=2)
    again = run("004-encodings", data, tmp_path, seeds=2, resume=True)
    assert again.complete and again.text == first.text
    assert len(open_run(folder).state.trials) == 6 and open_run(folder).state.events > events
    told = read_study("004-encodings", ExecutionOptions(storage_path=tmp_path))
    assert told.text == first.text
    with pytest.raises(InputError, match="--confirm was"):
        run("004-encodings", data, tmp_path, seeds=3, resume=True)


@pytest.mark.slow
def test_rows_are_as_long_as_the_papers_times_the_scale(data: Path, tmp_path: Path) -> None:
    result = run("002-encodings", data, tmp_path, scale=96e-6)
    assert [folder.name for folder in result.folders] == [
        "002-encodings",
        "002-encodings-sts-120000",
    ]
    lengths = [
        {trial.examples for trial in open_run(folder).state.trials.values()}
        for folder in result.folders
    ]
    assert lengths == [{96}, {16}]  # 12 examples are one batch
    assert "rows as long as the paper's, times 9.6e-05" in result.text
    told = read_study("002-encodings", ExecutionOptions(storage_path=tmp_path))
    assert told.complete and told.text == result.text
    alike = run("002-encodings", data, tmp_path / "alike")
    told = read_study("002-encodings", ExecutionOptions(storage_path=tmp_path / "alike"))
    assert told.complete and told.text == alike.text
    assert "all rows are as long as each other, which the paper's are not" in told.text


@pytest.mark.slow
def test_a_row_becomes_a_folder_that_predicts(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, storage = "002-ensembles", tmp_path / "runs"
    result = run(name, data, storage, seeds=2)
    row = "1 ensemble / 1 task"
    told = ["ensemble", name, row, "--storage-path", str(storage), "--out", str(tmp_path / "one")]
    assert main(told) == 0
    assert f"answers with '{row}'" in capsys.readouterr().out
    check_pictures(tmp_path / "one")
    spec = read_ensemble(tmp_path / "one")
    assert set(spec.parts) == {"sst", "para", "sts"}
    assert all(1 <= len(part.models) <= 4 for part in spec.parts.values())
    kept = pq.read_table(tmp_path / "one" / "dev.parquet").to_pylist()
    before = {(line["task"], line["id"]): line["prediction"] for line in kept}
    tasks, predictor = load_task_set("cs224n"), load_predictor(tmp_path / "one")
    again = answer_splits(predictor, tasks, tasks.names, ["dev"], data, print)["dev"]
    after = {
        (task, id_): value
        for task, of in again.items()
        for id_, value in zip(of.ids, of.predictions.values, strict=True)
    }
    assert after == pytest.approx(before, abs=1e-4)
    for label, models in (("single-task", 3), ("uniform sampling", 1)):
        assert main([*told[:2], label, *told[3:-1], str(tmp_path / label)]) == 0
        parts = read_ensemble(tmp_path / label).parts.values()
        assert len({model for part in parts for model in part.models}) == models
    assert result.complete
    capsys.readouterr()
    assert main(told) == 2 and "is there already" in capsys.readouterr().err
    assert main([*told[:2], "1 ensembel", *told[3:]]) == 2
    assert f"did you mean '{row}'" in capsys.readouterr().err


def check_pictures(folder: Path) -> None:
    """Of an ensemble's own answers, not of one of its models."""
    names = {path.name for path in (folder / "pictures").iterdir()}
    drawn = {"confusion-sst", "confusion-para", "predicted-against-true-sts"}
    drawn |= {"calibration-sst", "calibration-para"}
    drawn |= {f"embeddings-{task}" for task in ("sst", "para", "sts")}
    assert names == {f"{name}.png" for name in drawn}
    rows = pq.read_table(folder / "dev.parquet").to_pylist()
    off = {row["id"]: abs(row["label"] - row["prediction"]) for row in rows if row["task"] == "sts"}
    with open(folder / "mistakes.csv", newline="") as file:
        worst = list(csv.DictReader(file))
    similar = [line for line in worst if line["task"] == "sts"]
    sizes = [off[line["id"]] for line in similar]
    assert sizes == sorted(off.values(), reverse=True)[:40]
    assert all(line["sentence1"] and line["sentence2"] for line in similar)
    assert similar[0]["how"] == f"error {sizes[0]:.2f}"
    assert all(line["true"] != line["predicted"] for line in worst if line["task"] == "sst")


def test_the_command_lists_shows_and_tells_what_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list"]) == 0
    assert "004-orders" in capsys.readouterr().out
    assert main(["show", "004-orders"]) == 0
    assert "schedule.name: sequential" in capsys.readouterr().out
    assert main(["table", "004-orders", "--storage-path", str(tmp_path)]) == 2
    assert "nothing of it is in" in capsys.readouterr().err
    assert main(["table", "004-orders", "--storage-path", "s3://key:hunter22@bucket/runs"]) == 2
    said = capsys.readouterr().err
    assert "tuner.cluster fetch 's3://***@bucket/runs' 004-orders" in said
    assert main(["run", "004-orders", "--scale", "-1", "--storage-path", str(tmp_path)]) == 2
    assert "--scale" in capsys.readouterr().err
