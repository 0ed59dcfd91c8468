"""Pictures show what scikit-learn counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix

from model.tasks.task_set import TaskSet
from tests.tuner.boards import write_answers
from tuner.export.tensorboard.pictures import (
    BINS,
    DENSE,
    MOST,
    calibration,
    calibration_bins,
    confusion,
    confusion_counts,
    maps,
    pictures_of,
    png,
    scatter,
)
from tuner.scoring.dev_rows import LabelledPredictions, read_predictions


@pytest.fixture(scope="module")
def answers(tasks: TaskSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("answers") / "answers.parquet"
    write_answers(path, tasks, rows=300)
    return path


def test_the_confusion_is_scikit_learns(tasks: TaskSet, answers: Path) -> None:
    for task in tasks:
        if task.kind != "regression":
            of = read_predictions(answers, tasks)[task.name]
            counts, names = confusion_counts(task, of)
            wanted = confusion_matrix(of.labels, of.values, labels=range(task.classes))
            assert np.array_equal(counts, wanted)
            assert names == [f"{number}" for number in range(task.classes)]


def test_the_cells_say_share_and_count(tasks: TaskSet, answers: Path) -> None:
    of = read_predictions(answers, tasks)["paraphrase"]
    counts, _ = confusion_counts(tasks["paraphrase"], of)
    (axes,) = confusion(tasks["paraphrase"], of, "t0001").axes
    said = [text.get_text() for text in axes.texts]
    shares = counts / counts.sum(1, keepdims=True)
    pairs = zip(shares.ravel(), counts.ravel(), strict=True)
    assert said == [f"{share:.0%}\n{count}" for share, count in pairs]


def test_maps_have_a_point_for_each_row_in_the_colour_of_its_answer(tasks: TaskSet) -> None:
    flat = np.arange(8, dtype=np.float32).reshape(4, 2)
    values = np.array([0.0, 2.0, 4.0, 1.0])
    figure = maps(tasks["sentiment"], values, {"PCA": flat, "t-SNE": -flat}, "five models")
    first, second, _ = figure.axes  # and the colours' scale
    for axes, points in ((first, flat), (second, -flat)):
        (shown,) = axes.collections
        assert np.array_equal(np.asarray(shown.get_offsets()), points)
        assert np.array_equal(np.asarray(shown.get_array()), values)
        assert shown.get_clim() == (tasks["sentiment"].low, tasks["sentiment"].high)
    assert (first.get_xlabel(), second.get_xlabel()) == ("PCA", "t-SNE")


def test_calibration_is_scikit_learns(tasks: TaskSet, answers: Path) -> None:
    of = read_predictions(answers, tasks)["sentiment"]
    assert of.probabilities is not None
    bins = calibration_bins(of)
    right = of.values == of.labels
    share, mean = calibration_curve(right, of.probabilities.max(1), n_bins=BINS)
    there = bins.rows > 0
    assert np.allclose(bins.right[there], share)
    assert np.allclose(bins.confidence[there], mean)
    assert bins.rows.sum() == 300
    assert bins.error == pytest.approx(
        float(np.abs(share - mean) @ bins.rows[there] / 300), abs=1e-9
    )


def answered(labels: Any, values: Any, probabilities: Any) -> LabelledPredictions:
    ids = [str(row) for row in range(len(labels))]
    return LabelledPredictions(values, probabilities, ids, labels)


def test_many_classes_are_few_rows(tasks: TaskSet) -> None:
    many = replace(tasks["sentiment"], classes=50_000)
    rng = np.random.default_rng(0)
    labels = rng.integers(50_000, size=200).astype(float)
    of = answered(labels, labels, np.full((200, 3), 1 / 3, np.float32))
    counts, names = confusion_counts(many, of)
    assert counts.shape == (MOST, MOST) and counts.sum() == 200 and names[-1] == "other"
    assert counts.trace() == 200
    assert png(confusion(many, of, "")).png.startswith(b"\x89PNG")


def test_a_model_that_is_always_sure_or_never_varies_can_be_drawn(tasks: TaskSet) -> None:
    labels = np.zeros(10)
    sure = answered(labels, labels, np.tile(np.float32([1, 0]), (10, 1)))
    assert calibration_bins(sure).error == 0
    assert png(calibration(tasks["paraphrase"], sure, "")).width > 100
    flat = answered(np.linspace(0, 5, DENSE), np.full(DENSE, 2.0), None)
    assert png(scatter(tasks["similarity"], flat, "")).png.startswith(b"\x89PNG")


def test_every_task_has_its_pictures(tasks: TaskSet, answers: Path) -> None:
    drawn = pictures_of(answers, tasks, "t0001 after 300 examples")
    assert len(drawn) == 5
    assert all(len(picture.png) < 60_000 for picture in drawn.values())
