"""What a search leaves when its trials are done: the soup, TensorBoard's extras, the report.

The search itself is safe by now, so whatever befalls one of these is told in a line, with the
command that makes it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from model.cli.invocation import command
from model.common.errors import InputError
from tuner.engine.conclusions import expected_of
from tuner.engine.engine import INTERRUPTED, TIME
from tuner.export.tensorboard.board import Board
from tuner.runs.lock import Deposed
from tuner.runs.state import RunState, TrialState
from tuner.runs.trial_table import trial_table, write_trials
from tuner.scoring.summarise import summarise
from tuner.scoring.summary import Summary
from tuner.search.next_steps import next_steps
from tuner.search.plan import SearchPlan
from tuner.search.terminal import SearchConsole
from tuner.soup.record import SoupRecord

if TYPE_CHECKING:
    import pandas

    from tuner.predict.predictor import Predictor
    from tuner.search.on_workers import MakeRunner

T = TypeVar("T")
RaiseIfInterrupted = Callable[[], None]
Mine = Callable[[], None]  # raises `Deposed` once another driver has the run


@dataclass(frozen=True)
class SearchResult:
    """The outcome of a search. `print(result.summary.text())` is what the command prints."""

    folder: Path
    state: RunState
    summary: Summary
    stopped: str | None  # why it ended before all was done; None if it was not
    soup: SoupRecord | None = None

    def __repr__(self) -> str:
        counts = self.state.outcomes_text()
        return f"SearchResult({str(self.folder)!r}: {counts or 'no trials'}; best: {self.best})"

    @property
    def complete(self) -> bool:
        return self.stopped is None

    @property
    def best(self) -> TrialState | None:
        """The best finished trial."""
        return self.state.best_trial()

    def predictor(self, model: str | None = None) -> Predictor:
        """What answers: the model that the search recommends, or another of the run's by name.

        >>> result.predictor().predict("sentiment", ["never dull, often moving"])
        """
        from tuner.predict.predictor import load_predictor

        return load_predictor(self.folder, model)

    def dataframe(self) -> pandas.DataFrame:
        """A row per trial, as in trials.parquet: `tuner.runs.trial_table` says what is in it."""
        return trial_table(self.state).to_pandas()


def finish(
    plan: SearchPlan,
    state: RunState,
    stopped: str | None,
    board: Board,
    console: SearchConsole,
    raise_if_interrupted: RaiseIfInterrupted = lambda: None,
    runner: MakeRunner | None = None,
    mine: Mine = lambda: None,
) -> SearchResult:
    """In this order, because the board and the page show the soup too.

    `raise_if_interrupted` raises KeyboardInterrupt once somebody has asked for the end. `runner`
    makes who evaluates averages, if not this process. `mine` is asked before anything is written:
    a driver may have slept, and all of it be its successor's.
    """
    # Whoever interrupts a search does not want to wait for any of it.
    wanted = stopped in (None, TIME) and bool(state.ranked())
    soup = None
    try:
        if wanted and plan.options.soup:
            with console.phase("making the soup"):
                soup = attempt_soup(plan.folder, console, raise_if_interrupted, runner, mine)
        if wanted:
            with console.phase("writing TensorBoard's files"):
                mine()
                board.finish()
        raise_if_interrupted()
    except KeyboardInterrupt:
        stopped, wanted = INTERRUPTED, False
    with console.phase("scoring the best on rows that did not choose it"):
        summary = summarise(
            state,
            plan.folder,
            plan.space.task_set,
            expected=expected_of(state, plan.space, soup.single if soup else None)
            if wanted
            else None,
            next_steps=next_steps(state, plan.folder),
        )
    mine()
    write = partial(write_trials, plan.folder, state)
    attempt("table of trials", write, command("report", plan.folder), console)
    try:
        if wanted and plan.options.report:
            with console.phase("writing the report"):
                summary = with_report(plan.folder, summary, console, mine)
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    return SearchResult(plan.folder, state, summary, stopped, soup)


def attempt_soup(
    folder: Path,
    console: SearchConsole,
    raise_if_interrupted: RaiseIfInterrupted = lambda: None,
    runner: MakeRunner | None = None,
    mine: Mine = lambda: None,
) -> SoupRecord | None:
    def log(line: str) -> None:  # one after each evaluation
        console.log(line)
        raise_if_interrupted()

    def made() -> SoupRecord:
        from tuner.soup.make import make_soup
        from tuner.soup.methods import QUICK

        return make_soup(
            folder, methods=QUICK, log=log, warn=console.warn, runner=runner, mine=mine
        )

    return attempt("soup", made, command("soup", folder), console)


def with_report(
    folder: Path, summary: Summary, console: SearchConsole, mine: Mine = lambda: None
) -> Summary:
    def written() -> Path:
        from tuner.report.write import write_report

        return write_report([folder], summaries={folder: summary}, mine=mine)

    page = attempt("report", written, command("report", folder), console)
    return summary if page is None else replace(summary, places={**summary.places, "report": page})


def attempt(what: str, make: Callable[[], T], again: str, console: SearchConsole) -> T | None:
    try:
        return make()
    except KeyboardInterrupt:
        console.warn(f"no {what}: interrupted; to try again: {again}")
        raise
    except Deposed:
        raise
    except InputError as error:
        reason = error.faults[0]
    except Exception as error:
        told = next(iter(str(error).splitlines()), "")
        reason = f"{type(error).__name__}: {told}" if told else type(error).__name__
    console.warn(f"no {what}: {reason}; to try again: {again}")
    return None
