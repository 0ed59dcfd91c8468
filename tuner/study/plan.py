"""What a request makes of a study: its searches, how long they are, and where their runs are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from model.modules.encoder import layers_in
from model.tasks.task_set import TaskSet, load_task_set
from tuner.engine.job import EVALUATIONS
from tuner.runs.folder import run_folder
from tuner.runs.request import ExecutionOptions
from tuner.study.grid import StudySearch, expand
from tuner.study.reader import Study
from tuner.study.request import StudyRequest

APART = 1000  # examples: to score all dev rows of the course takes the time of training on 2,400


def planned(
    study: Study, request: StudyRequest, notes: list[str]
) -> tuple[TaskSet, list[StudySearch]]:
    tasks = load_task_set(request.tasks or study.tasks)
    layers = layers_in(request.encoder) if study.layers and request.encoder else None
    share = scale_of(study, request)
    return tasks, expand(study, tasks, request.encoder, layers, request.file, notes, share)


def scale_of(study: Study, request: StudyRequest) -> float:
    """The share of the paper's training, such that the usual one is a whole number of examples."""
    return (request.examples or max(1, round(study.examples * request.scale))) / study.examples


def length_of(search: StudySearch, scale: float) -> int:
    return max(1, round(search.examples * scale))


def evaluations_of(study: Study, length: int) -> int | None:
    """The study's, as far as a training of this length has room for more than any search's."""
    wanted, most = study.evaluations, length // APART
    if wanted is None or wanted <= max(EVALUATIONS, most):
        return wanted
    return most if most > EVALUATIONS else None


def all_alike(study: Study, notes: list[str]) -> Study:
    """With no row longer or shorter than another, as --examples asks for."""
    if any(row.examples for row in study.rows):
        notes.append("all rows are as long as each other, which the paper's are not")
    return replace(study, rows=tuple(replace(row, examples=None) for row in study.rows))


def folder_of(study: Study, options: ExecutionOptions, search: str = "") -> Path:
    """Of the run of one search; the first one has no name of its own."""
    return run_folder(options.storage_path.absolute(), f"{options.name or study.name}{search}")
