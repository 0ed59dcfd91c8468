"""One search from its first line to its last: folder, lock, ledger, Ray, and what comes after."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from model import __version__
from model.files import to_yaml, write_whole
from tuner.afterwards import SearchResult, afterwards
from tuner.asked import Asked, How
from tuner.background import in_background
from tuner.console import SearchConsole
from tuner.disk import Need, check_disk, disk_need, human, weigh
from tuner.engine import INTERRUPTED, Engine, Limits
from tuner.goods import Parcel, needed, pack
from tuner.keep import Shelf
from tuner.ledger import Ledger
from tuner.lock import RunLock
from tuner.plan import Plan, make_plan
from tuner.preflight import check_nodes
from tuner.ray_session import Session, ray_session
from tuner.remote import RemoteRun, follow
from tuner.resources import Resources, share_out
from tuner.run_folder import LEDGER, LOCK, SPACE, own_folder, write_run
from tuner.signals import Signals, signals
from tuner.storage import Storage
from tuner.strays import set_strays_aside
from tuner.study_file import JOURNAL, StudyFile
from tuner.tensorboard import Board

__all__ = ["Asked", "How", "SearchResult", "search"]


def search(asked: Asked, how: How) -> SearchResult:
    """Run a search, or go on with one. Raises InputError for what the user can mend."""
    console = SearchConsole(quiet=how.quiet, verbose=how.verbose)
    with signals() as held:
        return begin(make_plan(asked, how, console), console, held)


def begin(plan: Plan, console: SearchConsole, held: Signals) -> SearchResult:
    asked, how, folder = plan.asked, plan.how, plan.folder
    # Beside the start of Ray, which mostly waits for its processes.
    weighing = in_background(lambda: weigh(plan.space))
    with own_folder(folder), RunLock(folder / LOCK, console.warn), ray_session(how.address) as ray:
        held.hold()
        resources = share_out(
            ray.cpus,
            ray.gpus,
            concurrent=how.max_concurrent_trials,
            cpus=how.cpus_per_trial,
            gpus=how.gpus_per_trial,
            trials=asked.num_samples,
            nodes=ray.nodes,
            elastic=how.address is not None,
        )
        goods = prepare_cluster(plan, ray, resources, console) if how.address is not None else {}
        need = disk_need(
            weighing.result(),
            tasks=len(plan.space.task_set),
            slots=resources.slots,
            keep=asked.keep,
            soup=how.soup,
        )
        # With storage elsewhere, trials train on the disks of their nodes.
        check_disk(replace(need, running=0) if plan.storage else need, folder)
        if not how.resume or not (folder / SPACE).exists():
            write_whole(folder / SPACE, to_yaml(plan.space.to_dict()))
        write_run(folder, asked.to_dict(), plan.prints)
        with (
            Ledger(folder / LEDGER, console.warn) as ledger,
            follow(plan.storage, folder, console.warn) as remote,
        ):
            return run(plan, ledger, ray, resources, need, console, remote, goods, held)


def prepare_cluster(
    plan: Plan, ray: Session, resources: Resources, console: SearchConsole
) -> dict[str, Parcel]:
    """Look at every machine, and pack what the trials need of this one."""
    config = plan.space.config(plan.space.default_point())
    names = [plan.asked.data, plan.space.task_set.origin, config.encoder.name, config.init_from]
    goods, large = pack(needed(names))
    nodes = check_nodes(plan.folder, plan.storage, large)
    machines = f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}, all alike"
    console.log(f"cluster: {machines}, with {ray.cpus:g} CPUs and {ray.gpus:g} GPUs")
    slots = resources.slots
    if slots * resources.cpus > ray.cpus or slots * resources.gpus > ray.gpus:
        console.log("that is less than is asked for; trials wait until machines come")
    return goods


def run(
    plan: Plan,
    ledger: Ledger,
    ray: Session,
    resources: Resources,
    need: Need,
    console: SearchConsole,
    remote: RemoteRun | None,
    goods: dict[str, Parcel],
    held: Signals,
) -> SearchResult:
    asked, how = plan.asked, plan.how
    set_strays_aside(plan.folder, ledger.state, console.warn)
    ledger.append(
        "run",
        version=__version__,
        name=plan.name,
        objectives=list(asked.objectives),
        num_samples=asked.num_samples,
        seed=asked.seed,
        sampler=asked.sampler,
        resumed=how.resume,
    )
    board = Board(plan.folder, plan.space, console.warn)
    board.follow(ledger)
    shelf = remote.shelf() if remote else Shelf(plan.folder)
    engine = make_engine(plan, ledger, resources, console, shelf)
    announce(console, engine, plan, resources, need)
    if not engine.done:
        with held.draining(engine):
            run_trials(engine, console, resources, ray.scratch, plan.storage, goods)
    console.clear()
    if engine.fatal is not None:
        raise engine.fatal
    stopped = None if engine.done else (engine.draining or INTERRUPTED)
    ledger.append("end", reason=stopped or "complete")
    if remote:
        remote.bring_home(ledger.state, asked.keep)
    return afterwards(plan, ledger.state, stopped, board, console, held.heed)


def make_engine(
    plan: Plan, ledger: Ledger, resources: Resources, console: SearchConsole, shelf: Shelf
) -> Engine:
    budget = plan.how.time_budget_s
    return Engine(
        ledger=ledger,
        space=plan.space,
        tasks=plan.space.task_set,
        folder=plan.folder,
        shelf=shelf,
        data=plan.data,
        limits=Limits(
            num_samples=plan.asked.num_samples,
            max_examples=plan.max_examples,
            eval_every=plan.grace,
            slots=resources.slots,
            threads=resources.threads,
            keep=plan.asked.keep,
            confirm=plan.asked.confirm,
            deadline=None if budget is None else time.monotonic() + budget,
        ),
        extra={
            "budget.examples": plan.max_examples,
            "budget.epochs": None,
            "budget.eval_every": plan.grace,
        },
        rungs=plan.rungs,
        study=StudyFile(plan.folder / JOURNAL, ledger.state, plan.space, console.warn),
        warn=console.warn,
        log=console.log,
        heard=console.warned,
    )


def announce(
    console: SearchConsole, engine: Engine, plan: Plan, resources: Resources, need: Need
) -> None:
    limits = engine.limits
    gpus = f", {resources.gpus:g} GPU" if resources.gpus else ""
    console.log(
        f"{'resuming' if plan.how.resume else 'searching'} {engine.space.name} on "
        f"{engine.tasks.name}: {limits.num_samples} trials of up to {limits.max_examples:,} "
        f"examples, {resources.slots} at once ({resources.cpus:g} CPU{gpus} each) -> {plan.folder}"
    )
    if plan.storage is not None:
        console.log(f"storage: {plan.storage.shown}, seconds behind the folder")
    console.log(
        f"disk: up to {human(need.peak)} while it runs, {human(need.kept)} kept "
        f"({human(need.model)} a model)"
    )
    for note in engine.space.notes:
        console.log(note)


def run_trials(
    engine: Engine,
    console: SearchConsole,
    resources: Resources,
    scratch: Path,
    storage: Storage | None = None,
    goods: dict[str, Parcel] | None = None,
) -> None:
    from ray import tune

    from tuner.seam import DrainStopper, LedgerSearch, RungScheduler, Watcher
    from tuner.trial import SearchTrial

    scheduler = RungScheduler(engine)
    trainable: Any = SearchTrial
    if storage or goods:
        # By Ray's object store: once to each node, and unlike a trial's configuration never on
        # disk, where a secret in the URL must not be.
        trainable = tune.with_parameters(SearchTrial, storage=storage, goods=goods)
    tuner = tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=LedgerSearch(engine, resources.placement()),
            scheduler=scheduler,
            num_samples=-1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="trials",
            storage_path=str(scratch / "tune"),
            stop=DrainStopper(engine, scheduler),
            callbacks=[Watcher(engine, scheduler, lambda: console.draw(engine))],
            verbose=0,
        ),
    )
    tuner.fit()
