"""A study run as searches over its points, and its table made from their folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.cli.flags import faults_of
from model.common.errors import InputError
from model.common.files import to_yaml, write_atomic
from model.common.hub import require_encoder
from model.tasks.task_set import TaskSet
from tuner.runs.open import FinishedRun, has_begun, open_run
from tuner.runs.request import ExecutionOptions
from tuner.runs.state import OVERALL
from tuner.runs.storage.remote import fetch_run
from tuner.search.api import run_search
from tuner.space.space import load_space
from tuner.study.collect import candidates, model_of
from tuner.study.compare import compare
from tuner.study.grid import StudySearch
from tuner.study.opened import open_study
from tuner.study.plan import all_alike, evaluations_of, folder_of, length_of, planned, scale_of
from tuner.study.reader import Study, load_study
from tuner.study.request import StudyRequest
from tuner.study.text import study_text


@dataclass(frozen=True)
class StudyResult:
    text: str
    complete: bool
    folders: tuple[Path, ...]
    again: str = "the same command with --resume"  # what goes on where it is not complete


def run_study(name: str, request: StudyRequest, options: ExecutionOptions) -> StudyResult:
    """Train what is not trained yet, and set the table. InputError for what can be mended."""
    if faults := faults_of(StudyRequest, vars(request)):
        raise InputError("study", faults)
    study, notes = load_study(name), list[str]()
    if request.examples is not None:
        study = all_alike(study, notes)
    tasks, searches = planned(study, request, notes)
    done: list[tuple[StudySearch, FinishedRun]] = []
    complete = True
    for search in searches:
        folder = folder_of(study, options, search.name)
        init_from = _start(search, done)
        if search.start is not None and init_from is None:
            notes.append(f"no model of '{search.start}' to start from, so what does is not trained")
            complete = False
            continue
        fetch_run(options, folder.name)  # with storage elsewhere, what it has of this run
        whole = train_search(study, search, request, options, folder, init_from)
        complete = complete and whole
        if has_begun(folder):
            done.append((search, open_run(folder)))
        if not whole:
            break
    folders = tuple(run.folder for _, run in done)
    return StudyResult(table_text(study, tasks, done, notes), complete, folders)


def read_study(name: str, options: ExecutionOptions) -> StudyResult:
    """The table of what is there, without training anything; all else is in its folders."""
    of = open_study(name, options)
    text = table_text(of.study, of.tasks, of.done, of.notes)
    folders = tuple(run.folder for _, run in of.done)
    again = of.again(name, options) or StudyResult.again
    return StudyResult(text, of.complete, folders, again)


def train_search(
    study: Study,
    search: StudySearch,
    request: StudyRequest,
    options: ExecutionOptions,
    folder: Path,
    init_from: Path | None,
) -> bool:
    """One search over these points; False if it was stopped before its end."""
    given = {name: value for name, value in vars(options).items() if name != "remote"}
    given |= {"name": folder.name, "soup": False}
    if options.remote is not None:
        given["storage_path"] = options.remote
    encoder = request.encoder or study.held.get("encoder.name")
    if isinstance(encoder, str):
        require_encoder(encoder)
    document = search.space(
        study, request.tasks or study.tasks, str(init_from) if init_from else None
    )
    # Beside the run, which has a copy of its own: what goes on reads that one.
    path = folder.parent / f"{folder.name}.space.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_yaml(document))
    points = max(1, len(load_space(str(path), overrides=request.set).start_from))
    # A search that has not begun begins; one that has refuses what is not as it was.
    given["resume"] = options.resume and has_begun(folder)
    length = length_of(search, scale_of(study, request))
    evaluations = request.evaluations or evaluations_of(study, length)
    # What goes on is scored as it was, whatever the study says by now.
    if evaluations and (request.evaluations or not given["resume"]):
        given["evaluations"] = evaluations
    if request.data is not None:
        given["data"] = request.data
    if request.seeds > 1:
        given["confirm"] = (points, request.seeds - 1)
    result = run_search(
        **given,
        space=str(path),
        set=request.set,
        seed=request.seed,
        num_samples=points,
        max_examples=length,
        objectives=(search.task or OVERALL,),
        early_stopping=False,
        sampler="random",
        # Models that others start from, or that can be put together later, are all kept.
        keep=points * request.seeds if any(r.start or r.ensemble for r in study.rows) else 5,
    )
    return result.complete


def table_text(
    study: Study,
    tasks: TaskSet,
    done: list[tuple[StudySearch, FinishedRun]],
    notes: list[str],
) -> str:
    found, rows = candidates(study, tasks, done, notes)
    trained = {one.row for one in found}
    for row in study.rows:
        labels = {t.label for search, _ in done for t in search.trainings if t.row == row.label}
        told = any(f"'{label}'" in note for label in {row.label, *labels} for note in notes)
        if row.runs and row.label not in trained and not told:
            notes.append(f"'{row.label}' has no finished training")
    if not found:
        return "\n".join([study.paper, "no row has a finished training", *notes])
    return study_text(study, compare(study, tasks, found, rows), found, notes)


def _start(search: StudySearch, done: Sequence[tuple[StudySearch, FinishedRun]]) -> Path | None:
    for other, run in done:
        for training in other.trainings:
            if search.start is not None and training.label == search.start:
                return model_of(run, training, other)
    return None
