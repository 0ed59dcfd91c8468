"""To W&B's offline mode, and its files read back by its own reader."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
pytest.importorskip("wandb", reason="needs pip install 'stockpot[wandb]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from tests.tuner.export.trackers.runs import SECRET, export, recorded, until  # noqa: E402
from tuner.export.trackers.wandb import Wandb  # noqa: E402


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return recorded(tmp_path)


def read_back(folder: Path) -> dict[str, dict[str, Any]]:
    """By id what `wandb sync` would send of each run: its records, and its files."""
    found: dict[str, dict[str, Any]] = {}
    for place in sorted((folder / "wandb").glob("offline-run-*")):
        (file,) = place.glob("*.wandb")
        one = records_of(file)
        assert one["id"] not in found
        files = place / "files"
        sent = [str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()]
        found[one["id"]] = {**one, "files": sorted(sent)}
    return found


def records_of(file: Path) -> dict[str, Any]:
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))
    found: dict[str, Any] = {"history": []}
    while (data := store.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            of = record.run
            found |= {"id": of.run_id, "name": of.display_name, "group": of.run_group}
            found |= {"project": of.project, "kind": of.job_type}
            found["config"] = {each.key: json.loads(each.value_json) for each in of.config.update}
        elif record.WhichOneof("record_type") == "history":
            items = record.history.item
            row = {each.key or "/".join(each.nested_key): each.value_json for each in items}
            found["history"].append({key: json.loads(value) for key, value in row.items()})
        elif record.WhichOneof("record_type") == "exit":
            found["exit"] = record.exit.exit_code
    return found


def without_clock(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """W&B adds how long it took to write."""
    for one in found.values():
        for row in one["history"]:
            row.pop("_runtime", None)
        one["config"].pop("_wandb", None)
    return found


def test_the_search_and_its_trials_are_one_group_and_again_is_the_same(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    out = tmp_path / "out"
    whole = until(run, 12)
    export(run, Wandb(out, "films"))
    assert len(read_back(out)) == 3
    until(run, len(whole), whole)
    (out / "wandb" / ".offline-run-killed.tmp").mkdir()  # as a kill leaves it
    now = export(run, Wandb(out, "films"))
    found = without_clock(read_back(out))
    assert found.keys() == {now.search.key, *(trial.key for trial in now.trials.values())}
    assert {one["group"] for one in found.values()} == {now.group}
    assert {one["project"] for one in found.values()} == {"films"}
    trial = found[now.trials["t0001"].key]
    assert trial["kind"] == "trial" and trial["config"]["optim.learning_rate"] == 0.0002
    points = now.trials["t0001"].points
    assert [row["_step"] for row in trial["history"]] == [point.step for point in points]
    for row, point in zip(trial["history"], points, strict=True):
        assert {name: row[name] for name in point.values} == point.values
        assert row["examples"] == point.step and row["_timestamp"] == pytest.approx(point.time)
    assert trial["exit"] == 0
    search = found[now.search.key]
    assert search["kind"] == "search" and "report.html" in search["files"]
    export(run, Wandb(out, "films"))
    assert without_clock(read_back(out)) == found
    for path in out.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
