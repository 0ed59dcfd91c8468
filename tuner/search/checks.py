"""What is wrong with a search as asked, found before anything is written or started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from model.cli.flags import faults_of, flags_of
from model.common.errors import InputError, suggest
from model.common.secrets import redact
from model.config.packages import missing_packages
from model.evaluation.model_folder import SPEC
from tuner.engine.stages import stages_of
from tuner.predict.texts import read_texts
from tuner.runs.folder import (
    LEDGER,
    LOCK,
    RUN,
    SPACE,
    TRIALS,
    changes,
    name_of,
    read_run,
    refuse_strange,
    run_folder,
)
from tuner.runs.ledger import check_ledger, read_events, read_state
from tuner.runs.request import MOST_SEED, ExecutionOptions, SearchRequest
from tuner.space.space import Space, shipped_spaces

# The search itself decides these in every trial, so that a value of their own would have no effect.
DECIDED = {
    "seed": "--seed",
    "budget.epochs": "--max-examples",
    "budget.eval_every": "--evaluations",
    "budget.eval_at": "--evaluations",
}


def check_flags(request: Mapping[str, Any], options: ExecutionOptions) -> None:
    """Each value by itself, against its type and bounds."""
    if faults := faults_of(SearchRequest, request) + faults_of(ExecutionOptions, vars(options)):
        raise InputError("search", faults)


def check_together(request: SearchRequest, options: ExecutionOptions) -> None:
    """As far as can be told without knowing the space or the machine."""
    faults = secret_faults(request)
    most = MOST_SEED - (request.confirm or (0, 0))[1]  # repeats count on from it
    if request.seed > most:
        faults.append(f"--seed is {request.seed}; it must be at most {most}")
    if options.force and not options.resume:
        faults.append("--force goes with --resume; it never overwrites a run")
    if request.distill_text is not None and not request.distill:
        faults.append("--distill-text goes with --distill, whose teacher answers it")
    if faults:
        raise InputError("search", faults)


def check_texts(request: SearchRequest, space: Space) -> None:
    """That a teacher will find the texts that it can answer: it comes last."""
    if request.distill_text is not None:
        read_texts(Path(request.distill_text), {task.name: task.pair for task in space.task_set})


def check_against(request: SearchRequest, space: Space) -> None:
    """What is asked, beside what the space has."""
    known = ["overall", *space.task_set.names]
    faults = [
        f"--objectives: '{goal}' is not one; {suggest(goal, known)}"
        for goal in request.objectives
        if goal not in known
    ]
    if not request.objectives or len(set(request.objectives)) < len(request.objectives):
        faults.append("--objectives: name each one once, as in sentiment,paraphrase")
    faults += [
        f"{'--set' if key in request.set else 'base'}: '{key}' is decided by {other}; give that"
        for key, other in DECIDED.items()
        if space.base.get(key) is not None
    ]
    faults += [
        f"init_from: {value} is not the folder of a model; give the `model` folder of a run"
        for parameter in space.parameters
        if parameter.key == "init_from"
        for value in getattr(parameter.domain, "values", ())
        if isinstance(value, str) and not (Path(value) / SPEC).is_file()
    ]
    for parameter in space.parameters:
        faults += missing_packages(parameter.key, getattr(parameter.domain, "values", ()))
    for key, value in space.base.items():
        faults += missing_packages(key, (value,))
    grace, most = request.grace_examples, request.max_examples
    if grace is not None and most is not None and grace > most:
        faults.append(f"--grace-examples {grace} is above --max-examples {most}; lower it")
    if faults:
        raise InputError("search", faults)
    stages_of(request, examples=space.examples, budget=space.budget)  # raises what is wrong


def secret_faults(request: SearchRequest) -> list[str]:
    """What is asked is written to run.yaml, which people share."""
    given = {f"--{name}": getattr(request, name) for name in ("space", "tasks", "data", "encoder")}
    given |= {f"--set {key}": value for key, value in request.set.items()}
    remedy = "leave it out, and give it through the environment"
    return [
        f"{name} holds a password or a key, which would be written to run.yaml; {remedy}"
        for name, value in given.items()
        if any(redact(text) != text for _, text in texts_in(value))
    ]


def check_space_secrets(request: SearchRequest, space: Space) -> None:
    """Its own copy of the space is in a run's folder. Those that are shipped hold none."""
    if request.space in shipped_spaces():
        return
    remedy = "leave it out, and give it through the environment"
    flags = {text for _, text in texts_in(request.overrides)}  # told as faults of the flags
    faults = [
        f"'{redact(place)}' holds a password or a key, which would be written to {SPACE}; {remedy}"
        for place, text in texts_in(space.to_dict())
        if redact(text) != text and text not in flags
    ]
    if faults:
        raise InputError(request.space, faults)


