"""To an Aim repository: a run for the search and one for each trial, in one experiment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from tuner.export.destination import Destination, digest_of, needed
from tuner.export.records import Record, Snapshot

STATE = "stockpot_state"
LENGTH = 24  # of a hash of Aim's


class Aim(Destination):
    def __init__(self, repository: str | None, project: str) -> None:
        self.aim = needed("aim", "aim")
        self.repository = repository or "."
        self.repo = self.aim.Repo.from_path(self.repository, init=not self._is_there())
        self.project = project

    def _is_there(self) -> bool:
        repo = self.aim.Repo
        return bool(repo.is_remote_path(self.repository) or repo.exists(self.repository))

    def place(self) -> str:
        return f"{self.repository}, to be seen with: aim up --repo {self.repository}"

    def write(self, now: Snapshot, changed: Iterable[Record]) -> None:
        for record in (now.search, *changed):
            self._write(record, now.group)

    def _write(self, record: Record, group: str) -> None:
        """A step that is there already takes the value that it is given now."""
        digest = digest_of([asdict(record), group])
        run = self._open(record.key[:LENGTH])
        try:
            if run.get(STATE) == digest:
                return
            run.name = record.name
            run["hparams"] = dict(record.params)
            run["stockpot"] = {**record.tags, "group": group, "outcome": record.outcome}
            for point in record.points:
                for name, value in point.values.items():
                    run.track(value, name=name, step=point.step)
            last = record.points[-1].step if record.points else 0
            for name, value in record.scores.items():
                run.track(value, name=name, step=last)
            run[STATE] = digest
        finally:
            run.close()

    def _open(self, own: str) -> Any:
        quiet: dict[str, Any] = {
            "repo": self.repo,
            "system_tracking_interval": None,
            "log_system_params": False,
            "capture_terminal_logs": False,
        }
        if self.repo.run_exists(own):
            # The lock that a killed export left is nobody's.
            return self.aim.Run(own, force_resume=True, **quiet)
        with hash_is(own):
            return self.aim.Run(experiment=self.project, **quiet)


@contextmanager
def hash_is(own: str) -> Iterator[None]:
    """Aim lets nobody choose a run's hash, and without ours a run that a kill cut short would be
    found by nobody."""
    from aim.sdk import base_run

    module: Any = base_run
    before = module.generate_run_hash
    module.generate_run_hash = lambda *_: own
    try:
        yield
    finally:
        module.generate_run_hash = before
