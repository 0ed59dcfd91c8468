"""To a database of Optuna's: the run's study, as `--study-storage` keeps it while a search runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from model.common.errors import InputError
from tuner.engine.database.mirror import StudyMirror
from tuner.engine.database.place import EXAMPLE, StudyPlace
from tuner.export.trackers.destination import Destination
from tuner.export.trackers.records import Record, Snapshot
from tuner.runs.open import open_run


class OptunaStudy(Destination):
    def __init__(self, url: str | None, run: Path) -> None:
        if url is None:
            raise InputError("--to optuna", [f"needs --out URL, as {EXAMPLE}"])
        self.url = StudyPlace(url, "--out")
        self.run = run
        self.name = ""

    def place(self) -> str:
        return f"study '{self.name}' in {self.url.shown}"

    def write(self, now: Snapshot, changed: Iterable[Record]) -> None:
        """All trials: how one is shown may change with what happens to others."""
        self.name = now.state.name or now.search.key
        mirror = StudyMirror(self.url, open_run(self.run).space, now.search.key)
        mirror.write(now.state)
        mirror.close()  # no connection is held between two looks
