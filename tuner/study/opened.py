"""A study that was run, read from its folders: the one way to open it for those who only look."""

from __future__ import annotations

from dataclasses import dataclass, replace

from model.cli.invocation import command
from model.common.errors import InputError
from model.tasks.task_set import TaskSet
from tuner.runs.open import FinishedRun, has_begun, open_run
from tuner.runs.request import ExecutionOptions
from tuner.runs.storage.storage import without_secrets
from tuner.study.grid import StudySearch, files_of
from tuner.study.plan import all_alike, folder_of, planned
from tuner.study.reader import Study, load_study
from tuner.study.request import StudyRequest


@dataclass(frozen=True)
class OpenedStudy:
    study: Study
    tasks: TaskSet
    searches: list[StudySearch]
    done: list[tuple[StudySearch, FinishedRun]]  # what has begun of them
    notes: list[str]

    @property
    def complete(self) -> bool:
        return len(self.done) == len(self.searches)


def open_study(name: str, options: ExecutionOptions) -> OpenedStudy:
    """Whether it was run with --scale or with --examples, its folders tell."""
    study = load_study(name)
    first = folder_of(study, options)
    if not has_begun(first):
        remedy = f"train it with {command('study', 'run', name)}"
        if options.remote is not None:
            fetch = command("cluster", "fetch", without_secrets(options.remote), first.name)
            remedy = f"fetch it with {fetch}, and leave --storage-path away"
        raise InputError(f"study {name}", [f"nothing of it is in {first.parent}; {remedy}"])
    run, notes = open_run(first), list[str]()
    scaled = _read(study, run, options, [])
    even = _read(all_alike(study, notes), run, options, notes)

    def fits(of: OpenedStudy) -> tuple[bool, int]:
        return len(run.space.start_from) == len(of.searches[0].trainings), len(of.done)

    return max(scaled, even, key=fits)  # the first of equals


def _read(
    study: Study, run: FinishedRun, options: ExecutionOptions, notes: list[str]
) -> OpenedStudy:
    named = {each: "" for row in study.rows for each in files_of(row)}  # read by then
    request = StudyRequest(tasks=run.tasks.origin, encoder=run.space.encoders[0], file=named)
    usual = planned(study, request, [])[1][0].examples
    scale = (run.request.max_examples or usual) / usual
    tasks, searches = planned(study, replace(request, scale=scale), notes)
    places = [(search, folder_of(study, options, search.name)) for search in searches]
    done = [(search, open_run(place)) for search, place in places if has_begun(place)]
    return OpenedStudy(study, tasks, searches, done, notes)
