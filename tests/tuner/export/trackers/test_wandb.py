"""To W&B's offline mode, and its files read back by its own reader."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
pytest.importorskip("wandb", reason="needs pip install '.[wandb]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from tests.tuner.export.trackers.read_back import wandb as read_back  # noqa: E402
from tests.tuner.export.trackers.runs import (  # noqa: E402
    SECRET,
    add_soup,
    events_of,
    export,
    recorded,
    snapshot_of,
    until,
    without_last_trial,
    write_events,
)
from tuner.export.trackers.wandb import Wandb  # noqa: E402


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return recorded(tmp_path)


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
    found = read_back(out)
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
    assert read_back(out) == found
    for path in out.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_the_soup_goes_along(run: Path, tmp_path: Path) -> None:
    add_soup(run)
    model = {f"soup/{path.name}": path for path in (run / "soup").iterdir()}
    now = replace(snapshot_of(run), model=model)
    Wandb(tmp_path / "out", "films").write(now, now.trials.values())
    (place,) = (tmp_path / "out" / "wandb").glob(f"*-{now.search.key}")
    for name, path in model.items():
        assert (place / "files" / name).read_bytes() == path.read_bytes()


def test_a_trial_that_a_force_cut_off_goes_or_is_replaced_and_another_search_s_stays(
    run: Path, tmp_path: Path
) -> None:
    out, other, events = tmp_path / "out", recorded(tmp_path / "other"), events_of(run)
    write_events(other, [{**events[0], "time": events[0]["time"] + 1}, *events[1:]])  # another key
    for each in (run, other):
        export(each, Wandb(out, "films"))
    cut = without_last_trial(run)
    export(run, Wandb(out, "films"))
    assert len(read_back(out)) == 7 and cut not in read_back(out)
    # The search goes on, with another trial of that name.
    late = [{**e, "time": e["time"] + 60} if e.get("trial") == "t0002" else e for e in events]
    for same in (events, late):
        write_events(run, same)
        export(run, Wandb(out, "films"))
    assert len(read_back(out)) == 8 and cut in read_back(out)
    assert not list((out / "wandb").glob(".*"))
