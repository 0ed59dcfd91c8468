"""A search that is checked and can start: everything that can be refused is refused here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.cli.flags import sound
from model.cli.text import clock
from model.common.errors import Gathered
from model.common.hub import OWN, require_encoder
from model.data.sources import require_data
from model.modules.encoder import load_tokenizer
from model.training.inputs import load_inputs
from model.training.prepare import fill_in
from tuner.engine.database.mirror import check_place
from tuner.engine.database.place import StudyPlace
from tuner.engine.earlier import knowledge_of
from tuner.engine.points import Points
from tuner.engine.stages import (
    Rung,
    Stages,
    before_the_speed_is_known,
    in_full,
    is_timed,
    stages_in,
    stages_of,
)
from tuner.engine.study import check_sampler
from tuner.runs.folder import (
    LEDGER,
    LOCK,
    RUN,
    SPACE,
    TEACHER_TEXTS,
    fingerprints,
    name_of,
    run_folder,
)
from tuner.runs.ledger import read_events, read_state, run_key
from tuner.runs.lock import RunLock
from tuner.runs.open import open_run
from tuner.runs.request import ExecutionOptions, SearchRequest
from tuner.runs.state import RunState
from tuner.runs.storage.remote import fetch_run, open_storage
from tuner.runs.storage.storage import Storage
from tuner.search.checks import (
    check_against,
    check_flags,
    check_space_secrets,
    check_texts,
    check_together,
    check_unchanged,
    refuse_or_allow,
)
from tuner.search.disk import ModelSize, Need, disk_need
from tuner.search.terminal import SearchConsole
from tuner.space.space import Space, load_space


@dataclass(frozen=True)
class SearchPlan:
    request: SearchRequest
    options: ExecutionOptions
    name: str
    folder: Path
    space: Space
    data: Path | None
    stages: Stages
    prints: dict[str, Any]
    earlier: tuple[dict[str, Any], ...] = ()  # what other runs know
    storage: Storage | None = None  # where the folder is mirrored, if anywhere
    study: StudyPlace | None = None  # where the Optuna study is mirrored, if anywhere

    @property
    def timed_text(self) -> str | None:
        """What is done where the time alone says how much; nobody knows how fast it is yet."""
        seconds = self.options.time_budget_s
        if seconds is None or not is_timed(self.request, seconds):
            return None
        return f"what fits into {clock(seconds)}, planned by the first trials"

    def disk_need(self, size: ModelSize, slots: int) -> Need:
        """A search by the clock has finals as well, though its stages do not know of them yet."""
        request, stages = self.request, self.stages
        return disk_need(
            size,
            tasks=len(self.space.task_set),
            slots=slots,
            keep=request.keep,
            soup=self.options.soup,
            frozen=stages.most_frozen,
            finals=stages.finals or (request.finals or 1 if self.timed_text else 0),
            distill=request.distill,
        )


def plan_search(
    request: SearchRequest, options: ExecutionOptions, console: SearchConsole
) -> SearchPlan:
    """Check everything that can be checked before anything is written or started."""
    gathered = Gathered("search")
    with gathered:
        check_flags(vars(request), options)
    request, options = sound(request), sound(options)
    with gathered:
        check_together(request, options)
    with gathered:
        check_sampler(request.sampler, objectives=len(request.objectives))
    name = name_of(request, options)
    earlier: tuple[dict[str, Any], ...] = ()
    with gathered:
        folder = run_folder(options.storage_path.absolute(), name)
        RunLock(folder / LOCK, console.warn).look()
        fetch_run(options, name)
        refuse_or_allow(folder, options)
        storage = open_storage(options, name)
        if options.resume:  # only a run that there is has a space of its own
            space, changed = open_run_space(request, folder)
            # Once they are answered, the texts may be gone.
            texts = not (folder / TEACHER_TEXTS).exists()
            check_space(space, request, console, gathered, texts=texts)
            if lacks_earlier(read_state(folder / LEDGER, lambda line: None), request):
                earlier = tuple(knowledge(request, space))
    with gathered:
        if not options.resume:
            space, changed = open_space(request), False
            with gathered:
                check_space_secrets(request, space)
            check_space(space, request, console, gathered, texts=True)
            earlier = tuple(knowledge(request, space))
    study: StudyPlace | None = None
    with gathered:
        if options.study_storage is not None:
            study = StudyPlace(options.study_storage)
    gathered.tell()
    if study is not None:  # last, as it waits for a server
        check_study(study, options, name, folder)
    stages = stages_of(request, examples=space.examples, budget=space.budget)
    if is_timed(request, options.time_budget_s):
        stages = before_the_speed_is_known(request.promotion)
    if options.resume:
        stages = stages_of_run(read_state(folder / LEDGER, lambda line: None), stages)
    config = fill_in(space.config(space.default_point()))
    data = data_of(request)
    with console.phase("reading and tokenising the data"):
        tokenizer = load_tokenizer(config.encoder.name)
        inputs = load_inputs(config, space.task_set, data, tokenizer, console.warn)
    encoder, start = config.encoder.name, config.init_from
    prints = fingerprints(inputs.fingerprint, space.task_set, encoder, start)
    if options.resume and (folder / RUN).exists():
        check_unchanged(folder, request, prints, space_changed=changed, force=options.force)
    return SearchPlan(
        *(request, options, name, folder, space, data, stages, prints),
        earlier=earlier,
        storage=storage,
        study=study,
    )


def data_of(request: SearchRequest) -> Path | None:
    return Path(request.data).absolute() if request.data else None


def check_space(
    space: Space,
    request: SearchRequest,
    console: SearchConsole,
    gathered: Gathered,
    *,
    texts: bool,
) -> None:
    """What the space and the flags name beside it; each by itself, so that all is told."""
    with gathered:
        check_encoders(space, console)
    with gathered:
        require_data(space.task_set, data_of(request), ("train", "dev"))
    with gathered:
        check_against(request, space)
    with gathered:
        if texts:
            check_texts(request, space)


def check_encoders(space: Space, console: SearchConsole) -> None:
    """That there is a way to each that the space, or --set, names on the Hub."""
    if names := [name for name in space.encoders if name not in OWN]:
        with console.phase(f"looking for {' and '.join(names)}"):
            require_encoder(*names)


def check_study(place: StudyPlace, options: ExecutionOptions, name: str, folder: Path) -> None:
    """A study of this name may be there if it is this run's."""
    begun = read_events(folder / LEDGER, lambda line: None) if options.resume else []
    check_place(place, name, run_key(begun[0]) if begun else None)


