"""Evaluations on Ray's workers: the same soup, also where a worker is lost."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from model.common.files import sha256_of
from tests.tuner.soup_runs import POINTS, make_run, write_toy
from tuner.ray_backend import heartbeat, workers
from tuner.ray_backend.heartbeat import HeartbeatWatch, end_process, read_heartbeat
from tuner.ray_backend.resources import Resources
from tuner.ray_backend.workers import WorkerPool
from tuner.runs.storage.storage import Storage
from tuner.search.on_workers import MakeRunner, on_workers
from tuner.soup.make import make_soup
from tuner.soup.record import SoupRecord
from tuner.soup.runner import RunnerThere

pytestmark = pytest.mark.slow


def quiet(line: str) -> None:
    pass


def without_times(soup: SoupRecord) -> dict[str, Any]:
    return {**vars(soup), **dict.fromkeys(("time", "seconds", "ran"))}


class Dies(RunnerThere):
    """Of all workers the first that has a second evaluation is killed in it."""

    asked = 0

    def __call__(self, combinations: Any) -> Any:
        self.asked += 1
        with suppress(FileExistsError):
            if self.asked == 2:
                (Path(self.local.spec.run) / "killed").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(combinations)


def test_workers_make_the_same_soup_also_where_one_is_lost(
    ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = write_toy(tmp_path / "data")
    run = make_run(tmp_path / "run", POINTS[:3], tasks=str(toy), data=toy.parent)
    told: list[str] = []

    def made(runner: MakeRunner | None) -> SoupRecord:
        """Always of the same run, and without what was evaluated before."""
        for place in ("soup", "soups"):
            if (run / place).exists():
                (run / place).rename(tmp_path / f"{place}{len(list(tmp_path.iterdir()))}")
        names = ["uniform soup", "learned soup"]
        return make_soup(
            run, methods=names, folders=True, log=quiet, warn=told.append, runner=runner
        )

    def weights() -> dict[str, str]:
        places = [*run.glob("soup/*.safetensors"), *run.glob("soups/*/*.safetensors")]
        return {str(place): sha256_of(place) for place in places}

    alone = made(None)
    files = weights()
    assert any("uniform-soup/model" in name for name in files)

    def check(slots: int = 1, **where: Any) -> None:
        with on_workers(Resources(slots, 1.0, 0.0), **where, warn=told.append) as there:
            found = made(there.runner)
        assert without_times(found) == without_times(alone)
        assert weights() == files

    # The models are sent, as where nobody shares a folder. And there are more slots than there is
    # room for: one of the workers never starts, and nobody waits for it.
    check(slots=3)
    storage = shutil.copytree(run, tmp_path / "storage", ignore=shutil.ignore_patterns("soup*"))
    check(storage=Storage(storage.as_uri()))  # they are fetched
    assert not told
    models = sorted(storage.rglob("heads.safetensors"))
    models[0].unlink()  # a worker that cannot have them leaves the work to the driver
    check(storage=Storage(storage.as_uri()))
    assert told and all("could not fetch a model" in line for line in told)
    told.clear()
    monkeypatch.setattr("tuner.search.on_workers.RunnerThere", Dies)
    check(slots=2, shared=True)
    assert (run / "killed").exists()
    assert len(told) == 1 and "another does its work" in told[0]


# --- one that is stopped ------------------------------------------------------------------------


class Stops:
    """Whoever is asked first is stopped, as by a debugger or a machine that freezes."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, number: int) -> tuple[int, int]:
        with suppress(FileExistsError), open(self.mark, "x") as file:
            print(os.getpid(), file=file, flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        return 2 * number, os.getpid()

    def close(self) -> None:
        pass


def pool_of(
    mark: Path, told: list[str], monkeypatch: pytest.MonkeyPatch, **given: Any
) -> WorkerPool:
    """One that hears no more of a worker as soon as that is stopped, and soon gives it up."""
    beats = count()

    def beat(host: str, pid: int) -> bytes:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        return b"the last" if state == b"T" else str(next(beats)).encode()

    monkeypatch.setattr(heartbeat, "SILENT", 2.0)
    monkeypatch.setattr(workers, "WAIT", 0.05)
    monkeypatch.setattr(workers, "GOODBYE", 0.2)
    monkeypatch.setattr(WorkerPool, "watch", lambda pool: HeartbeatWatch(beat))
    return WorkerPool(partial(Stops, mark), Resources(1, 1.0, 0.0), told.append, **given)


def test_a_worker_that_is_stopped_is_ended_and_another_does_its_work(
    ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, told = tmp_path / "stopped", list[str]()
    pool = pool_of(mark, told, monkeypatch)
    try:
        answer, pid = pool.ask(21)
        (worker,) = pool._idle
        while not read_heartbeat(worker.host, worker.pid):  # it has begun to count
            os.sched_yield()
    finally:
        pool.close()
    assert answer == 42 and pid == worker.pid != int(mark.read_text())
    assert len(told) == 1 and "a worker was lost (no sign of life from its worker for" in told[0]


def test_nobody_waits_for_a_stopped_worker_once_the_search_is_to_end(
    ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, told = tmp_path / "stopped", list[str]()

    def stop() -> None:
        if mark.exists() and mark.read_text():
            raise KeyboardInterrupt

    pool = pool_of(mark, told, monkeypatch, stop=stop)
    monkeypatch.setattr(heartbeat, "SILENT", 600.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.ask(21)
        pool.close()
    finally:
        end_process(int(mark.read_text()))
    assert not told
