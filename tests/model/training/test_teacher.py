"""Training with a teacher: its answers from file to loss, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from model.common.errors import InputError
from model.config.parse import parse_settings
from model.data.sources import load_split
from model.data.teacher import soft_labels
from model.evaluation.predictions import Predictions, join_tables, predictions_table
from model.modules.encoder import load_tokenizer
from model.tasks.task_set import load_task_set
from model.train import train
from model.training.inputs import Inputs, load_inputs
from model.training.prepare import fill_in, prepare

TASKS = load_task_set("sample")
QUICK: dict[str, Any] = {
    "encoder.name": "tiny",
    "encoder.max_length": 48,
    "batch.sizes": 8,
    "budget.examples": 48,
    "budget.eval_rows": 10,
}


def answers_to(task: str, rows: int, seed: int = 0) -> Predictions:
    rng, of = np.random.default_rng(seed), TASKS[task]
    if of.kind == "regression":
        return Predictions(rng.uniform(of.low, of.high, rows), None)
    likely = rng.dirichlet(np.ones(max(2, of.classes)), rows)
    return Predictions(likely.argmax(-1) * 1.0, likely)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers to all training rows, the last row first."""
    parts = []
    for task in TASKS:
        ids = load_split(task, "train", None).table["id"].to_pylist()
        found = answers_to(task.name, len(ids))
        parts.append(predictions_table(task.name, ids, pa.nulls(len(ids)), found))
    table = join_tables(parts)
    path = tmp_path_factory.mktemp("teacher") / "train.parquet"
    pq.write_table(table.take(np.arange(len(table))[::-1].copy()), path)
    return path


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = TASKS.names[0]
    table = predictions_table(name, ["1", "2"], pa.nulls(2), answers_to(name, 2, seed=1))
    table = table.append_column("sentence1", pa.array(["a film", "a book"]))
    path = tmp_path_factory.mktemp("texts") / "texts.parquet"
    pq.write_table(table.append_column("sentence2", pa.nulls(2, pa.string())), path)
    return path


def inputs_with(**settings: Any) -> Inputs:
    given = {**QUICK, **{f"distill.{key}": str(value) for key, value in settings.items()}}
    config = fill_in(parse_settings(given, TASKS))
    return load_inputs(config, TASKS, None, load_tokenizer("tiny"), pytest.fail)


def test_every_row_has_the_answer_of_its_id(teacher: Path) -> None:
    inputs, plain, table = inputs_with(teacher=teacher), inputs_with(), pq.read_table(teacher)
    assert inputs.fingerprint != plain.fingerprint
    for task in TASKS:
        of = inputs.tasks[task.name]
        assert plain.tasks[task.name].answers is None
        own = table.filter(pc.equal(pc.cast(table["task"], pa.string()), task.name))
        by_id = {row["id"]: row for row in own.to_pylist()}
        ids = load_split(task, "train", None).table["id"].to_pylist()
        for number in (0, 7, len(ids) - 1):
            row = by_id[ids[number]]
            expected = row["probabilities"] or [row["prediction"]]
            np.testing.assert_allclose(of.answers[number], expected, rtol=1e-6)


def test_texts_join_the_rows_with_the_teachers_answer_as_their_label(texts: Path) -> None:
    inputs, plain = inputs_with(text=texts), inputs_with()
    name, other = TASKS.names[0], TASKS.names[-1]
    mine, before = inputs.tasks[name], plain.tasks[name]
    given = answers_to(name, 2, seed=1)
    assert len(mine.train) == len(before.train) + 2 and mine.real == before.real
    assert list(mine.labels[-2:]) == list(given.values)
    np.testing.assert_allclose(mine.answers[-2:], given.probabilities, rtol=1e-6)
    # Rows that no teacher has answered teach by their labels.
    np.testing.assert_array_equal(mine.answers[:5].argmax(-1), mine.labels[:5])
    assert len(inputs.tasks[other].train) == len(plain.tasks[other].train)


def test_the_answers_reach_the_batches_and_change_the_weights(
    teacher: Path, texts: Path, tmp_path: Path
) -> None:
    settings = {**QUICK, "distill.teacher": str(teacher), "distill.text": str(texts)}
    settings |= {"distill.weight": 0.7, "distill.temperature": 2.0, "batch.accumulate": 2}
    config = parse_settings(settings, TASKS)
    prepared = prepare(config, TASKS)
    for name, stream in prepared.streams.items():
        batch = stream.batch(3)
        expected = prepared.inputs.tasks[name].answers[batch.rows]
        np.testing.assert_array_equal(batch.answers.numpy(), expected)
    losses = {}
    for weight in (0.0, 0.7):
        own = parse_settings({**settings, "distill.weight": weight}, TASKS)
        (*_, last) = train(own, TASKS, out=tmp_path / str(weight))
        losses[weight] = [of["train_loss"] for of in last["tasks"].values()]
    assert losses[0.0] != losses[0.7] and np.isfinite(losses[0.7]).all()


def test_what_is_wrong_with_a_teachers_file_is_told(teacher: Path, tmp_path: Path) -> None:
    table, path = pq.read_table(teacher), tmp_path / "other.parquet"

    def refused(changed: pa.Table, match: str) -> None:
        pq.write_table(changed, path)
        with pytest.raises(InputError, match=match):
            inputs_with(teacher=path)

    refused(table.drop_columns(["probabilities"]), "has no column 'probabilities'")
    refused(table.slice(5), "does not answer 5 of the .* training rows of similarity, such as")
    names = pa.array(["other"] * len(table))
    refused(table.set_column(0, "task", names), "answers none of the tasks")
    wide = pa.array([[0.2] * 5] * len(table), pa.list_(pa.float32()))
    place = table.column_names.index("probabilities")
    refused(table.set_column(place, "probabilities", wide), "must have [23] probabilities")
    path.write_text("no table")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        inputs_with(teacher=path)


def test_a_mean_that_rounding_led_beyond_the_border_is_taken(tmp_path: Path) -> None:
    task = next(task for task in TASKS if task.kind == "regression")
    beyond = float(np.nextafter(task.high, np.inf))  # as the mean of thirteen at the border

    def labels(*values: float) -> Any:
        table = pa.table({"prediction": list(values), "probabilities": pa.nulls(len(values))})
        return soft_labels(task, table, tmp_path)

    assert labels(task.low, beyond).tolist() == [[task.low], [task.high]]
    with pytest.raises(InputError, match=f"values of {task.name} outside"):
        labels(task.high + 1e-3)
