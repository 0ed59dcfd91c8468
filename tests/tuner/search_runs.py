"""Searches for tests: small ones, in this process or as the real command, and trials that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from model.common.files import sha256_of
from tests.forks import Fork
from tests.tuner.moments import Moment, is_held
from tests.tuner.without_ray import without_ray
from tuner.ray_backend.trainable import SearchTrial
from tuner.runs.folder import LEDGER
from tuner.runs.ledger import encode, read_events
from tuner.runs.state import RunState
from tuner.search.__main__ import main

PATIENCE = 600.0  # seconds after which it hangs, however busy the machine: nothing takes so long
ROOT = Path(__file__).parent.parent.parent
SMALL = (
    *("--encoder", "tiny"),
    *("--max-examples", "480"),
    *("--set", "budget.eval_rows=40"),
    *("--no-soup", "--no-report"),  # which have tests of their own
)
# Every start draws the same configurations and trains them in full.
FIXED = (*SMALL, *("--sampler", "random"), "--no-early-stopping", *("--keep", "20"))

TRIALS = 6
SAME = (*FIXED, "--num-samples", str(TRIALS), "--seed", "5")


def settings(**more: Any) -> dict[str, Any]:
    """For `run_search`: as SMALL, silent, and in one worker, whose imports take longest of all."""
    small = {"encoder": "tiny", "max_examples": 480, "set": {"budget.eval_rows": 40}}
    bare = {"soup": False, "report": False, "quiet": True}
    one = {"max_concurrent_trials": 1, "cpus_per_trial": 1}
    return {**small, "num_samples": 3, **bare, **one, **more}


def command(storage: Path | str, *flags: str, workers: int = 1) -> list[str]:
    start = [sys.executable, "-m", "tuner.search", "--storage-path", str(storage)]
    return [*start, "--max-concurrent-trials", str(workers), "--cpus-per-trial", "1", *flags]


def run_here(storage: Path | str, *flags: str) -> subprocess.CompletedProcess[str]:
    """The command in this process and without Ray, whose start would take longest."""
    words = command(storage, *flags)
    with without_ray(), redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(words[3:])
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


@dataclass
class Started:
    """The real command under way, in a process group of its own as a terminal has it."""

    process: subprocess.Popen[str] | Fork
    folder: Path
    since: int  # events that were there before

    @classmethod
    def start(
        cls,
        storage: Path,
        *flags: str,
        name: str = "default",
        url: str | None = None,
        first: str = "",
        hold: Sequence[Moment] = (),
        workers: int = 1,
        ray: bool = True,
    ) -> Started:
        """`url`: where the run is mirrored to, with `storage` as its folder here.

        `first`: code that runs before the command does, in the same process. `hold`: when the
        driver is to stop, until `go_on`. `workers`: each imports torch, which takes longest of all.
        Without `ray` it trains in a fork of this process.
        """
        folder = storage / name
        since = len(events(folder))
        words = command(url or storage, *flags, "--name", name, workers=workers)
        if hold:
            first += f"\nfrom tests.tuner.moments import Moment, hold_at\nhold_at(*{[*hold]!r})\n"
        if not ray:

            def work() -> int:
                exec(first, {})
                with without_ray():
                    return main(words[3:])

            return cls(Fork(work), folder, since)
        if first:
            begin = f"{first}\nfrom tuner.search.__main__ import main\n"
            words[1:3] = ["-c", f"{begin}import sys; sys.exit(main(sys.argv[1:]))"]
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return cls(process, folder, since)

    def new(self, event: str | None = None) -> list[dict[str, Any]]:
        return [e for e in events(self.folder)[self.since :] if event in (None, e["event"])]

    def wait_for(self, condition: Callable[[], Any]) -> bool:
        """True when the condition holds, False when the command ended before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, self.end()
            time.sleep(0.02)
        return True

    def wait_until_held(self) -> None:
        assert self.wait_for(lambda: is_held(self.process.pid)), self.finish()[1]

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def signal(self, number: signal.Signals, group: bool = False) -> None:
        (os.killpg if group else os.kill)(self.process.pid, number)

    def finish(self) -> tuple[int, str]:
        try:
            said, _ = self.process.communicate(timeout=PATIENCE)
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


def assert_whole(folder: Path, undisturbed: Path) -> None:
    """Nothing lost, nothing twice, nothing open, and the same to the byte."""
    state = state_of(folder)
    assert len(state.trials) == TRIALS
    assert state.counts() == {"open": 0, "finished": TRIALS, "stopped": 0, "failed": 0}
    closings = [e["trial"] for e in events(folder) if e["event"] == "finished"]
    assert sorted(closings) == sorted(state.trials)
    study = open_study(folder)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * TRIALS
    other = state_of(undisturbed)
    assert [t.params for t in state.trials.values()] == [t.params for t in other.trials.values()]
    assert curves_of(folder) == curves_of(undisturbed)
    assert weights_of(folder) == weights_of(undisturbed)


def open_study(folder: Path) -> Any:
    """The study as anybody would open it."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    return optuna.load_study(study_name=folder.name, storage=storage)


def is_alive(pid: int) -> bool:
    from tuner.runs.lock import start_of

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
        yield record if record.get("heartbeat") else {**record, "score": float("nan")}


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
