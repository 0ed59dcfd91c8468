"""One trial as Ray runs it: `model.train.train` behind Tune's interface, and no more.

A trial's folder holds all it needs to go on, so Ray's own checkpoints carry nothing: a trial that
was lost is started again with the same id and folder. The actor outlives its trials (torch,
transformers and the data load once), and every failure of the trial's own making comes back as a
result, so that the actor lives on.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray import tune

from model.common.errors import InputError
from model.common.run_files import METRICS
from model.common.untrusted import REMEDY, parse_json, read_regular
from tuner.engine.job import Job
from tuner.ray_backend.heartbeat import start_heartbeat
from tuner.ray_backend.resources import give_back_memory, keep_to_its_gpu
from tuner.ray_backend.staging import StagedInput, localize
from tuner.runs.folder import LEDGER
from tuner.runs.lock import Deposed, Holder, check_holder
from tuner.runs.schema import field_faults
from tuner.runs.state import DEVICE_MEMORY, INFRASTRUCTURE, MEMORY
from tuner.runs.storage.storage import Storage, StorageLost

RECORD = (
    "record"  # an evaluation or a heartbeat, as JSON: Ray flattens whatever is not a plain value
)
OUTCOME = "outcome"  # how the trial ended, as JSON
NOTES = "notes"  # what the driver should say about it, as JSON
MOST_REASON = 20_000  # characters
HEARTBEAT = 2.0  # seconds between results, so that a stop is never far away
PATIENCE = 90.0  # seconds for the worker of a driver that died to die as well


# What the operating system says when the machine, not the trial, is at fault: too many files open,
# a disk or a network file system that failed for a moment, rights that are not there yet.
OF_THE_MACHINE = {
    *(errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE, errno.ENOLCK),
    *(errno.EBUSY, errno.EAGAIN, errno.ETIMEDOUT, errno.ENXIO, errno.ENODEV, errno.EROFS),
    *(errno.ECONNRESET, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH),
}
OF_THE_DEVICE = ("cuda error", "hip error", "triton error [cuda]")
# A card, a driver and a torch that do not go together: so it would be in every process.
UNFIT_DEVICE = ("no kernel image", "unsupported toolchain", "invalid device function")


class WorkerUnfit(Exception):
    """The process or its machine cannot do the work; another one may."""


class SearchTrial(tune.Trainable):
    def setup(
        self,
        config: dict[str, Any],
        storage: Storage | None = None,
        staged: dict[str, StagedInput] | None = None,
    ) -> None:
        from model.training.prepare import ProcessCache
        from tuner.runs.storage.node_folder import NodeFolder

        start_heartbeat()
        self.cache = ProcessCache()
        self.node_folder = None if storage is None else NodeFolder(storage)
        self.staged = staged or {}
        self.records: Iterator[dict[str, Any]] | None = None
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Only remembers: what goes wrong in here, Ray takes badly."""
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        if self.records is not None:  # of a trial that was stopped in the middle
            self.records = None
            give_back_memory(device=False)
        self.job = Job.from_config(config)
        self.stopping = False
        self.notes: list[str] = []

    def where(self) -> tuple[str, int, dict[str, Any]]:
        """The host and process that this actor is, its node's address and its part of the GPUs."""
        import ray

        gpus = [str(device) for device in ray.get_gpu_ids()]
        address = ray.util.get_node_ip_address()
        machine = ray.get_runtime_context().get_node_id()
        more = {"address": address, "gpus": gpus, "machine": machine}
        return socket.gethostname(), os.getpid(), more

    def step(self) -> dict[str, Any]:
        try:
            if self.records is None:
                self.records = self._start()
            record = next(self.records, None)
        except Exception as error:
            self.records = None
            if not isinstance(error, StorageLost) and not self._sees_the_run():
                error = StorageLost(f"{self._run_folder()} is gone")
            found = failure(error)
            if found["kind"] == INFRASTRUCTURE:
                raise WorkerUnfit(found["reason"]) from None  # in a process of its own next time
        else:
            if record is not None:
                return {RECORD: json.dumps(record), NOTES: self._told()}
            found = {"finished": True}
        give_back_memory(device=found.get("kind") in (MEMORY, DEVICE_MEMORY))
        return {"done": True, OUTCOME: json.dumps(found), NOTES: self._told()}

    def _told(self) -> str:
        told = json.dumps(self.notes)
        self.notes.clear()  # the same list for as long as the run may add to it
        return told

    def _start(self) -> Iterator[dict[str, Any]]:
        import torch

        from model.config.parse import parse_settings
        from model.tasks.task_set import load_task_set
        from model.train import train

        torch.set_num_threads(self.job.threads)
        self._check_device()
        self.job = localize(self.job, self.staged)
        tasks = load_task_set(self.job.tasks)
        out = self._folder()
        records = train(
            parse_settings(self.job.settings, tasks),
            tasks,
            out=out,
            data=Path(self.job.data) if self.job.data else None,
            resume=True,
            stop=lambda: self.stopping,
            warn=self.notes.append,
            heartbeat=HEARTBEAT,
            cache=self.cache,
            may_save=self._check_driver,
            written=self._send,
        )
        if self.node_folder is not None:
            records = self.node_folder.follow(records)
        return with_unheard(records, out, self.job.known)

    def _check_device(self) -> None:
        """A GPU that Ray counts and torch cannot use is said once: its trials take the CPU."""
        import ray
        import torch

        keep_to_its_gpu()
        if ray.get_gpu_ids() and not torch.cuda.is_available():
            fault = f"torch sees no GPU on {socket.gethostname()}, so it trains on the CPU"
            self.notes.append(f"{fault}; look at nvidia-smi and torch.version.cuda there")

    def _folder(self) -> Path:
        """Where the trial trains: in the run's folder, or on this node with storage behind it."""
        if self.node_folder is not None:
            return self.node_folder.fetch(self.job.trial)
        if not self._sees_the_run():
            fault = f"{socket.gethostname()} does not see the run's folder {self._run_folder()}"
            remedy = "let --storage-path be a folder that all machines share, or s3://bucket/path"
            raise StorageLost(f"{fault}; {remedy}")
        out = Path(self.job.out)
        out.parent.mkdir(exist_ok=True)
        out.mkdir(exist_ok=True)  # so that the trial need not, should the run's folder go away now
        wait_until_free(out)
        return out

    def _send(self) -> None:
        """A checkpoint is on its way to storage while training goes on."""
        if self.node_folder is not None:
            self.node_folder.send()

    def _check_driver(self) -> None:
        """In a folder that machines share; what goes to storage is checked on its way there."""
        if self.job.driver is not None:
            check_holder(self._run_folder(), Holder(**self.job.driver), self.job.epoch)

    def _sees_the_run(self) -> bool:
        """Without its folder nothing can be saved, and whatever else fails, fails for that."""
        return self.node_folder is not None or os.path.exists(self._run_folder() / LEDGER)

    def _run_folder(self) -> Path:
        return Path(self.job.out).parent.parent

    def cleanup(self) -> None:
        if self.node_folder is not None:
            self.records = None  # lets go of the folder
            self.node_folder.close()

    def save(self, checkpoint_dir: str | None = None) -> Any:
        """Without Ray's copy of it, which is for a folder of the driver's that other nodes lack."""
        storage, self._storage = self._storage, None
        try:
            with tempfile.TemporaryDirectory(prefix="stockpot-save-") as folder:
                return super().save(folder)
        finally:
            self._storage = storage

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Called when the search pauses: the run saves itself in its own folder and ends."""
        self.stopping = True
        try:
            for _ in self.records or ():
                pass
        except Exception as error:
            if not isinstance(error, StorageLost | Deposed) and self._sees_the_run():
                raise
            # Else the search stops for that reason, and goes on from what storage has.
        self.records = None
        Path(checkpoint_dir, "trial.json").write_text(json.dumps({"trial": self.job.trial}))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing to do: `train` finds its own state."""

    def get_auto_filled_metrics(self, *args: Any, **options: Any) -> dict[str, Any]:
        filled: dict[str, Any] = super().get_auto_filled_metrics(*args, **options)
        filled.pop("config", None)  # long, and in the ledger already
        return filled


