"""The run as TensorBoard shows it: `tensorboard --logdir <run>`. docs/tensorboard.md explains it.

One way for the data: an event of the ledger goes to `Board.apply`, which writes what follows from
it. A board that is made anew from the whole ledger is the same, byte for byte, as the one that was
written while the search went on.

    <run>/events.out.tfevents.*              the HParams experiment: all columns, all metrics
    <run>/trials/<id>/events.out.tfevents.*  a trial: its settings, curves, outcome, pictures
    <run>/board/<soup>/                      soups and ensembles, as rows to compare with
    <run>/board/embeddings/                  dev sentences for the projector
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from model.cli.invocation import command
from model.common.files import remove_folder
from model.common.secrets import brief
from tuner.export.tensorboard.columns import Columns, score_cells
from tuner.export.tensorboard.event_files import (
    BOARD,
    HISTORY,
    PICTURES,
    EventFile,
    files_in,
    scalars,
    text,
)
from tuner.export.tensorboard.hparams import (
    EXAMPLES,
    SECONDS,
    experiment,
    metrics_of,
    session_end,
    session_start,
)
from tuner.runs.folder import TRIALS, trial_folder
from tuner.runs.ledger import Ledger, read_events
from tuner.runs.open import open_run
from tuner.runs.state import (
    CLOSING,
    CONFIRM,
    DEFAULT,
    DISTILLED,
    Event,
    Outcome,
    RunState,
    TrialState,
    Warn,
)
from tuner.space.space import Space

# Events after which another word may be true of a short run that has ended.
DECIDING = ("run", "planned", "created", "failed", "end")
PICTURED = 10  # of the best trials have pictures in a board that is made anew


def rebuild(folder: Path, warn: Warn = print, *, data: Path | None = None) -> RunState:
    """Make the whole board of a run anew from its ledger, also while a search writes to it.

    Needs the run's folder and nothing else, apart from the embeddings, which read the dev
    sentences again: `data` is where they are now, if not where the run had them. Raises
    InputError if it is not the folder of a run.
    """
    run = open_run(folder, warn)
    board = Board(run.folder, run.space, warn)
    board.clear()
    board.replay(run.events)
    board.finish(data)
    return board.state


class Board:
    """Follows a ledger. It warns once if it cannot write, and never raises: a search goes on."""

    def __init__(self, folder: Path, space: Space, warn: Warn = print) -> None:
        self.folder = Path(folder)
        self.space = space
        self.warn = warn
        self.state = RunState(warn=lambda line: None)
        self.files: dict[str, EventFile] = {}
        # Of trials that are open, or of which another word may be said later.
        self.records: dict[str, list[tuple[Any, Event, int]]] = {}
        self.told: dict[str, tuple[Outcome, Event]] = {}  # of the latter: the word, and their end
        self._live = self._warned = False

    @cached_property
    def columns(self) -> Columns:
        return Columns.of(self.space)

    def follow(self, ledger: Ledger) -> None:
        """Write anew all that the ledger has so far, and from now on what comes."""
        self._attempt(lambda: self.replay(read_events(ledger.path, lambda line: None)))
        self._live = True
        ledger.listeners.append(self.apply)

    def replay(self, events: Iterable[Event]) -> None:
        # Steps that go back and a second record of a trial's end would confuse a reader.
        self._attempt(lambda: self._remove(HISTORY))
        for event in events:
            self.apply(event)

    def clear(self) -> None:
        """Remove what costs time to make and is otherwise kept."""
        self._attempt(lambda: self._remove(PICTURES))
        self._attempt(lambda: remove_folder(self.folder / BOARD))

    def apply(self, event: Event) -> None:
        self._attempt(lambda: self._apply(event))

    def finish(self, data: Path | None = None) -> None:
        """What a search leaves when it is over: pictures of the best, the soups, embeddings."""
        from tuner.export.tensorboard.extras import draw_trial, write_embeddings, write_soups

        for trial in self.state.ranked()[:PICTURED]:
            if not files_in(self._place(trial), PICTURES):
                self._attempt(lambda trial=trial: draw_trial(self, trial))  # type: ignore[misc]
        self._attempt(lambda: write_soups(self))
        self._attempt(lambda: write_embeddings(self, data))

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        # Whatever goes wrong with what people look at, the search is worth more.
        except Exception as error:
            if not self._warned:
                self._warned = True
                said = brief(str(error), 200) or type(error).__name__
                self.warn(
                    f"TensorBoard's files are not complete ({said}); the rest of the run is, and "
                    f"{command('report', self.folder, '--tensorboard')} makes them again"
                )

    def _remove(self, kind: str) -> None:
        places = [self.folder, *(self.folder / TRIALS).glob("*/")]
        for file in (file for place in places for file in files_in(place, kind)):
            file.unlink(missing_ok=True)

    def _place(self, trial: TrialState) -> Path:
        return trial_folder(self.folder, trial.id)

    # --- what follows from an event ---------------------------------------------------------

    def _apply(self, event: Event) -> None:
        name, closed = event["event"], not self.state.takes(event["event"], event.get("trial"))
        self.state.apply(event)
        if name == "run" and self.state.starts == 1:
            self._begin(event)
        if name in DECIDING:
            self._tell_anew()
        trial = self.state.trials.get(event.get("trial", ""))
        if trial is None or closed:
            return
        if name == "created" and trial.id not in self.files:
            self._created(trial, event)
        elif name == "evaluated":
            self._add(trial, scalars(self._curves(trial, event)), event, int(event["examples"]))
        elif name in CLOSING:
            self._closed(trial, event)

    def _begin(self, event: Event) -> None:
        record = experiment(
            self.state.name,
            self.space.about,
            event["time"],
            self.columns.columns,
            metrics_of(self.space.task_set.names),
        )
        EventFile(self.folder).add(record, event["time"])

    def _created(self, trial: TrialState, event: Event) -> None:
        self._start(trial)
        self.records[trial.id] = []

    def _start(self, trial: TrialState) -> None:
        self.files[trial.id] = EventFile(self._place(trial))
        best = trial.chosen(self.state.objectives) if trial.status != "open" else None
        scores = {}
        if best is not None:
            tasks = {name: of.get("value") for name, of in best.get("tasks", {}).items()}
            scores = score_cells(best["score"], tasks)
        outcome = self.state.outcome(trial) if trial.status != "open" else "running"
        cells = self.columns.values(trial.settings, trial.origin, outcome, scores)
        start = session_start(name_of(trial, self.state), cells, trial.created)
        self.files[trial.id].add(start, trial.created)

    def _closed(self, trial: TrialState, event: Event) -> None:
        self._end(trial, event)
        if self._live and trial.status == "finished":
            from tuner.export.tensorboard.extras import draw_trial

            draw_trial(self, trial)

    def _tell_anew(self) -> None:
        """Of short runs, once it is known whether their settings are trained further."""
        for name, (outcome, end) in list(self.told.items()):
            if self.state.outcome(self.state.trials[name]) != outcome:
                self._end(self.state.trials[name], end)

    def _end(self, trial: TrialState, event: Event) -> None:
        # How it ended is among the first things that TensorBoard reads of a trial, and it holds
        # on to those: so the file is written once more.
        before, step = self.files[trial.id], trial.examples
        self._start(trial)
        for record in self.records.get(trial.id, []):
            self._write(trial, *record)
        before.path.unlink(missing_ok=True)
        outcome = self.state.outcome(trial)
        self._write(trial, session_end(outcome, event["time"]), event, step)
        if trial.reason:
            kind = f"{outcome} ({trial.kind})" if trial.kind else outcome
            self._write(trial, text("reason", f"{kind}: {trial.reason}"), event, step)
        if trial.status == "finished" and outcome != "finished":
            self.told[trial.id] = outcome, event
        else:
            self.records.pop(trial.id, None)
            self.told.pop(trial.id, None)

    def _add(self, trial: TrialState, summary: Any, event: Event, step: int = 0) -> None:
        if trial.id in self.records:
            self.records[trial.id].append((summary, event, step))
        self._write(trial, summary, event, step)

    def _write(self, trial: TrialState, summary: Any, event: Event, step: int) -> None:
        self.files[trial.id].add(summary, event["time"], step)

    def _curves(self, trial: TrialState, event: Event) -> dict[str, float | None]:
        """Every scalar of one evaluation. The table shows the last of each, hence `best/...`."""
        best = trial.chosen(self.state.objectives) or event
        rates = event.get("learning_rates") or [None, None]
        return {
            **scores_of("best", best),
            **scores_of("score", event),
            **_of_tasks("loss", event, "loss"),
            **_of_tasks("train loss", event, "train_loss"),
            "train loss/SMART term": event.get("smart"),
            "optimiser/learning rate, lowest": rates[0],
            "optimiser/learning rate, highest": rates[1],
            "optimiser/gradient norm": event.get("gradient_norm"),
            "speed/examples per second": event.get("examples_per_second"),
            "speed/share of time in data": event.get("data_share"),
            EXAMPLES: event["examples"],
            SECONDS: event.get("seconds"),
        }


def name_of(trial: TrialState, state: RunState) -> str:
    """In the table and its order: "t0000 pruned, default", "t0009 finished, t0003 longer".

    The outcome first, as the table cuts names. None of one that runs: a TensorBoard that is open
    holds on to the name.
    """
    parts = [trial.id if trial.status == "open" else f"{trial.id} {state.outcome(trial)}"]
    parts += ["default"] * (trial.origin == DEFAULT)
    if trial.of is not None:
        again = ["distilled" if trial.origin == DISTILLED else "longer"] * (trial.origin != CONFIRM)
        again += [f"seed {trial.seed}"] * state.has_another_seed(trial)
        parts += [f"{trial.of} {' '.join(again)}"]
    return ", ".join(parts)


def scores_of(group: str, evaluation: Mapping[str, Any]) -> dict[str, float | None]:
    return {f"{group}/overall": evaluation["score"], **_of_tasks(group, evaluation, "value")}


def _of_tasks(group: str, evaluation: Mapping[str, Any], what: str) -> dict[str, float | None]:
    return {f"{group}/{name}": of.get(what) for name, of in evaluation.get("tasks", {}).items()}
