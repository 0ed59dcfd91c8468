"""A run whose folder is mirrored to storage.

The driver works in a folder of its own machine, and storage follows it: the ledger within seconds,
all else when the search stops. Each trial's files come to storage from the node that trains it
(`tuner.runs.storage.node_folder`). On another machine `--resume` fetches the run first; at the end
everything that is read later (predictions, the models that were kept) is brought into the driver's
folder.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from model.common.errors import InputError
from model.common.files import remove_folder
from model.common.run_files import CONFIG, METRICS, SUMMARY
from model.common.untrusted import inside, read_regular, shown
from model.training.checkpoint import (
    MANIFEST,
    DamagedCheckpoint,
    checkpoints_in,
    is_checkpoint,
    verify,
)
from tuner.runs.folder import (
    LEDGER,
    MODEL,
    RUN,
    SPACE,
    TEACHER,
    TEACHER_TEXTS,
    TRIALS,
    read_run,
    run_folder,
)
from tuner.runs.ledger import MOST_BYTES, parse, read_state
from tuner.runs.lock import Deposed, start_of
from tuner.runs.request import ExecutionOptions
from tuner.runs.retention import CheckpointStore, wanted
from tuner.runs.state import RunState, Warn
from tuner.runs.storage.fence import Superseded, why_unfenced
from tuner.runs.storage.mirror import ALIVE, BEAT, Mirror, is_over, is_signed, read_sign
from tuner.runs.storage.storage import Storage, StorageLost

AT_ONCE = 8  # files fetched in parallel
LIGHT = (CONFIG, METRICS, SUMMARY)  # of a trial, beside its predictions


# --- before the search --------------------------------------------------------------------------


def storage_of(options: ExecutionOptions, name: str) -> Storage | None:
    """Where the run of this name is mirrored; None if its folder is the only one."""
    return None if options.remote is None else Storage(options.remote).inside(name)


def fetch_run(options: ExecutionOptions, name: str) -> None:
    """Before a run goes on: its ledger and settings, if storage has more of them than we have."""
    storage, folder = storage_of(options, name), run_folder(options.storage_path.absolute(), name)
    if storage is None or not options.resume:
        return
    Storage(options.remote or "").check()
    there = storage.read(LEDGER)
    here = whole_lines(folder / LEDGER)
    if there is None:
        if any((folder / TRIALS).glob("*/checkpoints")):
            fault = f"storage has nothing of this run, and its trials are in {folder}"
            raise InputError(storage.shown, [f"{fault}; resume with a --storage-path of that"])
        return
    if there.startswith(here) and there != here:
        folder.mkdir(parents=True, exist_ok=True)
        there_too = storage.files(str(Path(TEACHER).parent))
        taught = [file for file in (TEACHER, TEACHER_TEXTS) if file in there_too]
        for file in (RUN, SPACE, *taught, LEDGER):  # the ledger last: with it, it is a run
            storage.get(file, folder / file)
    elif not here.startswith(there) and not is_signed(storage.read(ALIVE), here, there):
        fault = f"its ledger and the one in {folder} tell different stories"
        remedy = "move that folder away to go on with storage's, or give another --local-path"
        raise InputError(storage.shown, [f"{fault}; {remedy}"])


def whole_lines(ledger: Path) -> bytes:
    try:
        data = read_regular(ledger, MOST_BYTES)
    except OSError:
        return b""
    return data[: parse(data).whole]


def open_storage(options: ExecutionOptions, name: str) -> Storage | None:
    """The run's storage, proved to work; never that of a run that exists or is at work."""
    storage = storage_of(options, name)
    if storage is None:
        return None
    Storage(options.remote or "").check()
    if not options.resume:
        if storage.read(LEDGER) is not None:
            remedy = "go on with the same command and --resume, or give another --name"
            raise InputError(storage.shown, [f"holds a search already; {remedy}"])
    first = storage.read(ALIVE)
    if (rival := rival_of(storage)) is not None:
        fault = f"a driver is at work on it (process {rival['pid']} on {shown(str(rival['host']))})"
        raise InputError(storage.shown, [f"{fault}; wait for it, or end it"])
    return replace(storage, judged=now if is_over(now := storage.read(ALIVE)) else first)