def with_unheard(
    records: Iterator[dict[str, Any]], out: Path, known: int
) -> Iterator[dict[str, Any]]:
    """A run's records, and before them those that it saved when nobody lived to hear them.

    An evaluation is on disk before it is told, and a run that goes on from there does not tell
    it again. A driver or a worker that dies in between would lose it, and with it the checkpoint.
    """
    first = next(records, None)  # only now does the run's list say what it really goes on from
    told = first["examples"] if first is not None and not first.get("heartbeat") else None
    for record in read_history(out):
        if record["examples"] > known and record["examples"] != told:
            yield record
    if first is not None:
        yield first
        yield from records


def read_history(out: Path) -> list[dict[str, Any]]:
    """The evaluations that a run has saved. InputError for a line that is none."""
    try:
        lines = read_regular(out / METRICS).splitlines()
    except FileNotFoundError:
        return []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = parse_json(line, finite=False)  # a norm of gradients may be infinite
            known = isinstance(record, dict) and "examples" in record
            faults = field_faults(record) if known else ["it has no 'examples'"]
        except ValueError as error:
            faults = [str(error)]
        if faults:
            fault = f"line {number} is not what an evaluation writes ({faults[0]})"
            raise InputError(str(out / METRICS), [f"{fault}; {REMEDY}"])
        records.append(record)
    return records


