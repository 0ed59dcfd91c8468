"""The answers of a study's rows, read from the folders of its searches.

Every row has a candidate for each seed: a model's dev answers, those of one model for each task,
or an ensemble's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from model.evaluation.predictions import Predictions
from model.evaluation.scores import Array
from model.tasks.task_set import TaskSet
from tuner.runs.folder import model_folder, trial_folder
from tuner.runs.open import FinishedRun
from tuner.runs.state import OVERALL, Event, TrialState, objective_value
from tuner.scoring.dev_predictions import Answers, DevPredictions, precision_of
from tuner.scoring.dev_rows import DevRows
from tuner.study.ensembles import StudyMember, ensemble_of
from tuner.study.grid import StudySearch, Training
from tuner.study.reader import Study


@dataclass(frozen=True)
class Candidate:
    """One seed of one row."""

    row: str
    seed: int
    answers: dict[str, Predictions]  # by task; a row may lack some
    entries: dict[str, Event]  # the evaluations that they are from
    lengths: dict[str, int] = field(default_factory=dict)  # of the training, in examples
    best: dict[str, float] = field(default_factory=dict)  # scores at any evaluation
    models: dict[str, Path] = field(default_factory=dict)  # that gave the answers
    weights: dict[str, dict[str, float]] = field(default_factory=dict)  # rows of an ensemble


def trials_of(run: FinishedRun, training: Training, search: StudySearch) -> list[TrialState]:
    """The trials of one training that there are, one for each seed."""
    space, point = run.space, search.points()[search.trainings.index(training)]
    known = {parameter.key for parameter in space.parameters}
    own = {key: value for key, value in point.items() if key in known}
    # What the run does not vary it may hold otherwise: then this training is not in it.
    held = {key: v for key, v in point.items() if key not in {*known, *run.request.set}}
    wanted = space.config(own, extra=held)
    first = [t for t in run.state.search_trials if space.config(t.settings) == wanted]
    names = {trial.id for trial in first}
    return [*first, *(trial for trial in run.state.repeats if trial.of in names)]


def finished_of(run: FinishedRun, training: Training, search: StudySearch) -> list[TrialState]:
    return [each for each in trials_of(run, training, search) if each.status == "finished"]


def seeds_of(run: FinishedRun) -> int:
    """How many each of its trainings was asked for."""
    return 1 + (run.request.confirm or (0, 0))[1]


def is_done(run: FinishedRun, training: Training, search: StudySearch) -> bool:
    """Whether nothing is left to train of it. What has failed is not tried again, and a training
    that has failed with its first seed has no others."""
    trials = trials_of(run, training, search)
    if any(trial.status == "failed" and not trial.is_repeat for trial in trials):
        return True
    return sum(trial.status in ("finished", "failed") for trial in trials) >= seeds_of(run)


def model_of(run: FinishedRun, training: Training, search: StudySearch) -> Path | None:
    """The best model of a training's first seed, for others to start from."""
    for trial in finished_of(run, training, search):
        best = trial.best(training.task or OVERALL)
        if best is not None:
            folder = model_folder(run.folder, trial.id, best["checkpoint"])
            if folder.is_dir():
                return folder
    return None


def candidates(
    study: Study, tasks: TaskSet, done: Sequence[tuple[StudySearch, FinishedRun]], notes: list[str]
) -> tuple[list[Candidate], DevRows]:
    """Of every row and seed that is trained; `notes` are told of what is lacking."""
    rows, found = DevRows(tasks), dict[tuple[str, int], Candidate]()
    for search, run in done:
        for training in search.trainings:
            notes.extend(_lacking(run, training, search))
            for trial in finished_of(run, training, search):
                best = trial.best(training.task or OVERALL)
                assert best is not None  # it is finished
                place = trial_folder(run.folder, trial.id) / str(best["predictions"])
                try:
                    answers = rows.read(f"{run.name}/{trial.id}", place)
                except ValueError as error:
                    notes.append(f"'{training.label}', seed {trial.seed}, is left out: {error}")
                    continue
                own = tasks.names if training.task is None else (training.task,)
                key = (training.row, trial.seed)
                one = found.setdefault(key, Candidate(*key, {}, {}))
                one.answers.update({task: answers[task] for task in own})
                one.entries.update(dict.fromkeys(own, best))
                one.lengths.update(dict.fromkeys(own, run.request.max_examples or 0))
                scores = {task: objective_value(trial.best(task) or {}, task) for task in own}
                one.best.update(scores)
                model = model_folder(run.folder, trial.id, best["checkpoint"])
                one.models.update(dict.fromkeys(own, model))
    trained = list(found.values())
    for row in study.rows:
        if row.ensemble is None:
            continue
        for seed in sorted({one.seed for one in trained}):
            members = [StudyMember(one.row, one.answers) for one in trained if one.seed == seed]
            made = ensemble_of(row.ensemble, members, tasks, rows.labels)
            if made is not None:
                one = Candidate(row.label, seed, made.answers, {}, weights=made.weights)
                found[row.label, seed] = one
    return list(found.values()), rows


def _lacking(run: FinishedRun, training: Training, search: StudySearch) -> Iterator[str]:
    trials, wanted = trials_of(run, training, search), seeds_of(run)
    count = sum(trial.status == "finished" for trial in trials)
    if count < wanted:
        said = f"{count} of {wanted} seeds" if count else "no finished training"
        failed = [str(trial.seed) for trial in trials if trial.status == "failed"]
        said += f"; seed {', '.join(failed)} failed" if failed else ""
        yield f"'{training.label}' has {said}"


def dev_predictions(
    whole: Sequence[Candidate], tasks: TaskSet, labels: Mapping[str, Array]
) -> DevPredictions:
    """Of candidates that answer all of these tasks."""
    answers = {}
    for task in tasks:
        kind = precision_of(task)
        chosen = np.stack([one.answers[task.name].values.astype(kind) for one in whole])
        answers[task.name] = Answers(labels[task.name].astype(kind), chosen)
    return DevPredictions([f"{one.row}, seed {one.seed}" for one in whole], answers)
