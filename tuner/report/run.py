"""A run as the report sees it: everything read once, from its folder alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model.cli.text import shown_path
from model.common.errors import InputError
from tuner.engine.conclusions import expected_of
from tuner.runs.open import FinishedRun, open_run
from tuner.scoring.summarise import summarise
from tuner.scoring.summary import Summary
from tuner.soup.record import SoupRecord, read_soup


@dataclass(frozen=True, kw_only=True)
class ReportedRun(FinishedRun):
    summary: Summary
    soup: SoupRecord | None

    @property
    def shown(self) -> str:
        return shown_path(self.folder)


def load_run(
    folder: Path, *, summary: Summary | None = None, data: Path | None = None
) -> ReportedRun:
    """Read a run's folder. `summary` saves computing it again; `data` is where the files are now.

    Raises InputError for a folder that is not a search's.
    """
    run = open_run(folder, data=data)
    soup = _soup(run)
    if summary is None:
        expected = expected_of(run.state, run.space, soup.single if soup else None)
        summary = summarise(run.state, run.folder, run.tasks, expected=expected)
    return ReportedRun(**vars(run), summary=summary, soup=soup)


def _soup(run: FinishedRun) -> SoupRecord | None:
    try:
        return read_soup(run.folder)
    except InputError as error:
        run.notes.append(f"{Path(error.where).name}: {error.faults[0]}")
        return None
