"""The real command, killed while it writes: run again, each tool has what it would have had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.export.trackers import read_back
from tests.tuner.export.trackers.runs import recorded, until
from tests.tuner.moments import is_held
from tests.tuner.search_runs import PATIENCE, ROOT
from tuner.__main__ import main

pytestmark = [
    pytest.mark.slow,
    # Of the tools' own making.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}
COMMAND = "import sys\nfrom tuner.__main__ import main\nsys.exit(main(sys.argv[1:]))"
# Stops its own process after the nth call of a function, and waits there to be killed.
HOLD = """
import os, signal
from importlib import import_module
owner = import_module({module!r})
for part in {path!r}.split(".")[:-1]:
    owner = getattr(owner, part)
name = {path!r}.split(".")[-1]
call, left = getattr(owner, name), [{nth}]
def held(*given, **named):
    made = call(*given, **named)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGSTOP)
    return made
setattr(owner, name, held)
"""

# One of two tables; some of a trial's curves; a folder that is not renamed yet; a run that
# was removed to be written anew; half of a run; a study with one trial more, the last one open.
TABLES = "tuner.export.trackers.tables", "write_atomic", 1
CURVES = "mlflow.tracking.client", "MlflowClient.log_batch", 4
MOMENTS = {
    "csv": TABLES,
    "parquet": TABLES,
    "mlflow": CURVES,
    "mlflow over HTTP": CURVES,
    "wandb": ("tuner.export.trackers.wandb", "copy_plain", 2),
    "trackio": ("trackio.sqlite_storage", "SQLiteStorage.delete_run", 2),
    "aim": ("aim", "Run.track", 50),
    "optuna": ("optuna.storages", "RDBStorage.create_new_trial", 1),
}
PACKAGES = {
    "mlflow": read_back.MLFLOW,
    "wandb": read_back.WANDB,
    "trackio": read_back.TRACKIO,
    "aim": read_back.AIM,
}


class Place:
    """Where a tool keeps what it is given."""

    def __init__(self, tool: str, folder: Path, out: str | None = None) -> None:
        self.tool, self.folder = tool, folder
        folder.mkdir()
        database = {"mlflow": "mlflow.db", "optuna": "studies.db"}.get(tool)
        self.out = out or (f"sqlite:///{folder}/{database}" if database else str(folder / "out"))
        self.words = ["export", "--to", tool, "--out", self.out, "--quiet"]

    def export(self, run: Path) -> None:
        """The command in this process: its start would take longest."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)  # where MLflow puts artifacts
            patch.setenv("TRACKIO_DIR", "")  # to be undone: the command sets it
            with read_back.trackio_in(self.folder / "out"):
                assert main([*self.words, str(run)]) == 0

    def start_held(self, run: Path, module: str, path: str, nth: int) -> subprocess.Popen[str]:
        """The command in a process of its own, which stops at that moment."""
        first = HOLD.format(module=module, path=path, nth=nth)
        return subprocess.Popen(
            [sys.executable, "-c", f"{first}\n{COMMAND}", *self.words, str(run)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read(self) -> Any:
        readers: dict[str, Callable[[], Any]] = {
            "csv": lambda: read_back.tables(Path(self.out), "csv"),
            "parquet": lambda: read_back.tables(Path(self.out), "parquet"),
            "mlflow": lambda: read_back.mlflow(self.out),
            "wandb": lambda: read_back.wandb(Path(self.out)),
            "trackio": lambda: read_back.trackio(Path(self.out), "stockpot"),
            "aim": lambda: read_back.aim(Path(self.out)),
            "optuna": lambda: [shown(trial) for trial in read_back.optuna(self.out, "v0-2")],
        }
        return readers[self.tool]()


def shown(trial: Any) -> tuple[Any, ...]:
    own = (trial.number, trial.state, trial.values, trial.params, trial.intermediate_values)
    return (*own, trial.user_attrs, trial.datetime_start)


@pytest.mark.parametrize("tool", MOMENTS)
def test_an_export_that_is_killed_and_run_again_twice_is_the_undisturbed_one(
    tmp_path: Path,
    tool: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    moment = MOMENTS[tool]
    tool, *over = tool.split()
    if tool in PACKAGES:
        pytest.importorskip(tool, reason=PACKAGES[tool])
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    server = request.getfixturevalue("mlflow_server") if over else None
    run, place = recorded(tmp_path), Place(tool, tmp_path / "there", server)
    other = Place(tool, tmp_path / "undisturbed")
    other.export(run)
    whole = until(run, 12)  # a trial has finished, and one is under way
    place.export(run)
    until(run, len(whole), whole)
    killed = place.start_held(run, *moment)
    wait_until_held(killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    for _ in range(2):
        place.export(run)
        assert place.read() == other.read()
    if over:
        assert capfd.readouterr().out == ""  # a server has addresses, which MLflow likes to tell


def wait_until_held(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_held(process.pid):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
