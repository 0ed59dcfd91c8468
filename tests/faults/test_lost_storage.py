"""Storage that goes away in the middle of a search: it stops in good order, and goes on later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.relay import Relay
from tests.tuner.moments import Moment
from tests.tuner.s3_server import S3, s3_server
from tests.tuner.search_runs import FIXED, Started, curves_of, events, is_alive, run_here, state_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
TRIALS = (*FIXED, "--num-samples", "4")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("whole")
    done = run_here(storage, *TRIALS)
    assert done.returncode == 0, done.stderr
    return storage / "default"


def assert_like(folder: Path, whole: Path) -> None:
    """All trials, each once, with the same curves."""
    state = state_of(folder)
    assert state.counts() == {"open": 0, "finished": 4, "stopped": 0, "failed": 0}
    assert curves_of(folder) == curves_of(whole)


@pytest.fixture
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


def test_a_bucket_cut_off_in_the_middle_stops_the_search_and_nothing_is_lost(
    s3: S3, undisturbed: Path, tmp_path: Path
) -> None:
    line = Relay(s3.port)
    url = S3(line.port, s3.client).url("runs")
    flags = (*TRIALS, "--local-path", str(tmp_path))
    search = Started.start(tmp_path, *flags, url=url, hold=[Moment("evaluated", nth=3)])
    search.wait_until_held()
    line.cut()
    search.go_on()
    code, said = search.finish()
    assert code != 0
    assert "cannot write" in said and "in s3://bucket/runs/default" in said
    assert "saving what can be saved, and stopping" in said
    assert "storage is behind" in said and "--resume" in said
    assert "Traceback" not in said
    assert state_of(search.folder).counts()["open"] > 0

    line.mend()
    done = run_here(url, *flags, "--resume")
    assert done.returncode == 0, done.stderr
    assert_like(search.folder, undisturbed)
    stored = s3.client.get_object(Bucket="bucket", Key="runs/default/ledger.jsonl")["Body"].read()
    assert stored == (search.folder / "ledger.jsonl").read_bytes()


def test_a_folder_that_vanishes_in_the_middle_stops_the_search_and_nothing_is_lost(
    undisturbed: Path, tmp_path: Path
) -> None:
    here, away = tmp_path / "storage", tmp_path / "away"
    search = Started.start(here, *TRIALS, hold=[Moment("evaluated", nth=3)])
    search.wait_until_held()
    workers = {e["pid"] for e in events(search.folder) if e["event"] == "started"}
    here.rename(away)
    search.go_on()
    code, said = search.finish()
    assert code != 0
    assert f"{search.folder} is gone" in said and "--resume" in said, said
    assert "Traceback" not in said
    assert not here.exists()
    assert not any(is_alive(pid) for pid in workers)

    away.rename(here)
    done = run_here(here, *TRIALS, "--resume")
    assert done.returncode == 0, done.stderr
    assert_like(search.folder, undisturbed)
