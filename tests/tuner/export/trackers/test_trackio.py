"""To Trackio's local database, and read back by its own API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trackio", reason="needs pip install trackio, which wants an older Pillow")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from tests.tuner.export.trackers.runs import export, recorded, until  # noqa: E402
from tuner.export.trackers.trackio import Trackio  # noqa: E402

PROJECT = "films"


def read_back() -> dict[str, Any]:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    found: dict[str, Any] = {}
    for run in trackio.Api().runs(PROJECT):
        assert run.id not in found
        logs = SQLiteStorage.get_logs(PROJECT, run.name, run_id=run.id)
        found[run.id] = (run.name, run.config, logs)
    return found


def test_each_trial_is_a_run_and_again_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path / "trackio", raising=False)
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio", raising=False)
    run = recorded(tmp_path)
    whole = until(run, 12)
    export(run, Trackio(None, PROJECT))
    until(run, len(whole), whole)
    now = export(run, Trackio(None, PROJECT))
    found = read_back()
    assert found.keys() == {now.search.key, *(trial.key for trial in now.trials.values())}
    name, config, logs = found[now.trials["t0001"].key]
    assert name == now.trials["t0001"].name and config["optim.learning_rate"] == 0.0002
    assert config["_Group"] == now.group
    points = now.trials["t0001"].points
    assert [row["step"] for row in logs] == [point.step for point in points]
    assert [row["dev/overall"] for row in logs] == [p.values["dev/overall"] for p in points]
    export(run, Trackio(None, PROJECT))
    assert read_back() == found
