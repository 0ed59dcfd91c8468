"""Letting go of trials that have ended, which Ray Tune would keep with all their results.

Ray holds every trial of an experiment in memory, and writes all of them to disk every few seconds,
for a restore that a search has no use for: what it knows is in its ledger.
"""

from __future__ import annotations

from typing import Any

from ray.tune.experiment import Trial

# The controller's own collections that would hold an ended trial for ever. Where another version
# of Ray has them under other names, trials are kept as before.
SETS = ("_stopped_trials", "_failed_trials", "_live_trials", "_trials_to_cache")


def controller_of(passed: Any) -> Any:
    """Ray hands a wrapper to its schedulers that hides these."""
    return getattr(passed, "_tune_controller", passed)


def forget(controller: Any, trial: Trial) -> bool:
    """False while Ray still has something to do with the trial or its actor."""
    if not trial.is_finished() or trial in getattr(controller, "_trial_to_actor", ()):
        return False
    trials = controller.get_trials()
    if trial in trials:
        if len(trials) == 1:
            return False  # with none at all, Ray would look for them on disk at the end
        trials.remove(trial)
    for name in SETS:
        getattr(controller, name, set()).discard(trial)
    for callback in getattr(getattr(controller, "_callbacks", None), "_callbacks", ()):
        for kept in vars(callback).values():  # as that of Ray's that prints progress
            if isinstance(kept, dict):
                kept.pop(trial, None)
            elif isinstance(kept, set):
                kept.discard(trial)
    getattr(controller, "_trial_metadata", {}).pop(trial.trial_id, None)
    trial.run_metadata.last_result = {}  # whoever else still holds the trial
    return True
