"""What a search leaves when its trials are done: the soup, TensorBoard's extras, the report.

The search itself is safe by now, so whatever befalls one of these is told in a line, with the
command that makes it again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from model.errors import InputError
from tuner.console import SearchConsole
from tuner.engine import INTERRUPTED, TIME
from tuner.next_steps import next_steps
from tuner.plan import Plan
from tuner.run_state import RunState
from tuner.summary import Summary, summarise
from tuner.tensorboard import Board

T = TypeVar("T")
Heed = Callable[[], None]


@dataclass(frozen=True)
class SearchResult:
    folder: Path
    state: RunState
    summary: Summary
    stopped: str | None  # why it ended before all was done; None if it was not
    soup: dict[str, Any] | None = None  # as in soup.json

    @property
    def complete(self) -> bool:
        return self.stopped is None


def afterwards(
    plan: Plan,
    state: RunState,
    stopped: str | None,
    board: Board,
    console: SearchConsole,
    heed: Heed = lambda: None,
) -> SearchResult:
    """In this order, because the board and the page show the soup too.

    `heed` raises KeyboardInterrupt once somebody has asked for the end.
    """
    # Whoever interrupts a search does not want to wait for any of it.
    wanted = stopped in (None, TIME) and bool(state.ranked())
    soup = None
    try:
        if wanted and plan.how.soup:
            soup = cook_soup(plan.folder, console, heed)
        if wanted:
            board.finish()
        heed()
    except KeyboardInterrupt:
        stopped, wanted = INTERRUPTED, False
    summary = summarise(
        state,
        plan.folder,
        plan.space.task_set,
        max_examples=plan.max_examples,
        next_steps=next_steps(state, plan.folder, plan.how),
    )
    try:
        if wanted and plan.how.report:
            summary = with_report(plan.folder, summary, console)
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    return SearchResult(plan.folder, state, summary, stopped, soup)


def cook_soup(
    folder: Path, console: SearchConsole, heed: Heed = lambda: None
) -> dict[str, Any] | None:
    def log(line: str) -> None:  # one after each evaluation
        console.log(line)
        heed()

    def cooked() -> dict[str, Any]:
        from tuner.cook import cook
        from tuner.methods import QUICK

        return cook(folder, methods=QUICK, log=log, warn=console.warn)

    return attempt("soup", cooked, f"python -m tuner.soup {shlex.quote(str(folder))}", console)


def with_report(folder: Path, summary: Summary, console: SearchConsole) -> Summary:
    def written() -> Path:
        from tuner.report import write_report

        return write_report([folder], summaries={folder: summary})

    again = f"python -m tuner.report {shlex.quote(str(folder))}"
    page = attempt("report", written, again, console)
    return summary if page is None else replace(summary, places={**summary.places, "report": page})


def attempt(what: str, make: Callable[[], T], again: str, console: SearchConsole) -> T | None:
    try:
        return make()
    except KeyboardInterrupt:
        console.warn(f"no {what}: interrupted; to try again: {again}")
        raise
    except InputError as error:
        reason = error.faults[0]
    except Exception as error:
        told = next(iter(str(error).splitlines()), "")
        reason = f"{type(error).__name__}: {told}" if told else type(error).__name__
    console.warn(f"no {what}: {reason}; to try again: {again}")
    return None
