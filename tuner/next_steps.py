"""Commands for a person to copy once a search has ended."""

from __future__ import annotations

import shlex
from pathlib import Path

from tuner.asked import How
from tuner.run_state import RunState
from tuner.storage import without_secrets

BOARD = ("--host", "127.0.0.1", "--samples_per_plugin", "scalars=2000,images=100")


def next_steps(state: RunState, folder: Path, how: How) -> list[str]:
    """What to do with the results, if there are any."""
    if not state.ranked():
        return []
    place = str(folder.relative_to(Path.cwd()) if Path.cwd() in folder.parents else folder)
    steps = [
        shlex.join(["tensorboard", "--logdir", place, *BOARD]),
        shlex.join(["python", "-m", "tuner.predict", place, "--out", "predictions"]),
    ]
    if not state.repeats:
        steps.append(f"{resume_command(folder, how)} --confirm 3x3")
    return steps


def resume_command(folder: Path, how: How) -> str:
    """What defines the search is in its folder; where it runs is not."""
    parts = ["python", "-m", "tuner.search", "--resume", "--name", folder.name]
    if how.remote is not None:
        parts += ["--storage-path", without_secrets(how.remote)]
    for name, path in (("storage", how.storage_path), ("local", how.local_path)):
        if path != Path("runs") and (name == "local") == (how.remote is not None):
            parts += [f"--{name}-path", str(path)]
    for name in ("address", "max_concurrent_trials", "cpus_per_trial", "gpus_per_trial"):
        if (value := getattr(how, name)) is not None:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            parts += ["--" + name.replace("_", "-"), shown]
    for name in ("soup", "report"):
        if not getattr(how, name):
            parts.append(f"--no-{name}")
    return shlex.join(parts)