def rival_of(storage: Storage, patience: float = 3 * BEAT) -> dict[str, object] | None:
    """The driver whose sign of life still changes. One that was killed leaves one that does not."""
    first = storage.read(ALIVE)
    found = read_sign(first)
    if found is None or found["ended"]:
        return None
    if found["host"] == socket.gethostname() and start_of(int(str(found["pid"]))) is None:
        return None
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        time.sleep(min(1.0, patience / 3))
        now = storage.read(ALIVE)
        if is_over(now):
            return None
        if now != first:
            return found
    return None


# --- during the search --------------------------------------------------------------------------


class RemoteCheckpointStore(CheckpointStore):
    """The checkpoints of closed trials in storage. What goes, goes when the ledger that says so
    has been mirrored: a driver that is lost in between must find its open trials whole."""

    def __init__(self, storage: Storage, mirror: Mirror) -> None:
        self.storage = storage
        self.mirror = mirror
        self._files: dict[str, list[str]] = {}
        for path in storage.files(TRIALS):
            self._files.setdefault(path.split("/")[1], []).append(path)

    def trouble(self) -> str | None:
        return self.mirror.trouble

    def checkpoints(self, trial: str) -> list[str]:
        start = f"{TRIALS}/{trial}/checkpoints/"
        files = [path for path in self._files.get(trial, []) if path.startswith(start)]
        return sorted(filter(is_checkpoint, {path[len(start) :].split("/")[0] for path in files}))

    def closed(self, trial: str) -> None:
        try:
            self._files[trial] = list(self.storage.files(f"{TRIALS}/{trial}"))
        except StorageLost as error:
            self.mirror.trouble = str(error)
        self.drop_states(trial)

    def drop_states(self, trial: str) -> None:
        self._remove(trial, [p for p in self._files.get(trial, []) if p.split("/")[4:5] == STATE])

    def delete(self, trial: str, checkpoints: list[str]) -> None:
        gone = [f"{TRIALS}/{trial}/checkpoints/{name}/" for name in checkpoints]
        files = self._files.get(trial, [])
        self._remove(trial, [p for p in files if p.startswith(tuple(gone))])

    def _remove(self, trial: str, paths: list[str]) -> None:
        if paths:
            self.mirror.remove(paths)
            self._files[trial] = [p for p in self._files[trial] if p not in set(paths)]


STATE = ["state"]


def forget_unknown(storage: Storage, state: RunState, warn: Warn) -> None:
    """Remove what trials sent whose creation did not come to storage before its driver was lost: no
    new trial of that name may go on from another one's checkpoints."""
    unknown = [path for path in storage.files(TRIALS) if path.split("/")[1] not in state.trials]
    if unknown:
        names = ", ".join(sorted({path.split("/")[1] for path in unknown}))
        warn(f"{storage.shown}: the ledger does not know of {names}; begun again")
        storage.remove(sorted(unknown, key=lambda path: not path.endswith(MANIFEST)))


