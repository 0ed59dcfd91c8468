"""One history of a search, driven by a seed: the real engine, ledger, retention, mirror and resume.

Made up are the clock, the disk, storage and the workers, which train nothing and report the score
that follows from a trial's settings. Whatever goes wrong, the seed decides; after every event it is
checked that nothing is lost, double, deleted too early or written by two.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from model.common.errors import InputError
from model.common.files import atomic_folder, remove_folder
from model.training.checkpoint import MANIFEST, checkpoints_in
from tuner.engine.promotion import Promotion
from tuner.engine.study import rebuild_study
from tuner.engine.study_file import StudyFile
from tuner.runs.folder import LEDGER, LOCK, RUN
from tuner.runs.ledger import read_events
from tuner.runs.lines import parse
from tuner.runs.lock import RunLock
from tuner.runs.retention import wanted
from tuner.runs.state import RunState, TrialState
from tuner.runs.storage.storage import StorageLost
from tuner.space.space import Space

from .disk import Crash, Disk, in_place
from .driver import Driver
from .plan import KEEP, MAXIMUM, MOST_LOSSES, MOST_STEPS, TRIALS, Clock, Plan, Violation
from .store import Bucket, conditional


@dataclass
class World:
    seed: int
    space: Space
    folder: Path
    quiet: bool = False  # nothing goes wrong: what all others are compared with
    told: Counter[str] = field(default_factory=Counter)
    history: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # What is searched follows from one, what goes wrong from the other.
        self.rng = random.Random(f"faults {self.seed}")
        self.plan = Plan.of(random.Random(f"plan {self.seed}"), self.quiet)
        self.clock = Clock()
        self.disk = Disk(self.rng, self.told)
        self.bucket = Bucket(self.rng, self.told)
        self.bucket.landed = self._signed
        self.saved: dict[str, list[int]] = {}  # trial -> examples of what its worker has saved
        self.losses: Counter[str] = Counter()
        self.machine = 0
        self.acknowledged: list[dict[str, Any]] = []  # by the ledger that counts
        self.driver: Driver | None = None
        self.owner: Driver | None = None  # the last one that began
        self.asleep: list[Driver] = []
        self.hosts = 0
        self.faults = self.plan.faults

    def say(self, line: str) -> None:
        self.history.append(f"{self.clock.now - 1_700_000_000:7.1f}  {line}")

    def score(self, trial: TrialState, examples: int) -> float:
        ground = random.Random(f"{sorted(trial.settings.items(), key=str)} {trial.seed}").random()
        return round(ground * (1 - 0.5 / (1 + examples / 100)), 6)

    # --- the whole of it --------------------------------------------------------------------

    def run(self) -> RunState:
        with ExitStack() as stack:
            stack.enter_context(in_place(self.disk))
            stack.enter_context(conditional())
            for module in ("tuner.runs.ledger", "tuner.runs.lock", "tuner.engine.engine"):
                stack.enter_context(mock.patch(f"{module}.time", self.clock))
            # Hosts of their own on a shared folder that has no locks: each sees the others' signs
            # of life only, and whoever is awake counts on when the clock says so.
            hosts = SimpleNamespace(gethostname=lambda: f"host-{self.hosts}")
            stack.enter_context(mock.patch("tuner.runs.lock.socket", hosts))
            threads = SimpleNamespace(Thread=NoThread, Event=threading.Event)
            stack.enter_context(mock.patch("tuner.runs.lock.threading", threads))
            for module in ("tuner.runs.ledger", "tuner.runs.lock"):
                stack.enter_context(mock.patch(f"{module}.lock_file", lambda file: True))
            try:
                return self._run()
            finally:
                for driver in [*self.asleep, *([self.driver] if self.driver else [])]:
                    driver.close()

    def _run(self) -> RunState:
        for _ in range(MOST_STEPS):
            self.clock.now += self.rng.expovariate(0.2)
            try:
                if self.asleep and self.rng.random() < 0.2:
                    self._stir(self.rng.choice(self.asleep))
                elif self.driver is None:
                    self._begin()
                elif self._goes_wrong():
                    self._fault(self.driver)
                elif self.bucket.under_way and self.rng.random() < 0.2:
                    self.bucket.arrive()
                elif self.driver.step(self.rng):
                    self._check_end(self.driver)
                    return self._after_the_end(self.driver)
            except Crash:
                self._crashed()
            if self.driver is not None and self.driver.gone:
                self._leave(self.driver)
            self._check()
        raise Violation(f"the search did not end within {MOST_STEPS} steps")

    def _after_the_end(self, driver: Driver) -> RunState:
        """Nobody holds the lock, and whoever slept may still act."""
        driver.close()
        for sleeper in list(self.asleep):
            with self._undisturbed():
                for _ in range(3):
                    sleeper.train_unheard(self.rng)
            self._wake(sleeper)
        self._check()
        self.check_stored(driver)
        return driver.engine.state

    def _goes_wrong(self) -> bool:
        if not self.faults or self.rng.random() > 0.06:
            return False
        self.faults -= 1
        return True

    def _begin(self) -> None:
        place = self.folder / f"machine-{self.machine}"
        place.mkdir(exist_ok=True)
        self.hosts += 1
        self.clock.meanwhile = self._turn_over
        try:
            driver = Driver(self, place)
        except InputError as error:
            self._awake_after_all(error)
            return
        except (StorageLost, OSError) as error:
            self.say(f"a driver could not begin: {error}")
            return
        finally:
            self.clock.meanwhile = lambda: None
        self.driver = self.owner = driver
        self.bucket.owner = driver.name
        self.say(f"driver {driver.name} began, with {len(driver.engine.state.trials)} trials")

    def _turn_over(self) -> None:
        """While a new driver waits for a sign of life, the one that sleeps may give it."""
        if self.asleep and not self.plan.remote and self.rng.random() < 0.005:
            sleeper = self.asleep[-1]
            with suppress(OSError):
                sleeper.lock.check()
                sleeper.lock.beat()

    def _awake_after_all(self, error: InputError) -> None:
        """The only reason to refuse a driver: the one before it only slept, and goes on."""
        if not self.asleep or "which is at work" not in str(error):
            raise Violation(f"a driver was refused: {error}")
        self.told["driver woke in time"] += 1
        self.driver = self.asleep.pop()
        self.say(f"driver {self.driver.name} goes on")

    def _stir(self, driver: Driver) -> None:
        """One that sleeps wakes, maybe where nobody else is at work, or only a worker of it does.
        If it is still the owner, it wakes before the next one begins."""
        if driver is self.owner or self.rng.random() < 0.4:
            with self._undisturbed():
                driver.train_unheard(self.rng)
        else:
            self._wake(driver)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """What the disk does is for those who are at work."""
        before = self.disk.dies_in, self.disk.fails_in
        self.disk.dies_in = self.disk.fails_in = None
        yield
        self.disk.dies_in, self.disk.fails_in = before

    def _write_late(self, driver: Driver) -> None:
        """A write that is under way for long, maybe until the run is somebody else's."""
        self.bucket.delays = self.rng.randint(1, 3)
        self.bucket.delayed = self.rng.choice([None, LEDGER, LEDGER, RUN])
        if self.rng.random() < 0.7:
            driver._settle()
            self._take_over(driver, wakes=self.rng.random() < 0.5)

    def _rival(self, driver: Driver) -> None:
        """Somebody starts a second driver while this one is at work."""
        self.told["second driver"] += 1
        self.hosts += 1
        self.clock.meanwhile = driver.lock.beat
        try:
            RunLock(driver.folder / LOCK, self.say).acquire()
        except InputError as error:
            self.say(f"refused: {error}")
        except OSError as error:  # the disk's doing
            self.say(f"a second driver could not begin: {error}")
        else:
            raise Violation("two drivers at work have the same lock")
        finally:
            self.clock.meanwhile = lambda: None

    def _crashed(self) -> None:
        self.say("the driver's machine lost its power")
        if self.driver is not None:
            self.driver.close()
        self.driver = None
        self.disk.crash()

    def _leave(self, driver: Driver) -> None:
        self.say(f"driver {driver.name} left ({driver.engine.draining})")
        driver.close()
        self.driver = None

    # --- what goes wrong --------------------------------------------------------------------

    def _fault(self, driver: Driver) -> None:
        kinds = ["kill", "kill", "disk", "worker", "worker", "hang", "twice", "drain", "sleep"]
        if self.plan.remote:
            kinds += ["storage", "answer", "machine", "late"]
        else:
            kinds += ["rival"]
        kind = self.rng.choice(kinds)
        if kind == "kill":
            self.disk.dies_in = self.rng.randint(0, 12)
        elif kind == "disk":
            self.disk.fails_in = self.rng.randint(0, 6)
        elif kind == "storage":
            self.bucket.errors = self.rng.randint(1, 4)
        elif kind == "answer":
            self.bucket.losses, self.bucket.silence = 1, self.rng.randint(0, 2)
        elif kind == "late":
            self._write_late(driver)
        elif kind == "rival":
            self._rival(driver)
        elif kind == "drain":
            self.told["driver told to stop"] += 1
            driver.engine.drain("interrupted")
        elif kind in ("worker", "hang"):
            self._lose_worker(driver, hangs=kind == "hang")
        elif kind == "twice":
            self._answer_again(driver)
        elif kind in ("sleep", "machine"):
            self._take_over(driver, wakes=kind == "sleep")
        self.say(f"fault: {kind}")

    def _lose_worker(self, driver: Driver, *, hangs: bool) -> None:
        able = [n for n in driver.workers if self.losses[n] < MOST_LOSSES]
        if not able:
            return
        name = self.rng.choice(able)
        self.losses[name] += 1
        self.told["worker hung" if hangs else "worker killed"] += 1
        if hangs:
            driver.workers[name].hangs = True
        else:
            del driver.workers[name]
            driver.engine.lost(name, None)

    def _answer_again(self, driver: Driver) -> None:
        """An answer that comes twice, or after its trial has ended."""
        state = driver.engine.state
        heard = [event for event in state.reports if event["trial"] in state.trials]
        if heard:
            event = self.rng.choice(heard)
            trial = state.trials[event["trial"]]
            again = driver.record(trial, event["examples"])
            self.told["late answer" if trial.status != "open" else "answer twice"] += 1
            driver.engine.evaluated(trial.id, again)
            if trial.status != "open":
                driver.engine.finished(trial.id)

    def _take_over(self, driver: Driver, *, wakes: bool) -> None:
        """Another driver goes on while this one sleeps, for a while or for ever."""
        self.driver = None
        if wakes:
            self.told["driver slept"] += 1
            self.asleep.append(driver)
        else:
            self.told["machine lost"] += 1
            driver.close()
        if self.plan.remote:
            self.machine += 1
            # What came to storage, and is the same story.
            there = parse(self.bucket.there.get(LEDGER, (b"", 0))[0]).events
            same = [a == b for a, b in zip(self.acknowledged, there, strict=False)]
            count = same.index(False) if False in same else len(same)
            self.acknowledged = self.acknowledged[:count]

    @contextmanager
    def sleeping(self, driver: Driver, where: str, chance: float) -> Iterator[None]:
        """Maybe it sleeps between two of its calls to storage, and another one goes on."""

        def meanwhile() -> None:
            self.told[f"driver slept {where}"] += 1
            self._take_over(driver, wakes=True)
            bucket = self.bucket
            before = bucket.errors, bucket.losses, bucket.delays
            bucket.errors = bucket.losses = bucket.delays = 0
            with self._undisturbed():
                self._begin()
                if (other := self.driver) is not None:
                    other._settle()
                    for _ in range(self.rng.randint(0, 6)):
                        if not other.gone and not other.engine.done:
                            other.step(self.rng)
            bucket.errors, bucket.losses, bucket.delays = before

        if driver is self.driver and self.faults and self.rng.random() < chance:
            self.faults -= 1
            self.bucket.sleep = self.rng.randint(0, 12), meanwhile
        try:
            yield
        finally:
            self.bucket.sleep = None

    def _wake(self, driver: Driver) -> None:
        """It does what it was about to do, until it finds out."""
        self.say(f"driver {driver.name} wakes")
        driver.between = self.rng.random() < 0.5
        with self._undisturbed():
            for _ in range(8):
                if driver.gone or driver.step(self.rng):
                    break
                self._check()
        if driver.gone:
            self.told["driver found itself deposed"] += 1
            self.asleep.remove(driver)
            driver.close()

    # --- what must hold ---------------------------------------------------------------------

    def ledger_events(self) -> list[dict[str, Any]]:
        path = self.folder / f"machine-{self.machine}" / "ledger.jsonl"
        with self.disk.watched():
            return read_events(path, self.say) if path.exists() else []

    def acknowledge(self, driver: Driver, event: dict[str, Any]) -> None:
        if driver is self.driver or (self.driver is None and driver not in self.asleep):
            self.acknowledged.append(event)

    def _check(self) -> None:
        driver = self.driver
        if driver is None or self.disk.dead:
            return
        state = driver.engine.state
        if len(driver.engine.live) > self.plan.slots:
            raise Violation(f"{len(driver.engine.live)} trials run in {self.plan.slots} slots")
        if len(state.search_trials) > TRIALS:
            raise Violation("more configurations than were asked for")
        for trial in state.trials.values():
            if trial.examples > (trial.length or MAXIMUM):
                raise Violation(f"{trial.id} trained on {trial.examples} examples")
            saved = self.saved.get(trial.id, [])
            if trial.status == "open" and saved and not self.has(trial.id, saved[-1], "state"):
                raise Violation(f"the state of {trial.id}, which is open, was deleted")
        for name, checkpoints in wanted(state, KEEP).items():
            for checkpoint in checkpoints:
                if not self.has(name, int(checkpoint.removeprefix("step-")), "model"):
                    raise Violation(f"{checkpoint} of {name}, which is wanted, was deleted")
        if self.rng.random() < 0.05:
            self.check_ledger(driver)

    def check_ledger(self, driver: Driver) -> None:
        state = driver.engine.state
        events = self.ledger_events()
        known = self.acknowledged
        if events[: len(known)] != known:
            first = next(n for n, e in enumerate(known) if events[n : n + 1] != [e])
            raise Violation(f"line {first + 1} was acknowledged, and is lost: {known[first]}")
        if (again := RunState.from_events(events, self.say)) != state:
            raise Violation("the driver's state does not follow from its ledger")
        engine = driver.engine
        rebuilt = Promotion(again, engine.stages, engine.limits.reduction)
        if rungs_of(rebuilt) != rungs_of(engine.promotion):
            raise Violation("the rungs are not those that follow from the ledger")

    def _check_end(self, driver: Driver) -> None:
        self.check_ledger(driver)
        state = driver.engine.state
        if state.open_trials:
            raise Violation("trials are open at the end")
        if any(trial.status == "failed" for trial in state.trials.values()):
            raise Violation("a trial failed for faults that were none of its own")
        trained, planned = sum(trained_of(state)), self.plan.stages.cost()
        if trained > planned:
            raise Violation(f"{trained} examples were trained where {planned} were planned")
        if isinstance(driver.study, StudyFile):
            driver.study.finish()
            if shown(driver.study.path) != shown(None, state, self.space):
                raise Violation("the study file is not what follows from the ledger")
        self.check_stored(driver)

    def check_stored(self, driver: Driver) -> None:
        if self.plan.remote and self.bucket.there["ledger.jsonl"][0] != driver.ledger_bytes():
            raise Violation("storage has another ledger than the driver at the end")

    # --- checkpoints ------------------------------------------------------------------------

    def place(self, trial: str, examples: int, part: str) -> str:
        return f"trials/{trial}/checkpoints/step-{examples:08d}/{part}"

    def has(self, trial: str, examples: int, part: str) -> bool:
        place = self.place(trial, examples, part)
        if self.plan.remote:
            return f"{place}/x" in self.bucket.there
        return (self.folder / f"machine-{self.machine}" / place / "x").exists()

    def save(self, driver: Driver, trial: str, examples: int) -> None:
        """What a worker does before it tells: the older state goes once the newer is there."""
        if driver is not self.owner:
            raise Violation(f"a worker of the deposed driver {driver.name} saved {trial}")
        older = [n for n in self.saved.get(trial, []) if n != examples]
        machine = self.folder / f"machine-{self.machine}"
        target = (machine / self.place(trial, examples, "model")).parent
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(target) as partial:
            for part in ("model", "state"):
                (partial / part).mkdir()
                with self.disk.open_file(partial / part / "x", "wb") as file:
                    file.write(b"1")
        self.saved[trial] = sorted({*older, examples})
        for before in older:
            remove_folder(machine / self.place(trial, before, "state"))

    def _signed(self, path: str) -> None:
        """In storage a checkpoint is saved with its manifest, whoever hears of that."""
        if path.endswith(f"/{MANIFEST}"):
            _, trial, _, name, _ = path.split("/")
            examples = int(name.removeprefix("step-"))
            if self.has(trial, examples, "model") and self.has(trial, examples, "state"):
                self.saved[trial] = sorted({*self.saved.get(trial, []), examples})