def texts_in(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every text inside of a value, keys too, and where it stands."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            inner = f"{place}.{key}" if place else str(key)
            yield inner, str(key)
            yield from texts_in(each, inner)
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from texts_in(each, f"{place}[{number}]")


def refuse_or_allow(folder: Path, options: ExecutionOptions) -> None:
    there = (folder / LEDGER).exists()
    if there and not options.resume:
        remedy = "go on with the same command and --resume, or give another --name"
        raise InputError(
            str(folder), [f"holds a search already ({describe_run(folder)}); {remedy}"]
        )
    if there:
        refuse_strange(folder)
        check_ledger(folder / LEDGER, cut_back=options.force)
        check_not_emptied(folder)
        check_not_older(folder, force=options.force)
    if options.resume and not there:
        found = sorted(p.parent.name for p in folder.parent.glob(f"*/{LEDGER}"))
        held = f"there are: {', '.join(found)}" if found else "there are no searches in it"
        fault = f"no search of this name to resume in {folder.parent}; {held}"
        raise InputError(str(folder), [fault])
    if folder.exists() and not folder.is_dir():
        raise InputError(str(folder), ["is a file; give another --name"])
    if not there and folder.exists():
        strange = sorted(p.name for p in folder.iterdir() if p.name not in OURS)
        if strange:
            fault = f"is not empty and not a run's folder (it has {', '.join(strange[:3])})"
            raise InputError(str(folder), [f"{fault}; give another --name"])


def check_not_emptied(folder: Path) -> None:
    """An empty ledger beside trials is a lost one: never begin again as if nothing had been."""
    if any(read_events(folder / LEDGER, lambda line: None)):
        return
    trials = folder / TRIALS
    names = sorted(p.name for p in trials.iterdir()) if trials.is_dir() else []
    if names:
        fault = f"has not one whole line, but there are {len(names)} trials in {trials}"
        remedy = "put back a copy of it, or begin a new run with another --name"
        raise InputError(str(folder / LEDGER), [f"{fault}; {remedy}"])


def check_not_older(folder: Path, *, force: bool) -> None:
    """A ledger that was put back from a copy does not know of the last driver that began."""
    if force or not (folder / RUN).is_file():
        return
    known, begun = read_state(folder / LEDGER, lambda line: None).epoch, read_run(folder)["epoch"]
    if known < begun:
        fault = f"is older than {RUN}: that knows of {begun} drivers, and the ledger of {known}"
        remedy = "put back the newer one, or go on without what it lacks with --force"
        raise InputError(str(folder / LEDGER), [f"{fault}; {remedy}"])


# What a search that died before its first event may have left.
OURS = (RUN, SPACE, LOCK)


def describe_run(folder: Path) -> str:
    state = read_state(folder / LEDGER, lambda line: None)
    counts = state.counts()
    done = sum(counts.values()) - counts["open"]
    return f"{done} of {state.num_samples} configurations done, {counts['open']} under way"


def check_unchanged(
    folder: Path,
    request: SearchRequest,
    prints: Mapping[str, Any],
    *,
    space_changed: bool,
    force: bool,
) -> None:
    """A run goes on as it began. More trials may be asked for; the rest must be the same."""
    before = read_run(folder)
    was, now = SearchRequest.from_dict(before["request"]).to_dict(), request.to_dict()
    remedy = "leave it out, or give another --name"
    faults = [
        f"{each.text} was {each.shown(was[key])!r} and is {each.shown(now[key])!r} now; {remedy}"
        for key, each in flags_of(SearchRequest).items()
        if not each.flag.free and was[key] != now[key]
    ]
    if not force:
        found = changes(before["fingerprints"], prints)
        # A shipped space changes with the code, which is told already.
        code = before["fingerprints"].get("code") != prints.get("code")
        shipped = code and request.space in shipped_spaces()
        if space_changed and not faults and not shipped:
            found.insert(0, "the search space changed since the run began (its copy: space.yaml)")
        faults += [f"{fault}; put it back, or go on in spite of it with --force" for fault in found]
    if faults:
        raise InputError(str(folder), faults)


def complete(
    given: Mapping[str, Any], options: ExecutionOptions
) -> tuple[SearchRequest, ExecutionOptions]:
    """What is asked; when resuming, the run's own folder says all that is left out."""
    if not options.resume:
        return SearchRequest(**given), options
    check_flags(given, options)
    name = name_of(SearchRequest(space=given.get("space", "default")), options)
    folder = run_folder(options.storage_path, name)
    if options.remote is not None:
        from tuner.runs.storage.remote import fetch_run

        fetch_run(options, name)
    if not (folder / RUN).exists():
        return SearchRequest(**given), options  # refused later, with what there is
    before = SearchRequest.from_dict(read_run(folder)["request"])
    return replace(before, **given), replace(options, name=name)
