"""A search, followed into MLflow by another process, while both are killed and go on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
pytest.importorskip("mlflow", reason="needs pip install '.[mlflow]'")

# Of MLflow's own making, with the versions that are pinned here.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

from tests.tuner.export.trackers.read_back import mlflow, mlflow_runs  # noqa: E402
from tests.tuner.export.trackers.runs import snapshot_of  # noqa: E402
from tests.tuner.moments import Moment  # noqa: E402
from tests.tuner.search_runs import FIXED, PATIENCE, ROOT, Started, run_here  # noqa: E402
from tuner.export.trackers.mlflow import KEY, points_of  # noqa: E402
from tuner.runs.open import has_begun  # noqa: E402

FEW = (*FIXED, "--num-samples", "3", "--seed", "5")
MORE = (*FIXED, "--num-samples", "4", "--seed", "5")


class Follower:
    def __init__(self, run: Path, uri: str) -> None:
        words = ["export", str(run), "--to", "mlflow", "--out", uri, "--follow"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tuner", *words],
            cwd=run.parent,  # where MLflow puts artifacts
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(params=["sqlite", "http"])
def uri(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if request.param == "http":
        return str(request.getfixturevalue("mlflow_server"))
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture
def follow(tmp_path: Path, uri: str) -> Iterator[Callable[[], Follower]]:
    made: list[Follower] = []

    def start() -> Follower:
        made.append(Follower(tmp_path / "default", uri))
        return made[-1]

    yield start
    for one in made:
        if one.process.returncode is None:
            one.kill()


def test_a_search_and_its_follower_are_killed_and_go_on_with_more_trials_and_no_run_comes_twice(
    tmp_path: Path, uri: str, follow: Callable[[], Follower]
) -> None:
    run = tmp_path / "default"
    assert mlflow_runs(uri) == []  # its tables are made here, by one process
    # It stops when a trial has finished, another is under way and there is one to come.
    search = Started.start(tmp_path, *FEW, hold=[Moment("finished")], workers=2, ray=False)
    assert search.wait_for(lambda: has_begun(run)), search.finish()
    first = follow()
    search.wait_until_held()
    first.wait_for(lambda: "FINISHED" in statuses(uri))
    first.kill()
    search.kill()
    assert len(mlflow_runs(uri)) < 5 and "RUNNING" in statuses(uri)
    parent = id_of(uri, snapshot_of(run).search.key)
    second = follow()
    done = run_here(tmp_path, *MORE, "--resume")
    assert done.returncode == 0, done.stderr
    told, _ = second.process.communicate(timeout=PATIENCE)
    assert second.process.returncode == 0, told
    assert "4 trials, 8 evaluations" in told, told
    now, found = snapshot_of(run), mlflow(uri)  # which has no key twice
    records = {record.key: record for record in (now.search, *now.trials.values())}
    assert id_of(uri, now.search.key) == parent  # with what people noted there
    assert len(now.trials) == 4 and found.keys() == records.keys()
    for key, (info, parent, _, _, points, _) in found.items():
        assert info[:2] == (records[key].name, "FINISHED")
        assert parent == (None if key == now.search.key else now.search.key)
        wanted = sorted((name, step, value) for name, value, _, step in points_of(records[key]))
        assert [point[:3] for point in points] == wanted


def id_of(uri: str, key: str) -> str:
    (found,) = (each.info.run_id for each in mlflow_runs(uri) if each.data.tags[KEY] == key)
    return str(found)


def statuses(uri: str) -> list[Any]:
    return [each.info.status for each in mlflow_runs(uri)]
