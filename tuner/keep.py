"""Which checkpoints a search keeps: of the best trials, and the best of each task."""

from __future__ import annotations

from pathlib import Path

from model.checkpoint import checkpoints_in
from model.files import remove_folder
from tuner.run_state import RunState, TrialState, objective_value


def wanted(state: RunState, keep: int) -> dict[str, set[str]]:
    """trial -> names of checkpoints to keep, among the trials that are closed and scored."""
    scored = [
        trial
        for trial in state.search_trials
        if trial.status in ("finished", "stopped") and trial.evaluations
    ]
    chosen: dict[str, set[str]] = {}

    def note(trial: TrialState, what: str) -> None:
        if best := trial.best(what):
            chosen.setdefault(trial.id, set()).add(best["checkpoint"])

    def value(trial: TrialState, what: str) -> float:
        best = trial.best(what)
        return objective_value(best, what) if best else float("-inf")

    # Finished trials first: those are what a search ranks, and a stopped one's high score is an
    # early one that nothing confirmed.
    order = sorted(scored, key=lambda t: (t.status == "finished", value(t, "overall")))
    for trial in order[::-1][:keep]:
        note(trial, "overall")
    tasks = {name for trial in scored for name in trial.evaluations[0].get("tasks", {})}
    for task in sorted(tasks):
        note(max(scored, key=lambda t: value(t, task)), task)
    for trial in scored:
        if trial.origin == "default":  # what everything is compared with
            note(trial, "overall")
    return chosen


def surplus(state: RunState, folder: Path, keep: int) -> dict[str, list[str]]:
    """trial -> checkpoints on disk, of closed trials, that nothing needs any more."""
    chosen = wanted(state, keep)
    found: dict[str, list[str]] = {}
    for trial in state.trials.values():
        if trial.status != "open":
            present = checkpoints_in(folder / "trials" / trial.id / "checkpoints")
            names = [p.name for p in present if p.name not in chosen.get(trial.id, ())]
            if names:
                found[trial.id] = names
    return found


def delete(trial: Path, checkpoints: list[str]) -> None:
    """Remove these checkpoints, and the trial's own model if it was linked to one of them."""
    for name in checkpoints:
        remove_folder(trial / "checkpoints" / name)
    if not checkpoints_in(trial / "checkpoints"):
        remove_folder(trial / "model")


def drop_states(trial: Path) -> None:
    """A closed trial is never resumed: of what is kept, the model is enough."""
    for place in checkpoints_in(trial / "checkpoints"):
        remove_folder(place / "state")
