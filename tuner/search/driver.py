"""One search from its first line to its last: folder, lock, ledger, Ray, and what comes after."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from model import __version__
from model.cli.text import say, shown_path
from model.common.files import remove_leftovers, to_yaml, write_atomic
from tuner.cluster.preflight import check_nodes, priority
from tuner.engine.engine import INTERRUPTED, Engine, Limits
from tuner.engine.stages import Stages, for_time, is_timed
from tuner.engine.study import AUTO, TASK_GP, choose_sampler
from tuner.engine.study_file import StudyFile
from tuner.export.tensorboard.board import Board
from tuner.export.tensorboard.event_files import BOARD
from tuner.ray_backend.resources import Resources, parts_of, share_out
from tuner.ray_backend.session import Session, ray_session
from tuner.ray_backend.staging import StagedInput, needed, pack, paths_in
from tuner.runs.folder import (
    JOURNAL,
    LEDGER,
    LOCK,
    RUN,
    SPACE,
    TRIALS,
    own_folder,
    read_run,
    write_run,
)
from tuner.runs.ledger import Ledger
from tuner.runs.lock import Holder, RunLock
from tuner.runs.request import ExecutionOptions, SearchRequest
from tuner.runs.retention import CheckpointStore
from tuner.runs.storage.remote import RemoteRun, follow
from tuner.runs.storage.storage import Storage
from tuner.runs.unknown_trials import set_unknown_trials_aside
from tuner.search import distill
from tuner.search.background import in_background
from tuner.search.disk import Need, check_disk, estimate_size, human
from tuner.search.finish import SearchResult, attempt_soup, finish
from tuner.search.next_steps import resume_command
from tuner.search.on_workers import Workers, on_workers
from tuner.search.plan import SearchPlan, plan_search
from tuner.search.signals import Signals, signals
from tuner.search.study_storage import mirrored_study
from tuner.search.terminal import SearchConsole
from tuner.soup.record import SOUPS

__all__ = ["ExecutionOptions", "SearchRequest", "SearchResult", "search"]

ABANDONED = 3600.0  # seconds: what lay half-written for so long is no other command's at work


def search(request: SearchRequest, options: ExecutionOptions) -> SearchResult:
    """Run a search, or go on with one. Raises InputError for what the user can mend."""
    console = SearchConsole(quiet=options.quiet, verbose=options.verbose)
    with signals() as stop_signals:
        with console.phase("checking the search"):
            plan = plan_search(request, options, console)
        return begin(plan, console, stop_signals)


def begin(plan: SearchPlan, console: SearchConsole, stop_signals: Signals) -> SearchResult:
    request, options, folder = plan.request, plan.options, plan.folder
    # Beside the start of Ray, which mostly waits for its processes.
    sizing = in_background(lambda: estimate_size(plan.space))
    with (
        own_folder(folder),
        RunLock(folder / LOCK, console.warn) as lock,
        ray_session(options.address, console.phase, partial(tell_lost, plan, console)) as ray,
    ):
        stop_signals.hold()
        resources = share_out(
            ray.cpus,
            ray.gpus,
            concurrent=options.max_concurrent_trials,
            cpus=options.cpus_per_trial,
            gpus=options.gpus_per_trial,
            trials=plan.stages.at_once,
            nodes=ray.nodes,
            elastic=options.address is not None,
        )
        staged = (
            prepare_cluster(plan, ray, resources, console) if options.address is not None else {}
        )
        need = plan.disk_need(sizing.result(), resources.slots)
        # With storage elsewhere, trials train on the disks of their nodes.
        check_disk(replace(need, running=0) if plan.storage else need, folder)
        if not options.resume or not (folder / SPACE).exists():
            write_atomic(folder / SPACE, to_yaml(plan.space.to_dict()))
        if not options.resume or not (folder / RUN).exists():
            write_run(folder, request.to_dict(), plan.prints)
        with (
            Ledger(folder / LEDGER, console.warn, lock.check, cut_back=options.force) as ledger,
            follow(plan.storage, folder, console.warn, ledger.aside) as remote,
            mirrored_study(plan.study, ledger, plan.space, console.warn),
        ):
            return run(
                *(plan, ledger, ray, resources, need, console, remote),
                driver=None if remote else lock.holder,
                staged=staged,
                stop_signals=stop_signals,
            )


def tell_lost(plan: SearchPlan, console: SearchConsole) -> None:
    console.clear()
    fault = "Ray's control store has ended (gcs_server; was it killed, or was memory short?)"
    again = f"Go on with:\n  {resume_command(plan.folder, plan.options)}"
    say(f"stopped ({fault}); nothing is lost. {again}", sys.stderr)


def prepare_cluster(
    plan: SearchPlan, ray: Session, resources: Resources, console: SearchConsole
) -> dict[str, StagedInput]:
    """Look at every machine, and pack what the trials need of this one."""
    config = plan.space.config(plan.space.default_point())
    names = [plan.request.data, plan.space.task_set.origin, *plan.space.encoders]
    names += paths_in(config.to_flat()).values()
    with console.phase("packing what the trials need of this machine"):
        staged, large = pack(needed(names))
    with console.phase("checking every node"):
        nodes = check_nodes(plan.folder, plan.storage, large)
    machines = f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}, all alike"
    console.log(f"cluster: {machines}, with {ray.cpus:g} CPUs and {ray.gpus:g} GPUs")
    console.log(priority(nodes))
    slots, gpus = resources.slots, resources.gpus
    if slots * resources.cpus > ray.cpus or (gpus and slots > parts_of(ray.gpus, gpus)):
        console.log("that is less than is asked for; trials wait until machines come")
    return staged


def run(
    plan: SearchPlan,
    ledger: Ledger,
    ray: Session,
    resources: Resources,
    need: Need,
    console: SearchConsole,
    remote: RemoteRun | None,
    *,
    driver: Holder | None,
    staged: dict[str, StagedInput],
    stop_signals: Signals,
) -> SearchResult:
    request, options = plan.request, plan.options
    set_unknown_trials_aside(plan.folder, ledger.state, console.warn)
    places = [plan.folder / name for name in ("", BOARD, SOUPS, TRIALS)]
    remove_leftovers([*places, *places[-1].glob("*/")], ABANDONED)
    ledger.append(
        "run",
        version=__version__,
        name=plan.name,
        objectives=list(request.objectives),
        num_samples=plan.stages.trials,
        rungs=[[rung.examples, rung.places] for rung in plan.stages.rungs],
        promotion=plan.stages.promotion,
        race=list(plan.stages.race),
        seed=request.seed,
        sampler=ledger.state.sampler  # however many trials the clock has planned since
        if request.sampler == AUTO and ledger.state.trials
        else choose_sampler(request.sampler, plan.stages.trials),
        resumed=options.resume,
        # A ledger that was cut back may have forgotten some, of which workers may be alive.
        epoch=max(ledger.state.epoch, read_run(plan.folder)["epoch"]) + 1,
        driver=remote.storage.driver if remote else uuid.uuid4().hex,
    )
    for known in plan.earlier[len(ledger.state.earlier) :]:
        ledger.append("earlier", **known)
    write_run(plan.folder, request.to_dict(), plan.prints, ledger.state.epoch)
    board = Board(plan.folder, plan.space, console.warn)
    board.follow(ledger)
    store = remote.store(ledger.state) if remote else CheckpointStore(plan.folder)
    engine = make_engine(plan, ledger, resources, console, store, driver)
    announce(console, engine, plan, resources, need)

    def train(inputs: dict[str, StagedInput]) -> str | None:
        """All that is left to be trained; why that was not all, if so."""
        if not engine.done:
            console.draw(engine)  # until the first worker is up
            try:
                with stop_signals.draining(engine):
                    storage = remote.storage if remote else None
                    run_trials(engine, console, resources, ray.scratch, storage, inputs)
            finally:
                console.clear()
        if engine.fatal is not None:
            raise engine.fatal
        return None if engine.done else (engine.draining or INTERRUPTED)

    def teach() -> dict[str, str] | None:
        """What a student is told of the teacher's answers; None where these cannot be had."""
        if remote:
            remote.bring_home(ledger.state, request.keep)
        stop = stop_signals.raise_if_interrupted
        return teacher_of(plan, resources, console, stop, ledger.mine)

    def with_answers() -> dict[str, StagedInput]:
        """All that trials need, with the teacher's answers."""
        files = needed(distill.answer_files(plan.folder)) if options.address else []
        return staged | pack(files)[0]

    stopped = None
    try:
        if distill.is_lost(plan.folder, ledger.state):
            teach()
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    stopped = stopped or train(with_answers())
    if stopped is None and distill.is_due(plan, ledger.state):
        try:
            if (answers := teach()) is not None:
                engine.distill(answers)
                stopped = train(with_answers())
        except KeyboardInterrupt:
            stopped = INTERRUPTED
    ledger.append("end", reason=stopped or "complete")
    engine.study.finish()
    if remote:
        remote.bring_home(ledger.state, request.keep)
    stop = stop_signals.raise_if_interrupted
    with workers(plan, resources, console, stop) as there:
        runner = there.runner if there else None
        return finish(plan, ledger.state, stopped, board, console, stop, runner, ledger.mine)


