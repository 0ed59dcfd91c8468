"""To Weights & Biases: a run for the search and one for each trial, all in one group.

With a folder the runs are written there as W&B's offline mode does it, each anew and whole, and
`wandb sync` sends them. Without one they go where the settings of W&B say: a run is resumed by its
id, and steps that W&B has already are not sent again.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from model.common.files import atomic_folder, remove_folder
from model.common.untrusted import read_regular
from tuner.export.trackers.destination import Destination, Files, needed
from tuner.export.trackers.records import Record, Snapshot

STEP = {"search": "finished_trials", "trial": "examples"}
OWNER = "stockpot-run"  # a file in an offline run's folder: the key of its search


class Wandb(Destination):
    takes_files = True

    def __init__(self, folder: Path | None, project: str) -> None:
        self.wandb = needed("wandb", "wandb")
        if folder is None and os.environ.get("WANDB_MODE", "") in ("offline", "dryrun"):
            folder = Path(os.environ.get("WANDB_DIR", "."))
        self.folder = folder
        self.project = project
        self.search: tuple[Record, Files] | None = None  # as it was sent last

    def place(self) -> str:
        if self.folder is None:
            return f"project '{self.project}' of W&B"
        place = self.folder / "wandb"
        return f"{place}, to be sent with: wandb sync {shlex.quote(str(place))}/offline-run-*"

    def write(self, now: Snapshot, changed: Iterable[Record]) -> None:
        own_files: Files = {**now.files, **now.model}
        files = {now.search.key: own_files}
        records = list(changed)
        if self.search != (now.search, own_files):
            records.append(now.search)
        how = {"resume": "allow"} if self.folder is None else {"mode": "offline"}
        with tempfile.TemporaryDirectory() as place:
            for record in records:
                own = Path(place) / record.key
                own.mkdir()
                self._send(record, now.group, files.get(record.key, {}), own, how)
            if self.folder is not None and records:
                self.wandb.teardown()  # its own process may still be writing
                for record in records:
                    self._keep(record, Path(place) / record.key, now.search.key)
        self._remove_others(now)
        self.search = now.search, own_files

    def _keep(self, record: Record, place: Path, search: str) -> None:
        assert self.folder is not None
        (made,) = (place / "wandb").glob("offline-run-*")
        (self.folder / "wandb").mkdir(parents=True, exist_ok=True)
        with atomic_folder(self.folder / "wandb" / folder_of(record)) as folder:
            (folder / OWNER).write_text(search)  # first: by it a kill's remains are known
            copy_plain(made, folder)

    def _remove_others(self, now: Snapshot) -> None:
        """Offline runs of trials that the ledger does not have any more, as after a `--force`, and
        what a kill left."""
        if self.folder is None:
            return
        known = {folder_of(record) for record in (now.search, *now.trials.values())}
        for owner in (self.folder / "wandb").glob(f"*/{OWNER}"):
            if owner.parent.name in known:
                continue
            if read_regular(owner) == now.search.key.encode():
                remove_folder(owner.parent)

    def _send(
        self, record: Record, group: str, files: Files, place: Path, how: dict[str, str]
    ) -> None:
        kind = record.tags["kind"]
        # Neither this process nor this machine is what the run is about.
        quiet = self.wandb.Settings(
            console="off",
            silent=True,
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
            x_disable_stats=True,
            x_save_requirements=False,
            program="stockpot",
            host="",
        )
        run = self.wandb.init(
            project=self.project,
            id=record.key,
            name=record.name,
            group=group,
            job_type=kind,
            dir=str(place),
            config={**record.params, "stockpot": record.tags},
            tags=[kind, record.tags["status"]],
            settings=quiet,
            **how,
        )
        first = run.step  # of a run that is resumed, the one after its last
        run.define_metric(STEP[kind])
        run.define_metric("*", step_metric=STEP[kind])
        for point in record.points:
            if point.step >= first:
                values = {STEP[kind]: point.step, "_timestamp": point.time, **point.values}
                run.log(values, step=point.step)
        # What counts of a curve is its last point, of a search its soup's scores.
        last = record.points[-1].values if record.points else {}
        run.summary.update({**last, **record.scores, "outcome": record.outcome})
        self._add_files(run, files)
        run.finish(exit_code=int(record.outcome == "failed"))

    def _add_files(self, run: Any, files: Files) -> None:
        for name, content in files.items():
            path = Path(run.dir) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, path)
            else:
                path.write_bytes(content)
            run.save(str(path), base_path=run.dir, policy="now")


def folder_of(record: Record) -> str:
    """As W&B names its own."""
    began = time.strftime("%Y%m%d_%H%M%S", time.gmtime(record.began))
    return f"offline-run-{began}-{record.key}"


def copy_plain(source: Path, folder: Path) -> None:
    """Files for links: what they lead to is going away. No logs, which tell of this machine."""
    for path in source.rglob("*"):
        inside = path.relative_to(source)
        if path.is_file() and inside.parts[0] != "logs":
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            (folder / inside).write_bytes(path.read_bytes())
