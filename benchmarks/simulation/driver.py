"""A driver of the simulated world: what `tuner.search.driver` does, without Ray."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.common.errors import InputError
from model.common.files import write_atomic
from model.common.run_files import METRICS
from model.training.checkpoint import MANIFEST, checkpoint_name, checkpoints_in
from tuner.engine.engine import Engine, Limits
from tuner.engine.job import Job
from tuner.engine.study_file import StudyFile
from tuner.runs import lock
from tuner.runs.folder import CHECKPOINTS, JOURNAL, LEDGER, LOCK, RUN, write_run
from tuner.runs.ledger import Ledger
from tuner.runs.lock import Deposed, RunLock
from tuner.runs.retention import CheckpointStore
from tuner.runs.state import TrialState
from tuner.runs.storage.fence import Superseded
from tuner.runs.storage.mirror import ALIVE, Mirror, is_signed
from tuner.runs.storage.node_folder import NodeFolder
from tuner.runs.storage.remote import RemoteCheckpointStore, forget_unknown, whole_lines
from tuner.runs.storage.storage import StorageLost
from tuner.runs.unknown_trials import set_unknown_trials_aside
from tuner.search.checks import check_not_older

from .plan import KEEP, TRIALS, NoStudy, Violation, Worker
from .store import BucketStorage, NodeStorage

if TYPE_CHECKING:
    from .world import World

STUDIES = 4  # every so many seeds have a study file


class Driver:
    """What `tuner.search.driver` does, without Ray."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.name = f"d{world.told['drivers']}"
        world.told["drivers"] += 1
        self.workers: dict[str, Worker] = {}
        self.mirror: Mirror | None = None
        self.gone = False
        self.between = False  # it slept after a look at its lock, and before it wrote
        self.lock = RunLock(folder / LOCK, world.say)
        self.lock.acquire()
        try:
            if world.plan.remote:
                self.fetch()
            self.look()
            self.ledger = Ledger(folder / "ledger.jsonl", world.say, self.mine)
            try:
                self.begin()
            except BaseException:
                self.ledger.close()
                raise
        except BaseException:
            self.let_go()
            raise

    def mine(self) -> None:
        if not self.between:
            self.lock.check()
        self.between = False

    def let_go(self) -> None:
        """Of the lock: given back, or left behind by a process that is dead."""
        if not self.world.disk.dead:
            self.lock.release()
        elif self.lock._file is not None:
            os.close(self.lock._file)
            self.lock._file = None

    def fetch(self) -> None:
        """As `fetch_run`: the longer of two ledgers that tell the same story."""
        storage = BucketStorage(self.world.bucket)
        there = storage.read(LEDGER) or b""
        here = whole_lines(self.folder / LEDGER)
        if there.startswith(here) and there != here:
            if (request := storage.read(RUN)) is None:
                raise Violation("storage has a ledger, and not what was asked")
            write_atomic(self.folder / RUN, request)
            write_atomic(self.folder / LEDGER, there)
        elif not here.startswith(there) and not is_signed(storage.read(ALIVE), here, there):
            raise Violation("storage and the driver's folder tell different stories")

    def look(self) -> None:
        """As `refuse_or_allow`."""
        if not (self.folder / LEDGER).exists():
            return
        try:
            with self.world.disk.watched():
                check_not_older(self.folder, force=False)
        except InputError as error:
            raise Violation(str(error)) from None

    def begin(self) -> None:
        world, state = self.world, self.ledger.state
        if world.driver is None:
            known = world.acknowledged
            events = world.ledger_events()
            if events[: len(known)] != known:
                raise Violation("what was acknowledged is not there after a start")
            world.acknowledged = events
        self.ledger.listeners.append(lambda event: world.acknowledge(self, event))
        store: Any = CheckpointStore(self.folder)
        if world.plan.remote:
            storage: Any = BucketStorage(world.bucket, self.name)
            storage.judged = storage.read(ALIVE)
            self.mirror = Mirror(storage, self.folder)
            who = {"host": "made-up", "pid": 1, "driver": self.name}
            self.mirror.claim(who, self.ledger.aside)
            forget_unknown(storage, state, world.say)
            for name in [name for name in world.saved if name not in state.trials]:
                del world.saved[name]
            store = RemoteCheckpointStore(storage, self.mirror)
        else:
            set_unknown_trials_aside(self.folder, state, world.say)
            for name in [name for name in world.saved if name not in state.trials]:
                del world.saved[name]
        rungs = [[rung.examples, rung.places] for rung in world.plan.stages.rungs]
        self.ledger.append(
            *("run",),
            **{"version": "1", "name": "simulated", "objectives": ["overall"], "rungs": rungs},
            **{"num_samples": TRIALS, "promotion": world.plan.stages.promotion, "seed": 0},
            **{"sampler": "random", "resumed": bool(state.trials), "epoch": state.epoch + 1},
            driver=self.name,
        )
        write_run(self.folder, {"space": "default"}, {}, self.ledger.state.epoch)
        self.study = NoStudy() if world.seed % STUDIES else self.real_study()
        self.engine = Engine(
            ledger=self.ledger,
            space=world.space,
            tasks=world.space.task_set,
            folder=self.folder,
            store=store,
            data=None,
            limits=Limits(world.plan.slots, threads=1, keep=KEEP),
            stages=world.plan.stages,
            extra={},
            study=self.study,  # type: ignore[arg-type]
            warn=world.say,
            log=world.say,
        )

    def real_study(self) -> StudyFile:
        """Nothing reads it back, so it may be at odds with nothing; and it takes its time."""
        path = self.folder / JOURNAL
        return StudyFile(path, self.ledger.state, self.world.space, self.world.say)

    def close(self) -> None:
        self.gone = True
        self.ledger.close()
        self.let_go()

    def ledger_bytes(self) -> bytes:
        return (self.folder / "ledger.jsonl").read_bytes()

    # --- one thing after the other ----------------------------------------------------------

    def step(self, rng: random.Random) -> bool:
        """Something that a driver does. True when the search is over."""
        engine = self.engine
        engine.tick()
        if engine.draining or engine.fatal:
            self._drain()
            return False
        if self.mirror is not None and rng.random() < 0.3:
            self._settle()
            return False
        if rng.random() < 0.5 and (job := engine.next_job()) is not None:
            engine.started(job.trial, "made-up", 1)
            self._start(job)
        elif self.workers:
            self._train(rng.choice(sorted(self.workers)))
        elif engine.done:
            return self._end()
        return False

    def _start(self, job: Job) -> None:
        saved = self.world.saved.get(job.trial, [])
        unheard = [point for point in saved if point > job.known]
        points = [n for n in points_of(job) if n > max([job.known, *saved])]
        worker = Worker(job, points, unheard)
        if self.world.plan.remote:
            worker.node = NodeFolder(NodeStorage(self.world.bucket, self.name))  # type: ignore[arg-type]
            worker.node._scratch = self.world.folder / "nodes" / f"{self.name}-{job.trial}"
            try:
                worker.node.fetch(job.trial)
            except StorageLost as error:
                self.engine.storage_lost(str(error))
                return
        self.workers[job.trial] = worker

    def _train(self, name: str) -> None:
        worker, trial = self.workers[name], self.engine.state.trials[name]
        if worker.hangs:  # nothing is heard of it, until its worker is ended
            if self.world.rng.random() < 0.2:
                del self.workers[name]
                self.engine.lost(name, {"kind": "infrastructure", "reason": "no sign of life"})
            return
        if worker.unheard:
            examples = worker.unheard.pop(0)
        elif worker.points:
            examples = worker.points.pop(0)
            if not self._save(name, examples):
                return
            self.world.disk._call()  # the driver may die between the two
        else:
            del self.workers[name]
            self.engine.finished(name)
            return
        if not self.engine.evaluated(name, self.record(trial, examples)):
            self.workers.pop(name, None)

    def _save(self, name: str, examples: int) -> bool:
        """False where that was not to be: the trial's worker is done for, not the trial."""
        try:
            self._keep(self.workers[name], examples)
        except (StorageLost, Deposed) as error:
            if self is self.world.driver and isinstance(error, (Superseded, Deposed)):
                raise Violation(f"a worker took its driver for deposed: {error}") from None
            self.world.told["worker found its driver deposed"] += isinstance(error, Superseded)
            del self.workers[name]
            self.engine.failed(name, {"kind": "storage", "reason": str(error)})
            return False
        except OSError as error:
            del self.workers[name]
            self.world.losses[name] += 1
            self.engine.lost(name, {"kind": "infrastructure", "reason": str(error)})
            return False
        return True

    def train_unheard(self, rng: random.Random) -> None:
        """Workers go on while their driver sleeps, and find out on their own. What one has saved
        it tells, and waits until it is heard."""
        able = [n for n, w in sorted(self.workers.items()) if w.points and not w.unheard]
        if not able:
            return
        worker = self.workers[name := rng.choice(able)]
        examples = worker.points.pop(0)
        try:
            self._keep(worker, examples)
        except (StorageLost, Deposed):
            del self.workers[name]
            self.world.told["worker found its driver deposed"] += 1
            return
        worker.unheard.append(examples)

    def _keep(self, worker: Worker, examples: int) -> None:
        """In a shared folder a worker asks by the lock whose run it is, and else its node does."""
        if worker.node is None:
            assert self.lock.holder is not None
            lock.check_holder(self.folder, self.lock.holder, worker.job.epoch)
            self.world.save(self, worker.job.trial, examples)
            return
        save_on_node(worker.node.out, examples)
        with self.world.sleeping(self, "in a send", 0.1):
            worker.node.send()

    def record(self, trial: TrialState, examples: int) -> dict[str, Any]:
        score = self.world.score(trial, examples)
        interval = [score - 0.02, score + 0.02]
        tasks = {name: {"value": score, "interval": interval} for name in self.engine.tasks.names}
        checkpoint = f"step-{examples:08d}"
        return {"examples": examples, "score": score, "tasks": tasks, "checkpoint": checkpoint}

    def _settle(self) -> None:
        assert self.mirror is not None
        try:
            self.mirror.settle()
            self.mirror.trouble = None
        except Superseded as error:
            if self is self.world.driver:
                raise Violation(f"a driver took itself for deposed: {error}") from None
            self.mirror.trouble = str(error)
            self.mirror.abandon()
        except StorageLost as error:
            self.mirror.trouble = str(error)

    def _drain(self) -> None:
        for name in sorted(self.workers):
            del self.workers[name]
            self.engine.paused(name)
        if self.engine.fatal is None and not self._deposed():
            self.engine._write("end", reason=self.engine.draining)
        if not self._deposed():
            self._close_mirror()
        if isinstance(self.engine.fatal, Deposed):
            self.world.say(f"driver {self.name}: {self.engine.fatal}")
        self.gone = True

    def _deposed(self) -> bool:
        return self.mirror is not None and self.mirror.deposed

    def _end(self) -> bool:
        if self.engine._write("end", reason="complete") is None:
            return False  # the disk did not take it: this driver leaves, and the next one ends
        self.gone = not self._close_mirror()
        return not self.gone

    def _close_mirror(self) -> bool:
        """Whether storage has everything. Another driver may take over in the middle of it."""
        if self.mirror is None:
            return True
        with self.world.sleeping(self, "at its end", 0.3):
            fault = self.mirror.close()
        if fault is not None and "another driver" in fault and self is self.world.driver:
            raise Violation(f"a driver took itself for deposed: {fault}")
        return fault is None


def save_on_node(out: Path, examples: int) -> None:
    """What a trial does in its own folder: the older state goes once the newer is there."""
    place = out / CHECKPOINTS / checkpoint_name(examples)
    for name in ("model/x", "state/x", MANIFEST):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"1")
    for other in checkpoints_in(out / CHECKPOINTS):
        if other != place:
            shutil.rmtree(other / "state", ignore_errors=True)
    with open(out / METRICS, "a", encoding="utf-8") as file:
        file.write(f"{examples}\n")


def points_of(job: Job) -> list[int]:
    settings = job.settings
    if at := settings.get("budget.eval_at"):
        return list(at)
    length, every = settings["budget.examples"], settings["budget.eval_every"]
    return [*range(every, length, every), length]