class RemoteRun:
    def __init__(self, storage: Storage, folder: Path, warn: Warn) -> None:
        self.storage = storage
        self.folder = folder
        self.warn = warn
        self.mirror = Mirror(storage, folder)

    def store(self, state: RunState) -> CheckpointStore:
        forget_unknown(self.storage, state, self.warn)
        return RemoteCheckpointStore(self.storage, self.mirror)

    def bring_home(self, state: RunState, keep: int) -> None:
        """Every trial's predictions and figures, and the models that the search kept."""
        try:
            self.mirror.settle()
            self.fetch_models(wanted(state, keep))
        except StorageLost as error:
            self.warn(f"{error}; the summary lacks what could not be fetched")

    def fetch_models(self, chosen: dict[str, set[str]]) -> None:
        there = self.storage.files(TRIALS)
        models = {f"{trial}/checkpoints/{name}" for trial in chosen for name in chosen[trial]}
        needed = [path for path in there if is_wanted(path, models)]
        places = {path: inside(self.folder, path) for path in needed}
        new = [path for path in needed if not is_of_size(places[path], there[path])]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda path: self.storage.get(path, places[path]), new))
        for place in (self.folder / TRIALS).glob("*/checkpoints"):
            for checkpoint in checkpoints_in(place):
                self._check(checkpoint, models)

    def _check(self, checkpoint: Path, models: set[str]) -> None:
        if checkpoint.relative_to(self.folder / TRIALS).as_posix() not in models:
            remove_folder(checkpoint)  # fetched by an earlier driver, and surplus since
            return
        try:
            verify(checkpoint, "model/")
        except DamagedCheckpoint as fault:
            self.warn(f"{self.storage.shown}: {checkpoint.name} is damaged ({fault}); left out")
            remove_folder(checkpoint)


def is_wanted(path: str, models: set[str]) -> bool:
    """Of trials/<id>/...: what is read when the search is over."""
    parts = path.split("/")
    if len(parts) <= 3:
        return parts[-1] in LIGHT and len(parts) == 3
    if parts[2] == "predictions":
        return True
    return "/".join(parts[1:4]) in models and parts[3] != "state" and parts[4:5] != STATE


def is_of_size(file: Path, size: int) -> bool:
    return file.exists() and file.stat().st_size == size


@contextmanager
def follow(
    storage: Storage | None, folder: Path, warn: Warn, aside: bytes = b""
) -> Iterator[RemoteRun | None]:
    """Mirror the folder to storage for as long as the block runs, and once more at its end.

    `aside`: what was cut off the ledger when it was opened.
    """
    if storage is None:
        yield None
        return
    if fault := why_unfenced(storage):
        warn(fault)
        storage = replace(storage, unfenced=True)
    driver = uuid.uuid4().hex
    remote = RemoteRun(replace(storage, driver=driver), folder, warn)
    sign = {"host": socket.gethostname(), "pid": os.getpid(), "driver": driver}
    try:
        remote.mirror.start(sign, aside)
    except Superseded as error:
        raise InputError(storage.shown, [f"{error}; wait for it, or end it"]) from None
    try:
        yield remote
    except Deposed:
        remote.mirror.abandon()
        raise
    finally:
        if (fault := remote.mirror.close()) is not None:
            warn(f"{fault}; storage is behind {folder}, which has everything")


# --- after the search ---------------------------------------------------------------------------


def fetch_model(storage: Storage, checkpoint: str, folder: Path) -> Path:
    """The model of a checkpoint (trials/<id>/checkpoints/<name>), into `folder`; where it then is.

    Raises StorageLost, and DamagedCheckpoint for one that is not whole.
    """
    model = f"{checkpoint}/{MODEL}"
    for path in (f"{checkpoint}/{MANIFEST}", *storage.files(model)):
        storage.get(path, inside(folder, path))
    verify(inside(folder, checkpoint), f"{MODEL}/")
    return inside(folder, model)


def fetch(url: str, name: str, folder: Path, warn: Warn) -> RunState:
    """A run's folder from storage: all but the checkpoints that nothing needs."""
    storage = Storage(url).inside(name)
    there = [path for path in storage.files() if not path.startswith((f"{TRIALS}/", ALIVE))]
    if LEDGER not in there:
        raise InputError(storage.shown, ["holds no search; check the URL and the run's name"])
    for path in sorted(there, key=lambda path: path == LEDGER):
        storage.get(path, inside(folder, path))
    state = read_state(folder / LEDGER, warn)
    keep = int(read_run(folder)["request"]["keep"])
    RemoteRun(storage, folder, warn).fetch_models(wanted(state, keep))
    return state