def teacher_of(
    plan: SearchPlan,
    resources: Resources,
    console: SearchConsole,
    raise_if_interrupted: Callable[[], None],
    mine: Callable[[], None],
) -> dict[str, str] | None:
    """The answers of the best ensemble, from a soup of what there is."""
    with workers(plan, resources, console, raise_if_interrupted) as there:
        runner = there.runner if there else None
        soup = attempt_soup(plan.folder, console, raise_if_interrupted, runner, mine)
    if soup is None:
        return None
    mine()
    # Whose room those of the soup have left.
    with workers(plan, resources, console, raise_if_interrupted) as there:
        models = partial(there.answer, plan.folder) if there else None
        return distill.make_teacher(plan, soup, console, models)


def workers(
    plan: SearchPlan, resources: Resources, console: SearchConsole, stop: Callable[[], None]
) -> AbstractContextManager[Workers | None]:
    """Who runs models when trials are done: on a cluster its workers, else this process."""
    if plan.options.address is None:
        return nullcontext()
    return on_workers(
        resources,
        shared=plan.storage is None,
        storage=plan.storage,
        warn=console.warn,
        log=console.log,
        stop=stop,
    )


def make_engine(
    plan: SearchPlan,
    ledger: Ledger,
    resources: Resources,
    console: SearchConsole,
    store: CheckpointStore,
    driver: Holder | None,
) -> Engine:
    budget = plan.options.time_budget_s
    return Engine(
        ledger=ledger,
        space=plan.space,
        tasks=plan.space.task_set,
        folder=plan.folder,
        store=store,
        data=plan.data,
        limits=Limits(
            slots=resources.slots,
            threads=resources.threads,
            shared_gpu=resources.shared_gpu,
            # What Ray counts stays as it is: an actor with more CPUs would be another process.
            final_threads=0 if plan.options.address else round(resources.slots * resources.cpus),
            keep=plan.request.keep,
            reduction=plan.request.reduction_factor,
            evaluations=plan.request.evaluations,
            deadline=None if budget is None else time.monotonic() + budget,
        ),
        stages=plan.stages,
        extra={},
        study=StudyFile(plan.folder / JOURNAL, ledger.state, plan.space, console.warn),
        warn=console.warn,
        log=console.log,
        heard=console.warned,
        replan=by_the_clock(plan, resources),
        driver=None if driver is None else asdict(driver),
    )


