"""One search whose Ray has few open files, then no room, and then loses its control store."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.conftest import mount
from tests.faults.faulty_trials import fill
from tests.tuner.moments import Moment
from tests.tuner.search_runs import FIXED, Started, curves_of, is_alive, run_here, state_of
from tuner.runs.scratch import PREFIX

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SAME = (*FIXED, "--num-samples", "3", "--seed", "5")
FEW = 64  # open files; most systems allow 1,024 and more
FIRST = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW}, {FEW}))"


@dataclass
class Starved:
    storage: Path
    place: Path  # for Ray's temporary files
    full: bool  # whether there is no room in it
    in_time: int  # trials that ended without that room
    code: int
    said: str
    processes: list[int]

    @property
    def folder(self) -> Path:
        return self.storage / "default"


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starved]:
    psutil = pytest.importorskip("psutil")
    place = Path(tempfile.mkdtemp(prefix="s", dir="/tmp")) / "t"  # short, for Ray's sockets
    with suppress(pytest.skip.Exception):  # only root may
        mount(place, "size=64m")
    full = os.path.ismount(place)
    storage = tmp_path_factory.mktemp("starved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(place))
        moments = [Moment("evaluated", nth=2), Moment("finished", nth=2)]
        search = Started.start(storage, *SAME, first=FIRST, hold=moments, workers=2)
        search.wait_until_held()
        if full:
            fill(place, leave=0)
        search.go_on()
        search.wait_until_held()
        ended = len(search.new("finished"))
        tree = psutil.Process(search.process.pid).children(recursive=True)
        (store,) = [process for process in tree if process.name() == "gcs_server"]
        store.kill()
        search.go_on()
        code, said = search.finish()
    yield Starved(storage, place, full, ended, code, said, [process.pid for process in tree])
    if full:
        subprocess.run(["umount", "-l", str(place)], check=True)
    shutil.rmtree(place.parent)


def test_few_open_files_and_a_full_temporary_folder_do_not_hinder_a_search(
    starved: Starved,
) -> None:
    if not starved.full:
        pytest.skip("mounting a tmpfs needs root")
    assert starved.in_time == 2
    assert "failed" not in starved.said and "Traceback" not in starved.said


def test_a_control_store_that_is_killed_is_a_sentence_and_nothing_of_ray_is_left(
    starved: Starved,
) -> None:
    assert starved.code == 1, starved.said
    assert "Ray's control store has ended" in starved.said
    assert f"--resume --name default --storage-path {starved.storage}" in starved.said
    assert not any(map(is_alive, starved.processes))
    assert not list(starved.place.glob(f"{PREFIX}*"))


def test_the_search_goes_on_and_ends_like_one_left_alone(starved: Starved, tmp_path: Path) -> None:
    for place, again in ((starved.storage, ["--resume"]), (tmp_path, [])):
        done = run_here(place, *SAME, *again)
        assert done.returncode == 0, done.stdout + done.stderr
    assert state_of(starved.folder).counts()["finished"] == 3
    assert curves_of(starved.folder) == curves_of(tmp_path / "default")
