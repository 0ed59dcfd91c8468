"""Which checkpoints a search keeps: of the best trials, their last few, and the best of tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from model.common.files import remove_folder
from model.common.untrusted import inside
from model.training.checkpoint import KEPT_MODELS, checkpoints_in
from tuner.runs.folder import CHECKPOINTS, LEDGER, MODEL, TRIALS
from tuner.runs.state import DISTILLED, Event, RunState, TrialState, objective_value

WEIGHTS = "model.safetensors"


def wanted(
    state: RunState, keep: int, among: Iterable[TrialState] | None = None
) -> dict[str, set[str]]:
    """trial -> names of checkpoints to keep, among the trials that are closed and scored.

    What is not wanted never is again, as closed trials do not change and more of them make it
    only harder. So after a trial closed it is enough to look at that one `among` those that
    were wanted before, where a large run has thousands.
    """
    trials = list(state.trials.values() if among is None else sorted(among, key=lambda t: t.order))
    scored = [
        trial
        for trial in trials
        if trial.status in ("finished", "stopped") and trial.evaluations and not trial.is_repeat
    ]
    chosen: dict[str, set[str]] = {}

    def best_of(trial: TrialState, what: str) -> Event | None:
        try:
            return trial.best(what)
        except KeyError:  # not among the tasks of that trial
            return None

    def note(trial: TrialState, what: str) -> None:
        if (best := best_of(trial, what)) and "checkpoint" in best:
            chosen.setdefault(trial.id, set()).add(best["checkpoint"])

    def value(trial: TrialState, what: str) -> float:
        best = best_of(trial, what)
        return objective_value(best, what) if best else float("-inf")

    def best_first(what: str) -> list[TrialState]:
        # Finished trials first, the longest trained of them before the others: that is how a
        # search ranks them, and a stopped one's high score is an early one that nothing
        # confirmed. The earlier of equals before the later, as there.
        return sorted(
            scored, key=lambda t: (t.status != "finished", -(t.length or 0), -value(t, what))
        )

    for trial in best_first(state.goal)[:keep]:
        note(trial, state.goal)
        chosen[trial.id].update(trajectory(state, trial))
    tasks = {name for trial in scored for name in trial.evaluations[0].get("tasks", {})}
    for task in sorted(tasks):
        note(best_first(task)[0], task)
    for trial in trials:
        last = trial.chosen(state.objectives) if trial.origin == DISTILLED else None
        if trial.status == "finished" and last and "checkpoint" in last:
            chosen.setdefault(trial.id, set()).add(last["checkpoint"])
    for trial in scored:
        if state.is_default(trial):  # what everything is compared with
            note(trial, state.goal)
    return chosen


def trajectory(state: RunState, trial: TrialState) -> set[str]:
    """The last checkpoints of a final, for a soup: a search may have one final only.

    A search that trains all in full has other trials' checkpoints for that.
    """
    top = len(state.rungs) - 1
    if top < 1 or trial.level != top or trial.status != "finished":
        return set()
    return {entry["checkpoint"] for entry in trial.evaluations[-KEPT_MODELS:]} - trial.removed


class CheckpointStore:
    """Where the checkpoints of closed trials lie: in the run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _place(self, trial: str) -> Path:
        """Nothing is ever deleted through a link that leads out of the run: InputError."""
        return inside(self.folder, Path(TRIALS, trial, CHECKPOINTS)).parent

    def checkpoints(self, trial: str) -> list[str]:
        return [place.name for place in checkpoints_in(self._place(trial) / CHECKPOINTS)]

    def trouble(self) -> str | None:
        """Why nothing can be kept any more, if that is so: a disk unmounted, a folder moved."""
        # Not Path.exists, which raises for a mount that went stale.
        return None if os.path.exists(self.folder / LEDGER) else f"{self.folder} is gone"

    def closed(self, trial: str) -> None:
        """The trial writes no more."""
        self.drop_states(trial)

    def drop_states(self, trial: str) -> None:
        drop_states(self._place(trial))

    def delete(self, trial: str, checkpoints: list[str]) -> None:
        delete(self._place(trial), checkpoints)


def surplus(
    trials: Iterable[TrialState], chosen: Mapping[str, set[str]], store: CheckpointStore
) -> dict[str, list[str]]:
    """trial -> checkpoints in the store, of closed trials, that are not among the chosen."""
    found: dict[str, list[str]] = {}
    for trial in trials:
        if trial.status != "open":
            present = store.checkpoints(trial.id)
            names = [name for name in present if name not in chosen.get(trial.id, ())]
            if names:
                found[trial.id] = names
    return found


def delete(trial: Path, checkpoints: list[str]) -> None:
    """Remove these checkpoints, and the trial's own model if it was linked to one of them."""
    for name in checkpoints:
        place = inside(trial, Path(CHECKPOINTS, name))
        if linked(trial / MODEL, place / MODEL):
            remove_folder(trial / MODEL)
        remove_folder(place)
    if not checkpoints_in(trial / CHECKPOINTS):
        remove_folder(trial / MODEL)


def linked(model: Path, other: Path) -> bool:
    """Whether the two are the same weights under two names."""
    try:
        return os.path.samefile(model / WEIGHTS, other / WEIGHTS)
    except FileNotFoundError:
        return False


def drop_states(trial: Path) -> None:
    """A closed trial is never resumed: of what is kept, the model is enough."""
    for place in checkpoints_in(trial / CHECKPOINTS):
        remove_folder(inside(trial, Path(CHECKPOINTS, place.name, "state")))
