"""One search from its first line to its last: folder, lock, ledger, Ray, summary."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model import __version__
from model.encoder import load_tokenizer
from model.files import to_yaml, write_whole
from model.inputs import load_inputs
from model.prepare import fill_in
from tuner.asked import Asked, How
from tuner.checks import check_asked, check_how, check_unchanged, refuse_or_allow
from tuner.console import SearchConsole
from tuner.disk import Need, check_disk, disk_need, human
from tuner.engine import INTERRUPTED, Engine, Limits
from tuner.ledger import Ledger
from tuner.lock import RunLock
from tuner.ray_session import Session, ray_session
from tuner.resources import Resources, share_out
from tuner.run_folder import (
    LEDGER,
    LOCK,
    RUN,
    SPACE,
    fingerprints,
    own_folder,
    run_folder,
    write_run,
)
from tuner.run_state import RunState
from tuner.rungs import Rungs
from tuner.space import Space, load_space
from tuner.study_file import JOURNAL, StudyFile
from tuner.summary import Summary, summarise

__all__ = ["Asked", "How", "SearchResult", "search"]


@dataclass(frozen=True)
class SearchResult:
    folder: Path
    state: RunState
    summary: Summary
    stopped: str | None  # why it ended before all trials were done; None if they are

    @property
    def complete(self) -> bool:
        return self.stopped is None


@dataclass(frozen=True)
class Plan:
    """A search that is checked and can start."""

    asked: Asked
    how: How
    name: str
    folder: Path
    space: Space
    data: Path | None
    max_examples: int
    grace: int
    prints: dict[str, Any]

    @property
    def rungs(self) -> Rungs | None:
        asked = self.asked
        if not asked.early_stopping:
            return None
        return Rungs(self.grace, self.max_examples, asked.reduction_factor)


def search(asked: Asked, how: How) -> SearchResult:
    """Run a search, or go on with one. Raises InputError for what the user can mend."""
    console = SearchConsole(quiet=how.quiet, verbose=how.verbose)
    plan = make_plan(asked, how, console)
    folder = plan.folder
    with own_folder(folder), RunLock(folder / LOCK, console.warn), ray_session(how.address) as ray:
        resources = share_out(
            ray.cpus,
            ray.gpus,
            concurrent=how.max_concurrent_trials,
            cpus=how.cpus_per_trial,
            gpus=how.gpus_per_trial,
            trials=asked.num_samples,
        )
        need = disk_need(plan.space, slots=resources.slots, keep=asked.keep)
        check_disk(need, folder)
        if not how.resume or not (folder / SPACE).exists():
            write_whole(folder / SPACE, to_yaml(plan.space.to_dict()))
        write_run(folder, asked.to_dict(), plan.prints)
        with Ledger(folder / LEDGER, console.warn) as ledger:
            return run(plan, ledger, ray, resources, need, console)


def make_plan(asked: Asked, how: How, console: SearchConsole) -> Plan:
    """Check everything that can be checked before anything is written or started."""
    check_how(how)
    name = how.name or Path(asked.space).stem
    folder = run_folder(how.storage_path.absolute(), name)
    refuse_or_allow(folder, how)
    space, changed = open_run_space(asked, folder) if how.resume else (open_space(asked), False)
    check_asked(asked, space)
    max_examples = asked.max_examples or default_examples(space)
    grace = asked.grace_examples or max(1, -(-max_examples // 4))
    config = fill_in(space.config(space.default_point()))
    data = Path(asked.data).absolute() if asked.data else None
    tokenizer = load_tokenizer(config.encoder.name)
    inputs = load_inputs(config, space.task_set, data, tokenizer, console.warn)
    prints = fingerprints(inputs.fingerprint, space.task_set, config.encoder.name)
    if how.resume and (folder / RUN).exists():
        check_unchanged(folder, asked, prints, space_changed=changed, force=how.force)
    plan = Plan(asked, how, name, folder, space, data, max_examples, grace, prints)
    _ = plan.rungs  # raises what is wrong with them
    return plan


def open_space(asked: Asked) -> Space:
    overrides = dict(asked.set)
    if asked.encoder is not None:
        overrides["encoder.name"] = asked.encoder
    return load_space(asked.space, asked.tasks, overrides)


def open_run_space(asked: Asked, folder: Path) -> tuple[Space, bool]:
    """The space that the run began with, and whether its file says something else by now."""
    if not (folder / SPACE).exists():
        return open_space(asked), False
    name = Path(asked.space).stem
    own = replace(load_space(str(folder / SPACE)), name=name)
    if name == asked.space or Path(asked.space).is_file():
        return own, open_space(asked).to_dict() != own.to_dict()
    return own, False  # the file has gone, and is not needed


def default_examples(space: Space) -> int:
    """What the space's base says; else three passes over a middling set of tasks."""
    examples = space.config(space.default_point()).budget.examples
    return examples or 30_000


def run(
    plan: Plan,
    ledger: Ledger,
    ray: Session,
    resources: Resources,
    need: Need,
    console: SearchConsole,
) -> SearchResult:
    asked, how = plan.asked, plan.how
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
    engine = make_engine(plan, ledger, resources, console)
    announce(console, engine, plan, resources, need)
    if not engine.done:
        run_trials(engine, console, resources, ray.scratch)
    console.clear()
    if engine.fatal is not None:
        raise engine.fatal
    stopped = None if engine.done else (engine.draining or INTERRUPTED)
    ledger.append("end", reason=stopped or "complete")
    summary = summarise(
        ledger.state, plan.folder, plan.space.task_set, max_examples=plan.max_examples
    )
    return SearchResult(plan.folder, ledger.state, summary, stopped)


def make_engine(plan: Plan, ledger: Ledger, resources: Resources, console: SearchConsole) -> Engine:
    budget = plan.how.time_budget_s
    return Engine(
        ledger=ledger,
        space=plan.space,
        tasks=plan.space.task_set,
        folder=plan.folder,
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
    console.log(
        f"disk: up to {human(need.peak)} while it runs, {human(need.kept)} kept "
        f"({human(need.model)} a model)"
    )
    for note in engine.space.notes:
        console.log(note)


def run_trials(engine: Engine, console: SearchConsole, resources: Resources, scratch: Path) -> None:
    from ray import tune

    from tuner.seam import DrainStopper, LedgerSearch, RungScheduler, Watcher
    from tuner.trial import SearchTrial

    scheduler = RungScheduler(engine)
    tuner = tune.Tuner(
        SearchTrial,
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
    with signals(engine):
        tuner.fit()


@contextmanager
def signals(engine: Engine) -> Iterator[None]:
    """Ctrl-C and SIGTERM drain, a second one ends at once. After ray.init, which has its own."""

    def handle(number: int, frame: Any) -> None:
        if engine.draining:
            raise KeyboardInterrupt
        engine.drain(INTERRUPTED)

    try:
        before = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever called has the signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
