"""A run's folder, read: the one way to open a run for those who only look at it.

Takes no lock, so a search may go on writing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.common.errors import Gathered, InputError
from model.evaluation.model_folder import SPEC
from model.tasks.task_set import TaskSet
from tuner.runs.folder import LEDGER, RUN, SPACE, model_folder, read_run, refuse_strange
from tuner.runs.ledger import read_events
from tuner.runs.request import SearchRequest
from tuner.runs.state import OVERALL, Event, RunState, Warn
from tuner.space.space import Space, load_space

REMEDY = "give the folder of a search, as runs/default"


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    folder: Path
    name: str
    version: str  # of Stockpot
    request: SearchRequest
    fingerprints: dict[str, Any]
    space: Space
    events: list[Event]
    state: RunState
    data: Path | None  # where the tasks' files are; None where the task set needs none
    notes: list[str]  # what could not be read

    @property
    def tasks(self) -> TaskSet:
        return self.space.task_set

    @property
    def goal(self) -> str:
        """The task that the search was for, or overall."""
        return self.state.goal if self.state.goal in self.tasks.names else OVERALL


def has_begun(folder: Path) -> bool:
    """Whether a search has written its first line there."""
    return (folder / LEDGER).is_file()


def require_runs(folders: Iterable[Path]) -> None:
    """Raise InputError with every folder that is not a search's, before anything is done there."""
    gathered = Gathered("RUN")
    for folder in folders:
        with gathered:
            if not folder.is_dir():
                raise InputError(str(folder), [f"no such folder; {REMEDY}"])
            # Whatever is there under its name is looked at when it is read.
            lacking = [name for name in (LEDGER, RUN, SPACE) if not os.path.lexists(folder / name)]
            if lacking:
                raise InputError(str(folder), [f"no {', '.join(lacking)} in it; {REMEDY}"])
    gathered.tell()


def open_run(
    folder: Path, warn: Warn = lambda line: None, *, data: Path | None = None
) -> FinishedRun:
    """`data` is where the tasks' files are now, if not where the run had them.

    Raises InputError for a folder that is not a search's. What can be done without is a note, of
    which `warn` is told as well.
    """
    folder, notes = Path(folder), list[str]()
    refuse_strange(folder)
    require_runs([folder])

    def note(line: str) -> None:
        notes.append(line)
        warn(line)

    events = read_events(folder / LEDGER, note)
    state = RunState.from_events(events, note)
    described = read_run(folder)
    request = SearchRequest.from_dict(described["request"])
    return FinishedRun(
        folder=folder,
        name=state.name or folder.name,
        version=str(described.get("stockpot", state.version)),
        request=request,
        fingerprints=dict(described["fingerprints"]),
        space=replace(load_space(str(folder / SPACE)), name=Path(request.space).stem),
        events=events,
        state=state,
        data=data or (Path(request.data) if request.data else None),
        notes=notes,
    )


def best_model(folder: Path, state: RunState) -> tuple[str, Path] | None:
    """The best trial whose model is still there, and where; None if there is none."""
    for trial in state.ranked():
        entry = trial.chosen(state.objectives)
        if entry is not None and "checkpoint" in entry:
            place = model_folder(folder, trial.id, entry["checkpoint"])
            if (place / SPEC).is_file():
                return trial.id, place
    return None