def wait_until_free(out: Path) -> None:
    """Workers outlive a driver that was killed by seconds, and one may still be in the folder."""
    from model.common.locks import file_lock
    from model.training.run_lock import LOCK

    if (out / LOCK).exists():
        with file_lock(out / LOCK, PATIENCE):
            pass


def failure(error: Exception) -> dict[str, Any]:
    """What the ledger says of a trial's failure."""
    from model.common.secrets import brief, redact
    from model.training.step import TrainingDiverged

    text = str(error).strip() or type(error).__name__
    kind = "disk" if is_out_of_space(error) else "code"
    if isinstance(error, TrainingDiverged):
        kind = "diverged"
    elif is_out_of_device_memory(error):
        kind = DEVICE_MEMORY
    elif is_out_of_memory(error):
        kind = MEMORY
    elif isinstance(error, StorageLost | Deposed):
        kind = "storage"
    elif kind == "code" and (is_of_the_machine(error) or is_end_of_the_device(error)):
        kind = INFRASTRUCTURE
    reason = (
        text
        if isinstance(error, TrainingDiverged | InputError | StorageLost | Deposed)
        else (f"{type(error).__name__}: {text}")
    )
    trace = "".join(traceback.format_exception(error)) if kind == "code" else ""
    return {
        "kind": kind,
        "reason": brief(reason, MOST_REASON),  # cut by the driver, which knows other secrets
        "traceback": redact(trace),
    }


def is_of_the_machine(error: Exception) -> bool:
    from model.training.run_lock import FolderInUse

    return isinstance(error, FolderInUse) or not OF_THE_MACHINE.isdisjoint(numbers_of(error))


def numbers_of(error: BaseException) -> set[int]:
    """The operating system's numbers in an error and in all that it came of.

    A reader of files makes its own error of an OSError, and libraries in Rust (safetensors,
    tokenizers) have the number in their text only.
    """
    found: set[int] = set()
    for each in causes_of(error):
        if isinstance(each, OSError) and each.errno is not None:
            found.add(each.errno)
        found.update(int(number) for number in re.findall(r"\(os error (\d{1,4})\)", str(each)))
    return found


def causes_of(error: BaseException) -> list[BaseException]:
    """An error, and those during whose handling it was raised; `from None` only hides them."""
    found: list[BaseException] = []
    rest: list[BaseException | None] = [error]
    while rest:
        each = rest.pop()
        if each is not None and each not in found:
            found.append(each)
            rest += [each.__context__, each.__cause__]
    return found


def is_out_of_device_memory(error: Exception) -> bool:
    """As every device's allocator and CUDA's libraries say it, and that of the host does not."""
    text = str(error).lower()
    full = "out of memory" in text or "cublas_status_alloc_failed" in text
    return isinstance(error, RuntimeError) and full


def is_end_of_the_device(error: Exception) -> bool:
    """After a fault on the GPU itself all that the process asks of it fails the same way, so the
    next trial needs another process. A card too old for this torch is no such fault."""
    text = str(error).lower()
    return (
        isinstance(error, RuntimeError)
        and any(said in text for said in OF_THE_DEVICE)
        and not any(said in text for said in UNFIT_DEVICE)
    )


def is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error).lower()


def is_out_of_space(error: Exception) -> bool:
    if not {errno.ENOSPC, errno.EDQUOT}.isdisjoint(numbers_of(error)):
        return True
    return "no space left on device" in str(error).lower()  # as pyarrow says it
