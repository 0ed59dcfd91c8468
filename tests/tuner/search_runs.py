"""Searches for tests: small ones, in this process or as the real command, and trials that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.files import sha256_of
from tuner.ledger import encode, read_events
from tuner.run_folder import LEDGER
from tuner.run_state import RunState
from tuner.trial import SearchTrial

ROOT = Path(__file__).parent.parent.parent
SMALL = (
    *("--encoder", "tiny"),
    *("--max-examples", "480"),
    *("--set", "budget.eval_rows=40"),
    *("--no-soup", "--no-report"),  # which have tests of their own
)
# Every start draws the same configurations and trains them in full.
FIXED = (*SMALL, *("--sampler", "random"), "--no-early-stopping", *("--keep", "20"))


def settings(**more: Any) -> dict[str, Any]:
    """For `run_search`: as SMALL, and silent."""
    small = {"encoder": "tiny", "max_examples": 480, "set": {"budget.eval_rows": 40}}
    bare = {"soup": False, "report": False, "quiet": True}
    return {**small, "num_samples": 3, **bare, **more}


def command(storage: Path | str, *flags: str) -> list[str]:
    start = [sys.executable, "-m", "tuner.search", "--storage-path", str(storage)]
    return [*start, "--max-concurrent-trials", "2", *flags]


def run_command(storage: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(storage, *flags), cwd=ROOT, capture_output=True, text=True, timeout=240
    )


@dataclass
class Started:
    """The real command under way, in a process group of its own as a terminal has it."""

    process: subprocess.Popen[str]
    folder: Path
    since: int  # events that were there before

    @classmethod
    def start(
        cls, storage: Path, *flags: str, name: str = "default", url: str | None = None
    ) -> Started:
        """`url`: where the run is mirrored to, with `storage` as its folder here."""
        folder = storage / name
        since = len(events(folder))
        process = subprocess.Popen(
            command(url or storage, *flags, "--name", name),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return cls(process, folder, since)

    def new(self, event: str | None = None) -> list[dict[str, Any]]:
        return [e for e in events(self.folder)[self.since :] if event in (None, e["event"])]

    def wait_for(self, condition: Callable[[], Any], seconds: float = 120) -> bool:
        """True when the condition holds, False when the command ended before."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, self.end()
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def signal(self, number: signal.Signals, group: bool = False) -> None:
        (os.killpg if group else os.kill)(self.process.pid, number)

    def finish(self, seconds: float = 200) -> tuple[int, str]:
        try:
            said, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            said = self.end()
        return self.process.returncode, said

    def end(self) -> str:
        self.process.kill()
        return "it hung: " + self.process.communicate()[0]


def events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "ledger.jsonl"
    return read_events(path, lambda line: None) if path.exists() else []


def state_of(folder: Path) -> RunState:
    return RunState.from_events(events(folder), lambda line: None)


def weights_of(folder: Path) -> dict[str, tuple[str, str]]:
    """trial -> the name and sha256 of its best checkpoint's tensors."""
    found = {}
    for trial in state_of(folder).trials.values():
        best = trial.best()
        assert best is not None
        model = folder / "trials" / trial.id / "checkpoints" / best["checkpoint"] / "model"
        sums = [sha256_of(model / name) for name in ("model.safetensors", "heads.safetensors")]
        found[trial.id] = (best["checkpoint"], " ".join(sums))
    return found


def curves_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    return {
        trial.id: [(entry["examples"], entry["score"]) for entry in trial.evaluations]
        for trial in state_of(folder).trials.values()
    }


def open_study(folder: Path) -> Any:
    """The study as anybody would open it."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    return optuna.load_study(study_name=folder.name, storage=storage)


def is_alive(pid: int) -> bool:
    from tuner.lock import start_of

    return start_of(pid) is not None


class FaultyTrial(SearchTrial):
    """Some trials go wrong in their own way; the others train as always."""

    faults: dict[str, str] = {}

    def _start(self) -> Iterator[dict[str, Any]]:
        import torch

        fault = self.faults.get(self.job.trial) or self.faults.get("all")
        if fault == "raises":
            raise ZeroDivisionError(f"by {self.job.trial}")
        if fault == "memory":
            torch.empty(1 << 50, dtype=torch.uint8)  # more than any machine has
        if fault == "diverges":
            rate = {"optim.learning_rate": 1e30}
            self.job = replace(self.job, settings={**self.job.settings, **rate})
        records = super()._start()
        return nan_scores(records) if fault == "not a number" else records


def nan_scores(records: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for record in records:
        yield record if record.get("pulse") else {**record, "score": float("nan")}


class RaisingTrial(FaultyTrial):
    faults = {"all": "raises"}


class MixedTrial(FaultyTrial):
    faults = {"t0001": "raises", "t0002": "diverges", "t0003": "memory", "t0004": "not a number"}


def aim(run: Path, task: str) -> None:
    """The same run as if it had been for one task."""
    events = read_events(run / LEDGER)
    for event in events:
        if event["event"] == "run":
            event["objectives"] = [task]
    (run / LEDGER).write_bytes(b"".join(encode(event) for event in events))
