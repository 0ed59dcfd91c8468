"""To Trackio's local database, and read back by its own API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trackio", reason="needs pip install trackio, which wants an older Pillow")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from tests.tuner.export.trackers.read_back import trackio as read_back  # noqa: E402
from tests.tuner.export.trackers.read_back import trackio_in  # noqa: E402
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
from tuner.export.trackers.trackio import Trackio  # noqa: E402

PROJECT = "films"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with trackio_in(tmp_path / "trackio"):
        yield tmp_path / "trackio"


def test_each_trial_is_a_run_and_again_is_the_same(tmp_path: Path, place: Path) -> None:
    run = recorded(tmp_path)
    whole = until(run, 12)
    export(run, Trackio(None, PROJECT))
    until(run, len(whole), whole)
    now = export(run, Trackio(None, PROJECT))
    found = read_back(place, PROJECT)
    assert found.keys() == {now.search.key, *(trial.key for trial in now.trials.values())}
    name, config, logs, files = found[now.trials["t0001"].key]
    assert name == now.trials["t0001"].name and config["optim.learning_rate"] == 0.0002
    assert files == {} and found[now.search.key][3] == now.files
    assert config["_Group"] == now.group
    points = now.trials["t0001"].points
    assert [row["step"] for row in logs] == [point.step for point in points]
    assert [row["dev/overall"] for row in logs] == [p.values["dev/overall"] for p in points]
    export(run, Trackio(None, PROJECT))
    assert read_back(place, PROJECT) == found


def test_files_are_one_artifact_in_its_last_version_and_the_soup_goes_along(
    tmp_path: Path, place: Path
) -> None:
    run = recorded(tmp_path)
    export(run, Trackio(None, PROJECT))
    (run / "report.html").write_text("another page")
    export(run, Trackio(None, PROJECT))
    key = snapshot_of(run).search.key
    assert read_back(place, PROJECT)[key][3]["report.html"] == b"another page"
    add_soup(run)
    model = {f"soup/{path.name}": path for path in (run / "soup").iterdir()}
    now = replace(snapshot_of(run), model=model)
    for _ in range(2):
        Trackio(None, PROJECT).write(now, now.trials.values())
        found = read_back(place, PROJECT)[key][3]
        assert found == {**now.files, **{name: path.read_bytes() for name, path in model.items()}}


def test_no_secret_arrives(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    export(recorded(tmp_path), Trackio(None, PROJECT))
    kept = [path for path in place.rglob("*") if path.is_file()]
    assert len(kept) > 3 and not any(SECRET.encode() in path.read_bytes() for path in kept)


def test_a_trial_that_a_force_cut_off_goes_and_another_search_s_stays(
    tmp_path: Path, place: Path
) -> None:
    run, other = recorded(tmp_path), recorded(tmp_path / "other")
    first, *more = events_of(other)
    write_events(other, [{**first, "time": first["time"] + 1}, *more])  # another key
    for each in (run, other):
        export(each, Trackio(None, PROJECT))
    cut = without_last_trial(run)
    export(run, Trackio(None, PROJECT))
    found = read_back(place, PROJECT)
    assert len(found) == 7 and cut not in found
