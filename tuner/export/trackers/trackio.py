"""To Trackio's local database: a run for the search and one for each trial, all in one group.

The files are an artifact of the search's run.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tuner.export.trackers.destination import Destination, Files, needed
from tuner.export.trackers.records import Record, Snapshot


class Trackio(Destination):
    takes_files = True

    def __init__(self, folder: Path | None, project: str) -> None:
        if folder is not None:
            os.environ["TRACKIO_DIR"] = str(folder.absolute())  # read when it is imported
        needed("trackio", "trackio")
        from trackio.cas import stage_blob_into_project
        from trackio.sqlite_storage import SQLiteStorage

        # Not `trackio.init`, which gives a run an id of its own.
        self.storage = SQLiteStorage
        self.stage = stage_blob_into_project
        self.project = project

    def place(self) -> str:
        show = shlex.join(["trackio", "show", "--project", self.project])
        return f"project '{self.project}', to be seen with: {show}"

    def write(self, now: Snapshot, changed: Iterable[Record]) -> None:
        self._remove_others(now)
        for record in (now.search, *changed):
            self._write(record, now.group)
        if now.search.points:
            self._write_files(now)

    def _remove_others(self, now: Snapshot) -> None:
        """Trials that the ledger does not have any more, as after a `--force`."""
        known = {now.search.key, *(trial.key for trial in now.trials.values())}
        there = self.storage.get_all_run_configs(self.project)
        for key, config in there.items():
            if config.get("_Group") == now.group and key not in known:
                self.storage.delete_run(self.project, str(config.get("trial")), run_id=key)

    def _write(self, record: Record, group: str) -> None:
        """Anew: a point that was evaluated again has another value. A record without points has
        no place in Trackio yet."""
        # Its own names for what it groups and sorts by.
        own = {"_Group": group, "_Created": iso(record.began)}
        self.storage.delete_run(self.project, record.name, run_id=record.key)
        points = [point.values for point in record.points]
        if points:
            points[-1] = {**points[-1], **record.scores}
        self.storage.bulk_log(
            project=self.project,
            run=record.name,
            metrics_list=points,
            steps=[point.step for point in record.points],
            timestamps=[iso(point.time) for point in record.points],
            config={**record.params, **record.tags, "outcome": record.outcome, **own},
            log_ids=[f"{record.key}-{point.step}" for point in record.points],
            run_id=record.key,
        )

    def _write_files(self, now: Snapshot) -> None:
        """As one artifact in its last version. With the run that was written anew its link went."""
        name = f"search-{now.search.key[:8]}"
        manifest = list(self._staged({**now.files, **now.model}))
        there = self.storage.get_artifact_manifest(self.project, name, None)
        self.storage.commit_artifact_version(
            project=self.project,
            name=name,
            type="search",
            description=None,
            manifest=manifest,
            metadata=None,
            aliases=None,
            run_name=now.search.name,
            run_id=now.search.key,
            overwrite=there is not None and there["manifest"] != manifest,
        )

    def _staged(self, files: Files) -> Iterator[dict[str, Any]]:
        """Where Trackio keeps contents by their sums; what is there stays."""
        with tempfile.TemporaryDirectory() as place:
            for name, content in sorted(files.items()):
                path = content if isinstance(content, Path) else Path(place, "file")
                if isinstance(content, bytes):
                    path.write_bytes(content)
                digest, size = self.stage(path, self.project)
                yield {"path": name, "digest": digest, "size": size}


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
