"""A run as the report sees it: everything read once, from its folder alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from model.errors import InputError
from model.tasks import TaskSet
from tuner.asked import Asked
from tuner.dev_predictions import OVERALL
from tuner.ledger import Event, read_events
from tuner.reporting.soup_file import Soup, read_soup
from tuner.run_folder import LEDGER, SPACE, read_run
from tuner.run_state import RunState
from tuner.space import Space, load_space
from tuner.summary import Summary, summarise


@dataclass(frozen=True, kw_only=True)
class Run:
    folder: Path
    name: str
    version: str
    asked: Asked
    prints: dict[str, Any]  # fingerprints
    space: Space
    events: list[Event]
    state: RunState
    summary: Summary
    soup: Soup | None
    data: Path | None
    notes: list[str] = field(default_factory=list)  # what could not be read

    @property
    def shown(self) -> str:
        """The folder as short as can be copied."""
        here = Path.cwd()
        return str(self.folder.relative_to(here) if here in self.folder.parents else self.folder)

    @property
    def tasks(self) -> TaskSet:
        return self.space.task_set

    @property
    def goal(self) -> str:
        """The task that the search was for, or overall."""
        return self.state.goal if self.state.goal in self.tasks.names else OVERALL


def load_run(folder: Path, *, summary: Summary | None = None, data: Path | None = None) -> Run:
    """Read a run's folder. `summary` saves reckoning it again; `data` is where the files are now.

    Raises InputError for a folder that is not a search's.
    """
    notes: list[str] = []
    events = read_events(folder / LEDGER, notes.append)
    state = RunState.from_events(events, notes.append)
    described = read_run(folder)
    asked = Asked.from_dict(described["asked"])
    space = replace(load_space(str(folder / SPACE)), name=Path(asked.space).stem)
    if summary is None:
        summary = summarise(
            state, folder, space.task_set, max_examples=asked.max_examples or space.examples
        )
    soup = _attempt(lambda: read_soup(folder), notes)
    return Run(
        folder=folder,
        name=state.name or folder.name,
        version=str(described.get("stockpot", state.version)),
        asked=asked,
        prints=dict(described["fingerprints"]),
        space=space,
        events=events,
        state=state,
        summary=summary,
        soup=soup,
        data=data or (Path(asked.data) if asked.data else None),
        notes=notes,
    )


def _attempt(read: Callable[[], Soup | None], notes: list[str]) -> Soup | None:
    try:
        return read()
    except InputError as error:
        notes.append(f"{Path(error.where).name}: {error.faults[0]}")
        return None
