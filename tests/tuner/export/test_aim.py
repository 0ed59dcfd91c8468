"""To an Aim repository, and read back by its own API."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aim", reason="needs pip install 'stockpot[aim]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

from tests.tuner.export.runs import export, recorded, until  # noqa: E402
from tests.tuner.search_runs import PATIENCE  # noqa: E402
from tuner.export.aim import LENGTH, Aim  # noqa: E402

READ = """
import json, sys
import aim

found = {}
for run in aim.Repo.from_path(sys.argv[1]).iter_runs():
    curves = {}
    for metric in run.metrics():
        steps, (values, *_) = metric.data.items_list()
        curves[metric.name] = sorted(zip(map(int, steps), map(float, values)))
    assert run.hash not in found
    found[run.hash] = (run.name, run.experiment, run["hparams"], run["stockpot"], curves)
print(json.dumps(found))
"""


def read_back(place: Path) -> dict[str, Any]:
    """As another process sees it: Aim's handles in this one do not look again."""
    words = [sys.executable, "-c", READ, str(place)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return found


def test_each_trial_is_a_run_and_again_is_the_same(tmp_path: Path) -> None:
    run, place = recorded(tmp_path), tmp_path / "repository"
    place.mkdir()
    whole = until(run, 12)
    export(run, Aim(str(place), "films"))
    until(run, len(whole), whole)
    now = export(run, Aim(str(place), "films"))
    found = read_back(place)
    records = (now.search, *now.trials.values())
    assert found.keys() == {record.key[:LENGTH] for record in records}
    trial = now.trials["t0001"]
    name, experiment, params, tags, curves = found[trial.key[:LENGTH]]
    assert name == trial.name and experiment == "films" and tags["group"] == now.group
    assert params["optim.learning_rate"] == 0.0002
    wanted = [[point.step, point.values["dev/overall"]] for point in trial.points]
    assert curves["dev/overall"] == wanted
    export(run, Aim(str(place), "films"))
    assert read_back(place) == found
