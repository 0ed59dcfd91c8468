"""Commands for a person to copy once a search has ended."""

from __future__ import annotations

import shlex
from pathlib import Path

from model.cli.flags import flags_of
from model.cli.invocation import command, program
from model.cli.text import shown_path
from tuner.engine.database.place import StudyPlace
from tuner.runs.request import ExecutionOptions
from tuner.runs.state import RunState
from tuner.runs.storage.storage import without_secrets

BOARD = ("--host", "127.0.0.1", "--samples_per_plugin", "scalars=2000,images=100")


def next_steps(state: RunState, folder: Path) -> list[str]:
    """What to do with the results, if there are any."""
    if not state.ranked():
        return []
    place = shown_path(folder)
    return [
        shlex.join([program("tensorboard"), "--logdir", place, *BOARD]),
        command("predict", place, "--out", "predictions"),
    ]


def study_command(folder: Path, place: StudyPlace) -> str:
    """What brings the study in a database up to the ledger."""
    return command("export", shown_path(folder), "--to", "optuna", "--out", place.shown)


def resume_command(folder: Path, options: ExecutionOptions) -> str:
    """What defines the search is in its folder; where it runs is not."""
    shown = {**vars(options), "time_budget_s": None, "force": False, "quiet": False}
    shown |= {"name": folder.name, "resume": True, "verbose": False}
    if options.remote is not None:
        shown["storage_path"] = without_secrets(options.remote)
        shown["local_path"] = options.storage_path
    if options.study_storage is not None:
        shown["study_storage"] = StudyPlace(options.study_storage).shown
    return command(
        "search",
        *(
            word
            for name, flag in flags_of(ExecutionOptions).items()
            if shown[name] != flag.default
            for word in flag.arguments(shown[name])
        ),
    )
