"""A search with --distill, without Ray: what it trains, what it says, and who answers."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from model.common.files import to_yaml
from model.data.sources import load_split
from model.evaluation.predictions import Predictions, join_tables, predictions_table
from model.tasks.task_set import load_task_set
from tests.tuner.search_runs import events, run_here, state_of
from tuner.export.tensorboard.board import name_of
from tuner.predict.predictor import load_predictor
from tuner.runs.folder import LEDGER
from tuner.runs.ledger import encode
from tuner.runs.open import open_run
from tuner.runs.request import ExecutionOptions
from tuner.search import distill
from tuner.soup.methods import DISTILLED, PREDICTIONS
from tuner.soup.record import read_soup

SEARCH = (
    *("--encoder", "tiny", "--set", "budget.eval_rows=40", "--max-examples", "120"),
    *("--num-samples", "2", "--no-early-stopping", "--no-report", "--name", "taught"),
)


@pytest.mark.slow
def test_the_best_ensemble_teaches_one_model_more(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a fine film\nnever dull\n\nso so\n")
    done = run_here(tmp_path, *SEARCH, "--distill", "--distill-text", str(tmp_path / "texts.txt"))
    assert done.returncode == 0, done.stderr
    assert "2 configurations of 120 examples, then one taught by them, of 120" in done.stdout
    run = tmp_path / "taught"
    state = state_of(run)
    (trial,) = state.distilled
    assert name_of(trial, state) == f"{trial.id} finished, {trial.of} distilled"
    best = state.best_trial()
    assert trial.status == "finished" and best is not None and best.id != trial.id
    assert trial.of == best.configuration and trial.examples == best.examples
    assert state.counts()["finished"] == 2  # it is no part of the search
    teacher = run / "teacher" / "train.parquet"
    assert run / trial.settings["distill.teacher"] == teacher
    assert set(pq.read_schema(teacher).names) >= {"task", "id", "prediction", "probabilities"}
    texts = pq.read_table(run / trial.settings["distill.text"])
    assert texts["sentence1"].to_pylist() == ["a fine film", "never dull", "so so"]
    assert set(texts["task"].to_pylist()) == {"sentiment"}  # the one task of single texts
    soup = read_soup(run)
    assert soup is not None and (method := soup.method(DISTILLED)) is not None
    last = trial.evaluations[-1]
    assert method.members == [f"{trial.id}/{last['checkpoint']}"]
    assert method.score.value == pytest.approx(last["score"])
    others = [each for each in soup.methods if each.name != DISTILLED]
    assert not any(trial.id in str(each.members) for each in others)
    assert any(each.kind == PREDICTIONS and each.models > 1 for each in others)
    predictor = load_predictor(run, DISTILLED)
    assert "the distilled (1 model)" in predictor.who
    assert len(predictor.answer_texts({"sentiment": ["a fine film"]})["sentiment"].values) == 1
    # Lost while it was taught, without its teacher's answers, it goes on in another folder.
    elsewhere = Path(shutil.copytree(run, tmp_path / "elsewhere" / "taught"))
    told = events(run)
    created = [e["event"] == "created" and e["trial"] == trial.id for e in told].index(True)
    (elsewhere / LEDGER).write_bytes(b"".join(map(encode, told[: created + 1])))
    shutil.rmtree(elsewhere / "trials" / trial.id)
    shutil.rmtree(elsewhere / "teacher")
    (tmp_path / "texts.txt").rename(tmp_path / "moved.txt")
    again = run_here(
        *(elsewhere.parent, "--name", "taught", "--resume", "--distill"),
        *("--distill-text", str(tmp_path / "moved.txt")),
    )
    assert again.returncode == 0, again.stderr
    (other,) = state_of(elsewhere).distilled
    assert other.status == "finished" and other.id == trial.id
    assert other.evaluations[-1]["score"] == pytest.approx(last["score"])
    assert (elsewhere / "teacher" / "train.parquet").is_file()
    assert pq.read_table(elsewhere / other.settings["distill.text"]).num_rows == 3
    # Whoever goes on finds nothing left to do.
    again = run_here(tmp_path, "--name", "taught", "--resume", "--distill")
    assert again.returncode == 0, again.stderr
    assert len(state_of(run).distilled) == 1
    # A run that is moved keeps it: it is a model as any other.
    moved = Path(shutil.move(run, tmp_path / "moved"))
    assert open_run(moved).state.distilled[0].id == trial.id
    assert load_predictor(moved, DISTILLED).place.is_dir()


@pytest.mark.slow
def test_a_space_may_search_the_weight_of_a_teacher(tmp_path: Path) -> None:
    tasks, parts = load_task_set("sample"), []
    for task in tasks:
        table = load_split(task, "train", None).table
        labels = table["label"].to_numpy()
        sure = np.eye(task.classes)[labels.astype(int)] if task.classes else None
        found = Predictions(labels, sure)
        parts.append(predictions_table(task.name, table["id"], table["label"], found))
    pq.write_table(join_tables(parts), tmp_path / "train.parquet")
    space = {
        "tasks": "sample",
        "base": {"encoder.name": "tiny", "budget.eval_rows": 20, "batch.sizes": 8},
        "parameters": {"distill.weight": {"float": [0.1, 0.9]}},
    }
    (tmp_path / "mine.yaml").write_text(to_yaml(space))
    done = run_here(
        *(tmp_path, "--space", str(tmp_path / "mine.yaml"), "--name", "weighed"),
        *("--set", f"distill.teacher={tmp_path / 'train.parquet'}"),
        *("--num-samples", "3", "--max-examples", "48", "--no-early-stopping"),
        *("--no-report", "--no-soup"),
    )
    assert done.returncode == 0, done.stderr
    default, *trials = state_of(tmp_path / "weighed").trials.values()
    assert {trial.status for trial in (default, *trials)} == {"finished"}
    weights = [trial.settings["distill.weight"] for trial in trials]
    assert len(set(weights)) == len(trials) == 2 and all(0.1 <= weight <= 0.9 for weight in weights)


def test_texts_that_no_task_takes_are_refused_before_anything_starts(tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("a fine film\nnever\tdull\n")
    done = run_here(tmp_path, *SEARCH, "--distill", "--distill-text", str(texts))
    assert done.returncode == 2 and "one text in each line, or two" in done.stderr
    done = run_here(tmp_path, *SEARCH, "--distill-text", str(texts))
    assert done.returncode == 2 and "--distill-text goes with --distill" in done.stderr
    assert [place.name for place in tmp_path.iterdir()] == [texts.name]


def test_the_command_that_tries_a_teacher_again_can_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(distill, "votes", lambda place: False)
    monkeypatch.setattr(distill, "write_answers", fail)
    best = SimpleNamespace(kind=PREDICTIONS, models=2, folder="soups/x", name="x", told="the x")
    told: list[str] = []
    plan = SimpleNamespace(folder=tmp_path / "my run", options=ExecutionOptions())
    console = SimpleNamespace(log=lambda line: None, warn=told.append)
    given: list[Any] = [plan, SimpleNamespace(methods=[best]), console]
    assert distill.make_teacher(*given) is None
    assert told[-1].endswith("python -m tuner.search --resume --name 'my run'")