class NoThread:
    """Whoever is awake is told when to count on."""

    def __init__(self, **given: Any) -> None:
        pass

    def start(self) -> None:
        pass

    def join(self) -> None:
        pass


def trained_of(state: RunState) -> Iterator[int]:
    """Examples of each trial's training."""
    return (trial.examples for trial in state.trials.values())


def rungs_of(promotion: Promotion) -> list[Any]:
    """All that decides who goes on."""
    ladder = promotion.ladder
    return [ladder.default, ladder.start, ladder.order, *map(asdict, ladder.levels)]


def shown(path: Path | None, state: RunState | None = None, space: Space | None = None) -> Any:
    """A study's trials: of a file, or made anew."""
    if path is not None:
        backend = JournalFileBackend(str(path), lock_obj=JournalFileOpenLock(str(path)))
        study = optuna.load_study(study_name="simulated", storage=JournalStorage(backend))
    else:
        assert state is not None and space is not None
        study = rebuild_study(state, space)
    return [(t.number, t.state, t.params, t.values, t.intermediate_values) for t in study.trials]


def outcome(state: RunState) -> list[Any]:
    """What is the same however often a search was disturbed."""
    return [
        (t.id, t.params, t.status, t.level, [(e["examples"], e["score"]) for e in t.evaluations])
        for t in state.trials.values()
    ]


@contextmanager
def fresh(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def simulate(seed: int, space: Space, folder: Path) -> tuple[World, Violation | None]:
    """The history of one seed, and what it violated."""
    with fresh(folder / str(seed)) as place:
        world = World(seed, space, place)
        try:
            state = world.run()
            kept = sorted(p.name for p in place.glob("*/trials/*/checkpoints") if checkpoints_in(p))
            world.say(f"ended, {len(kept)} trials with checkpoints")
        except Violation as violation:
            return world, violation
    if world.plan.is_decided:
        with fresh(folder / f"{seed}-quiet") as place:
            quiet = World(seed, space, place, quiet=True).run()
        if outcome(quiet) != outcome(state):
            return world, Violation("the end is not that of an undisturbed search")
    return world, None
