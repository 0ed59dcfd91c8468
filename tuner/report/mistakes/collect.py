"""What a model gets wrong on dev, from its kept predictions: matrices, scatters, worst errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from model.cli.text import shorten
from model.common.errors import InputError
from model.data.sources import load_split
from model.evaluation.model_folder import SPEC
from model.evaluation.scores import Array, Confusion, measure
from model.tasks.task_set import Task
from model.training.inputs import sample_rows
from tuner.report.run import ReportedRun
from tuner.runs.folder import model_folder, trial_folder
from tuner.runs.open import FinishedRun
from tuner.scoring.dev_rows import LabelledPredictions, read_predictions

WORST = 40  # errors of each task in the table
SENTENCE = 600  # characters of a sentence that are shown
MOST_CLASSES = 25  # of a matrix that can be read


@dataclass(frozen=True)
class Subject:
    """The model that is looked at."""

    name: str
    predictions: Path
    model: Path | None  # its folder, if it is one model and still there; else it has no vectors


@dataclass(frozen=True)
class Mistake:
    task: str
    id: str
    sentences: tuple[str, ...]  # empty where the data are gone
    true: str
    said: str
    size: float  # how wrong: 0..1
    how: str  # the same in words


@dataclass(frozen=True)
class TaskResult:
    task: Task
    answers: LabelledPredictions
    value: float  # of the task's metric
    confusion: NDArray[np.int64] | None  # [true, predicted]; None for regression
    error: float | None  # mean absolute, for regression
    sentences: list[tuple[str, ...]] | None

    @property
    def names(self) -> list[str]:
        return [self.task.source.label_name(number) for number in range(self.task.classes)]

    def shown(self, value: float) -> str:
        """A label or an answer as a reader knows it."""
        is_class = self.confusion is not None
        return self.task.source.label_name(value) if is_class else f"{value:.2f}"


@dataclass(frozen=True)
class Mistakes:
    subject: Subject | None
    results: list[TaskResult] = field(default_factory=list)
    worst: list[Mistake] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def subject_of(run: ReportedRun) -> Subject | None:
    """What the soup recommends, if its answers were kept; else the best trial."""
    choice = run.soup.method(run.soup.recommended) if run.soup else None
    if choice is not None and choice.predictions:
        file = run.folder / choice.predictions
        place = run.folder / choice.folder if choice.folder else None
        if file.is_file():
            return Subject(choice.name, file, _model_in(place))
    return best_trial_of(run)


def best_trial_of(run: ReportedRun) -> Subject | None:
    best = run.state.best_trial()
    entry = best.chosen(run.state.objectives) if best else None
    if best is None or entry is None or "predictions" not in entry:
        return None
    model = model_folder(run.folder, best.id, str(entry.get("checkpoint")))
    file = trial_folder(run.folder, best.id) / entry["predictions"]
    return Subject(f"best trial ({best.id})", file, _model_in(model))


def _model_in(place: Path | None) -> Path | None:
    """The folder if a model is in it, not an ensemble's file or nothing at all."""
    return place if place is not None and (place / SPEC).is_file() else None


def collect_mistakes(run: ReportedRun) -> Mistakes:
    subject = subject_of(run)
    if subject is None:
        return Mistakes(None, notes=["No trial has finished, so there are no answers to look at."])
    return mistakes_of(subject, run)


def mistakes_of(subject: Subject, run: FinishedRun) -> Mistakes:
    """Those of any answers to the dev rows of the run."""
    try:
        found = read_predictions(subject.predictions, run.tasks)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())
        fault = f"The predictions of {subject.name} cannot be read ({reason}): search again."
        return Mistakes(subject, notes=[fault])
    notes: list[str] = []
    results = [_result(run, run.tasks[name], answers, notes) for name, answers in found.items()]
    worst = [mistake for result in results for mistake in worst_of(result)]
    return Mistakes(subject, results, worst, list(dict.fromkeys(notes)))


def _result(
    run: FinishedRun, task: Task, answers: LabelledPredictions, notes: list[str]
) -> TaskResult:
    labels, values = answers.labels, answers.values
    confusion, error = None, None
    if task.kind == "regression":
        error = float(np.abs(labels - values).mean())
    else:
        confusion = Confusion.of(labels, values, task.classes).matrix(task.classes)
    return TaskResult(
        task,
        answers,
        measure(task.metric, labels, values, task.classes),
        confusion,
        error,
        sentences_of(run, task, answers.ids, labels, notes),
    )


def sentences_of(
    run: FinishedRun, task: Task, ids: list[str], labels: Array, notes: list[str]
) -> list[tuple[str, ...]] | None:
    """The text of these rows, or None with a note, where the data are not what they were."""
    again = "give their folder with --data"
    try:
        table = load_split(task, "dev", run.data).table
    except (InputError, OSError) as error:
        reason = error.faults[0] if isinstance(error, InputError) else error
        notes.append(f"Sentences of {task.name} are not shown: {reason} ({again}).")
        return None
    drawn = sample_rows(table, run.space.config(run.space.default_point()).budget.eval_rows)
    place: dict[str, int] = {}
    if drawn["id"].to_pylist() == ids:  # as it was read for the run: ids may even repeat
        table, rows = drawn, list(range(len(ids)))
    else:
        for row, identity in enumerate(table["id"].to_pylist()):
            place.setdefault(identity, row)
        rows = [place.get(identity, -1) for identity in ids]
    known = table["label"].to_pylist()
    pairs = zip(rows, labels, strict=True)
    if any(row < 0 or not np.isclose(known[row], label) for row, label in pairs):
        notes.append(
            f"Sentences of {task.name} are not shown: the data have changed since; {again}."
        )
        return None
    taken = table.take(pa.array(rows, pa.int64()))
    columns: list[list[Any]] = [taken["sentence1"].to_pylist()]
    if task.pair:
        columns.append(taken["sentence2"].to_pylist())
    return [tuple(str(part or "") for part in row) for row in zip(*columns, strict=True)]


def worst_of(result: TaskResult, limit: int = WORST) -> list[Mistake]:
    """The furthest from the truth, or the surest of something wrong; worst first."""
    task = result.task
    answers = result.answers
    off = np.abs(answers.labels - answers.values)
    if result.confusion is None:
        sizes = off / (task.high - task.low)
        order = np.argsort(-sizes, kind="stable")[:limit]
        hows = {row: f"error {off[row]:.2f}" for row in order}
    else:
        sure = np.ones(len(off))
        if answers.probabilities is not None:
            sure = answers.probabilities[np.arange(len(off)), answers.values.astype(int)]
        sizes = np.where(off > 0, sure, -1.0)
        order = np.argsort(-sizes, kind="stable")[:limit]
        order = order[sizes[order] >= 0]
        known = answers.probabilities is not None
        hows = {row: f"confidence {sizes[row]:.2f}" if known else "wrong" for row in order}
    return [
        Mistake(
            task.name,
            answers.ids[row],
            tuple(shorten(part, SENTENCE) for part in result.sentences[row])
            if result.sentences
            else (),
            result.shown(answers.labels[row]),
            result.shown(answers.values[row]),
            float(sizes[row]),
            hows[row],
        )
        for row in order
    ]
