"""To a repository of Aim's: a run for the search and one for each trial, all of one experiment."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tuner.export.trackers.destination import Destination, needed
from tuner.export.trackers.records import Record, Snapshot


class Aim(Destination):
    def __init__(self, folder: Path | None, project: str) -> None:
        self.aim = needed("aim", "aim")
        from aim.sdk.index_manager import RepoIndexManager

        self.folder = (folder or Path()).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.repo = self.aim.Repo.from_path(str(self.folder), init=True)
        self.index = RepoIndexManager.get_index_manager(self.repo).index
        self.project = project

    def place(self) -> str:
        show = shlex.join(["aim", "up", "--repo", str(self.folder)])
        return f"experiment '{self.project}', to be seen with: {show}"

    def write(self, now: Snapshot, changed: Iterable[Record]) -> None:
        known = {hash_of(record) for record in (now.search, *now.trials.values())}
        for name in self._of_search(now.search.key) - known:
            self._remove(name)
        for record in (now.search, *changed):
            self._write(record, now)

    def _of_search(self, key: str) -> set[str]:
        return {run.hash for run in self.repo.iter_runs() if self._owner(run) == key}

    def _owner(self, run: Any) -> object:
        return (run.get("stockpot") or {}).get("run")

    def _remove(self, name: str) -> None:
        if not self.repo.delete_run(name):
            raise OSError(f"Aim cannot remove a run in {self.folder}; if `aim up` is on, end it")
        # Else one of the same name, which may come later, would be taken for the removed one.
        self.repo.structured_db.get_session().expunge_all()

    def _write(self, record: Record, now: Snapshot) -> None:
        """Anew: a point that was evaluated again has another value."""
        name = hash_of(record)
        chunk = Path(self.repo.path, "meta", "chunks", name)
        self.repo._delete_local_run_data(name)  # and not its row, which has its name
        # Aim names new runs itself, but goes on with one whose folder is there.
        chunk.mkdir(parents=True)
        type(self.repo)._all_run_hashes.cache_clear()
        run = self.aim.Run(
            name,
            repo=self.repo,
            experiment=self.project,
            system_tracking_interval=None,
            log_system_params=False,
            capture_terminal_logs=False,
        )
        run.name = record.name
        run["hparams"] = record.params
        run["stockpot"] = {
            **record.tags,
            "run": now.search.key,
            "group": now.group,
            "outcome": record.outcome,
            "began": record.began,
            "ended": record.ended,
        }
        for point in record.points:
            for metric, value in point.values.items():
                run.track(value, name=metric, step=point.step)
        last = record.points[-1].step if record.points else 0
        for metric, value in record.scores.items():
            run.track(value, name=metric, step=last)
        run.close()
        self.index(name)  # by which its own readers find a run


def hash_of(record: Record) -> str:
    """As long as Aim's own."""
    return record.key[:24]