def by_the_clock(plan: SearchPlan, resources: Resources) -> Callable[[float, float], Stages] | None:
    """How the time is divided, where time is all that is given."""
    seconds, request = plan.options.time_budget_s, plan.request
    if seconds is None or not is_timed(request, seconds):
        return None
    end = time.monotonic() + seconds
    alone = not (resources.gpus or plan.options.address)  # then one final has all the threads
    return lambda pace, speed: for_time(
        end - time.monotonic(),
        pace,
        speed,
        slots=resources.slots,
        finals=request.finals or (1 if alone else resources.slots),
        threads=resources.slots if alone else 1,
        reduction=request.reduction_factor,
        promotion=request.promotion,
        race=request.confirm,
        distill=request.distill,
    )


def announce(
    console: SearchConsole, engine: Engine, plan: SearchPlan, resources: Resources, need: Need
) -> None:
    gpus = f", {resources.gpus:g} GPU" if resources.gpus else ""
    timed = None if engine.state.planned else plan.timed_text
    what = timed or plan.stages.text()
    console.log(
        f"{'resuming' if plan.options.resume else 'searching'} {engine.space.name} on "
        f"{engine.tasks.name}: {what}; {resources.slots} at once "
        f"({resources.cpus:g} CPU{gpus} each) -> {shown_path(plan.folder)}"
    )
    if plan.storage is not None:
        console.log(f"storage: {plan.storage.shown}, seconds behind the folder")
    console.log(
        f"disk: up to {human(need.peak)} while it runs, {human(need.kept)} kept "
        f"({human(need.model)} a model)"
    )
    if plan.request.sampler == AUTO:
        few = "few" if engine.state.sampler == TASK_GP else "many"
        trials = "what fits into the time is" if timed else f"{plan.stages.trials:,} trials are"
        console.log(f"sampler: {engine.state.sampler}, as {trials} {few}")
    for known in engine.state.earlier:
        tasks = ", ".join(f"{ours} from {its}" for ours, its in known["from_tasks"].items())
        points = f"{len(known['starts'])} start points and {len(known['results'])} results"
        console.log(f"warm start by {known['name']}: {points}; {tasks}")
    for note in engine.space.notes:
        console.log(note)


def run_trials(
    engine: Engine,
    console: SearchConsole,
    resources: Resources,
    scratch: Path,
    storage: Storage | None = None,
    staged: dict[str, StagedInput] | None = None,
) -> None:
    from ray import tune

    from tuner.ray_backend.adapters import DrainStopper, LedgerSearch, RunCallback, RungScheduler
    from tuner.ray_backend.trainable import SearchTrial

    scheduler = RungScheduler(engine)
    trainable: Any = SearchTrial
    if storage or staged:
        # By Ray's object store: once to each node, and unlike a trial's configuration never on
        # disk, where a secret in the URL must not be.
        trainable = tune.with_parameters(SearchTrial, storage=storage, staged=staged)
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=LedgerSearch(engine, resources),
            scheduler=scheduler,
            num_samples=-1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="trials",
            storage_path=str(scratch / "tune"),
            stop=DrainStopper(engine, scheduler),
            callbacks=[RunCallback(engine, scheduler, lambda: console.draw(engine))],
            verbose=0,
        ),
    )
    tuner.fit()