def lacks_earlier(state: RunState, request: SearchRequest) -> bool:
    """Whether a driver died between its first line and what it was to learn from. Once there are
    trials, they were chosen without it, and go on so."""
    return not state.trials and len(state.earlier) < len(request.warm_start)


def knowledge(request: SearchRequest, space: Space) -> Iterator[dict[str, Any]]:
    """What the runs of --warm-start know; all that is wrong with them at once."""
    gathered, points = Gathered("--warm-start"), Points(space)
    for folder in request.warm_start:
        with gathered:
            yield knowledge_of(open_run(Path(folder)), points)
    gathered.tell()


def stages_of_run(state: RunState, wanted: Stages) -> Stages:
    """A run goes on as it began: with the lengths that its trials have, for more of them."""
    if state.trials and not state.rungs:  # from before trials had lengths of their own
        return in_full(wanted.trials, wanted.final.examples, wanted.race)
    began = stages_in(state)
    if began is None or state.planned:
        return replace(began, distill=wanted.distill) if began else wanted
    grown = max(1.0, wanted.trials / began.trials)
    rungs = (Rung(rung.examples, round(rung.places * grown)) for rung in began.rungs)
    return replace(began, rungs=tuple(rungs), race=wanted.race, distill=wanted.distill)


def open_space(request: SearchRequest) -> Space:
    return load_space(request.space, request.tasks, request.overrides)


def open_run_space(request: SearchRequest, folder: Path) -> tuple[Space, bool]:
    """The space that the run began with, and whether its file says something else by now."""
    if not (folder / SPACE).exists():
        return open_space(request), False
    name = Path(request.space).stem
    own = replace(load_space(str(folder / SPACE)), name=name)
    if name == request.space or Path(request.space).is_file():
        return own, open_space(request).to_dict() != own.to_dict()
    return own, False  # the file has gone, and is not needed
