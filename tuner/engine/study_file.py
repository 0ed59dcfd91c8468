"""The study as a file that Optuna's dashboard and API open while the search goes on.

    storage = JournalStorage(JournalFileBackend("<run>/study.journal"))
    study = optuna.load_study(study_name="<name>", storage=storage)

It is a copy of the ledger for others to read, written anew at each start of a driver and never
read back. If it cannot be written, the search goes on without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend, JournalFileOpenLock

from model.common.files import write_atomic
from tuner.engine.study import SearchSpace, bring_up, freeze, lost, place_of, quiet, rebuild_study
from tuner.runs.state import RunState, TrialState, Warn


class StudyFile:
    def __init__(self, path: Path, state: RunState, space: SearchSpace, warn: Warn = print) -> None:
        self.path = Path(path)
        self.state = state
        self.space = space
        self.warn = warn
        self._warned = False
        self._storage: JournalStorage | None = None
        self._attempt(None)

    def update(self, trial: TrialState) -> None:
        """Bring one trial up to what the ledger's state says."""
        self._attempt(trial)

    def rewrite(self) -> None:
        """The rungs are others now, and with them what counts as trained in full."""
        self._storage = None
        self._attempt(None)

    def finish(self) -> None:
        """The search is over: what might have gone on will not."""
        if len(self.state.rungs) > 1:
            for trial in self.state.trials.values():
                self.update(trial)

    def _attempt(self, trial: TrialState | None) -> None:
        try:
            if self._storage is None:
                with quiet():
                    self._write_anew()
            elif trial is not None:
                self._write(self._storage, trial)
        # A full disk, a line torn by it, a lock that somebody else took, a file that has gone: all
        # are mended by writing the file anew when there is next something to say.
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            self._storage = None
            if not self._warned:
                self._warned = True
                self.warn(
                    f"{self.path}: cannot be written ({error}); the search goes on, and the file "
                    "is made again from the ledger as soon as it can be"
                )

    def _write_anew(self) -> None:
        backend = Lines()
        rebuild_study(self.state, self.space, JournalStorage(backend))
        lines = (json.dumps(line, separators=(",", ":")) + "\n" for line in backend.lines)
        write_atomic(self.path, "".join(lines))
        # A driver that was killed while it wrote leaves Optuna's lock, on which everybody would
        # wait for half a minute.
        self.path.with_name(self.path.name + ".lock").unlink(missing_ok=True)
        self._storage = JournalStorage(NoFsyncBackend(self.path))
        self._study = self._storage.get_all_studies()[0]._study_id
        self._count = len(self._storage.get_all_trials(self._study, deepcopy=False))

    def _write(self, storage: JournalStorage, trial: TrialState) -> None:
        place = place_of(trial)
        if place is None:  # no name of ours
            return
        wanted = freeze(trial, self.space, self.state)
        if place >= self._count:
            for _ in range(self._count, place):
                storage.create_new_trial(self._study, lost())
            storage.create_new_trial(self._study, wanted)
            self._count = place + 1
            return
        key = storage.get_trial_id_from_study_id_trial_number(self._study, place)
        bring_up(storage, key, storage.get_trial(key), wanted)


class NoFsyncBackend(JournalFileBackend):
    """Optuna's file without the wait until it is on disk: after a crash it is made anew."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, JournalFileOpenLock(str(path))
        super().__init__(str(path), self.lock)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        self.lock.acquire()
        try:
            with open(self.path, "ab") as file:
                file.write(lines.encode("utf-8"))
        finally:
            self.lock.release()


class Lines(BaseJournalBackend):
    """A journal in memory, so that the file appears at once and whole."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        # As from a file: Optuna takes numbers as keys where JSON has text.
        return [json.loads(json.dumps(line)) for line in self.lines[log_number_from:]]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.lines.extend(logs)
