"""A study that was run, read from its folders: the one way to open it for those who only look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from model.cli.flags import flags_of
from model.cli.invocation import command
from model.common.errors import InputError
from model.tasks.task_set import TaskSet
from tuner.runs.open import FinishedRun, has_begun, open_run
from tuner.runs.request import ExecutionOptions
from tuner.runs.storage.storage import without_secrets
from tuner.study.collect import is_done, model_of, seeds_of
from tuner.study.grid import StudySearch, files_of
from tuner.study.plan import all_alike, evaluations_of, folder_of, planned
from tuner.study.reader import Study, load_study
from tuner.study.request import StudyRequest


@dataclass(frozen=True)
class OpenedStudy:
    study: Study
    tasks: TaskSet
    searches: list[StudySearch]
    done: list[tuple[StudySearch, FinishedRun]]  # what has begun of them
    notes: list[str]
    request: StudyRequest  # as it was run
    sure: bool = True  # False: it may have been run with another length

    @property
    def complete(self) -> bool:
        """Whether nothing is left to train. What begins from a model that failed never begins."""
        failed = {
            training.label
            for search, run in self.done
            for training in search.trainings
            if is_done(run, training, search) and model_of(run, training, search) is None
        }
        begun = [search for search, _ in self.done]
        waiting = [s for s in self.searches if s not in begun and s.start not in failed]
        trained = [
            is_done(run, training, search)
            for search, run in self.done
            for training in search.trainings
        ]
        return not waiting and all(trained)

    def again(self, name: str, options: ExecutionOptions) -> str | None:
        """The command that goes on with it, as it would be typed; None where nobody can tell."""
        if not self.sure:
            return None
        words = [
            word
            for key, flag in flags_of(StudyRequest).items()
            if (value := getattr(self.request, key)) != flag.default
            for word in flag.arguments(value)
        ]
        words += ["--name", options.name] if options.name else []
        place = without_secrets(options.remote) if options.remote else str(options.storage_path)
        words += ["--storage-path", place] if place != str(ExecutionOptions().storage_path) else []
        return command("study", "run", name, *words, "--resume")


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

    found = max(scaled, even, key=fits)  # the first of equals
    alike = fits(scaled) == fits(even) and any(row.examples for row in study.rows)
    return replace(found, sure=not alike or found.complete)


def _read(
    study: Study, run: FinishedRun, options: ExecutionOptions, notes: list[str]
) -> OpenedStudy:
    """`run` is that of its first search."""
    named = {each: "" for row in study.rows for each in files_of(row)}
    request = _request(study, run, named)
    usual = planned(study, request, [])[1][0].examples
    most = run.request.max_examples or usual
    request = replace(request, scale=most / usual)
    begun = _begun(study, planned(study, request, [])[1], options)
    request = replace(request, file=_files(study, begun))
    tasks, searches = planned(study, request, notes)
    done = _begun(study, searches, options)
    if request.scale != 1 and not any(row.examples for row in study.rows):
        request = replace(request, scale=1.0, examples=most)  # is shorter to type
    return OpenedStudy(study, tasks, searches, done, notes, request)


def _request(study: Study, run: FinishedRun, files: dict[str, str]) -> StudyRequest:
    asked, (encoder, *_) = run.request, run.space.encoders
    usual = evaluations_of(study, asked.max_examples or study.examples)
    return StudyRequest(
        tasks=run.tasks.origin if run.tasks.origin != study.tasks else None,
        data=asked.data,
        encoder=encoder
        if encoder != study.held.get("encoder.name") and "encoder.name" not in asked.set
        else None,
        evaluations=asked.evaluations if asked.evaluations != usual else None,
        seeds=seeds_of(run),
        seed=asked.seed,
        set=asked.set,
        file=files,
    )


def _begun(
    study: Study, searches: Sequence[StudySearch], options: ExecutionOptions
) -> list[tuple[StudySearch, FinishedRun]]:
    places = [(search, folder_of(study, options, search.name)) for search in searches]
    return [(search, open_run(place)) for search, place in places if has_begun(place)]


def _files(study: Study, begun: Sequence[tuple[StudySearch, FinishedRun]]) -> dict[str, str]:
    """The user's files that its rows were trained with."""
    return {
        value[1:]: str(run.space.base.get(key, ""))
        for search, run in begun
        for training in search.trainings
        for key, value in study.row(training.row).settings.items()
        if isinstance(value, str) and value.startswith("$")
    }
