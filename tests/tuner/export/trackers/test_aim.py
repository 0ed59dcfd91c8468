"""To a repository of Aim's, and read back by its own API."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("aim", reason="needs pip install '.[aim]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from tests.tuner.export.trackers.read_back import aim as read_back  # noqa: E402
from tests.tuner.export.trackers.runs import (  # noqa: E402
    events_of,
    export,
    recorded,
    until,
    without_last_trial,
    write_events,
)
from tuner.export.trackers.aim import Aim, hash_of  # noqa: E402


def test_each_trial_is_a_run_and_again_is_the_same(tmp_path: Path) -> None:
    run, out = recorded(tmp_path), tmp_path / "out"
    whole = until(run, 12)
    export(run, Aim(out, "films"))
    assert len(read_back(out)) == 3
    until(run, len(whole), whole)
    now = export(run, Aim(out, "films"))
    found = read_back(out)
    assert found.keys() == {hash_of(each) for each in (now.search, *now.trials.values())}
    trial = now.trials["t0001"]
    told, params, tags, curves = found[hash_of(trial)]
    assert told == {"name": trial.name, "experiment": "films", "active": False}
    assert params == trial.params and tags["trial"] == "t0001" and tags["outcome"] == "finished"
    wanted = [(point.step, point.values["dev/overall"]) for point in trial.points]
    assert curves["dev/overall"] == wanted and curves.keys() == trial.points[0].values.keys()
    export(run, Aim(out, "films"))
    assert read_back(out) == found


def test_a_trial_that_a_force_cut_off_goes_and_may_come_again(tmp_path: Path) -> None:
    run, other, out = recorded(tmp_path), recorded(tmp_path / "other"), tmp_path / "out"
    first, *more = events_of(other)
    write_events(other, [{**first, "time": first["time"] + 1}, *more])  # another key
    for each in (run, other):
        export(each, Aim(out, "films"))
    events, cut = events_of(run), without_last_trial(run)
    export(run, Aim(out, "films"))
    assert len(read_back(out)) == 7 and cut[:24] not in read_back(out)
    write_events(run, events)  # the search goes on
    export(run, Aim(out, "films"))
    assert len(read_back(out)) == 8 and cut[:24] in read_back(out)


def test_a_kill_right_after_a_run_s_folder_was_made_costs_nothing(tmp_path: Path) -> None:
    run, out = recorded(tmp_path), tmp_path / "out"
    export(run, Aim(out, "films"))
    found = read_back(out)
    destination = Aim(tmp_path / "more", "films")
    for name in found:
        Path(destination.repo.path, "meta", "chunks", name).mkdir(parents=True)
    export(run, destination)
    assert read_back(tmp_path / "more") == found
