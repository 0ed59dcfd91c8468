"""Workers that fall silent, machines that are about to go, and a Ray that does not start."""

from __future__ import annotations

import errno
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayTaskError
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from safetensors import SafetensorError

from model.common import untrusted
from model.common.errors import InputError
from model.common.files import read_yaml
from model.training.run_lock import FolderInUse
from tuner.ray_backend import adapters
from tuner.ray_backend.adapters import DrainStopper, RungScheduler
from tuner.ray_backend.failures import classify
from tuner.ray_backend.heartbeat import SILENT, STUCK, UNBORN, HeartbeatWatch, end_process
from tuner.ray_backend.session import start
from tuner.ray_backend.trainable import WorkerUnfit, failure


class Heartbeats:
    """A clock, and workers whose heartbeats are as the test says."""

    def __init__(self) -> None:
        self.now, self.counts = 0.0, {1: 0, 2: 0}
        self.watch = HeartbeatWatch(
            lambda host, pid: str(self.counts[pid]).encode(), lambda: self.now
        )
        self.watch.started("t0001", "here", 1)
        self.watch.started("t0002", "here", 2)

    def pass_time(self, seconds: float, beating: tuple[int, ...] = ()) -> dict[str, str]:
        found: dict[str, str] = {}
        for _ in range(int(seconds / 5)):
            self.now += 5
            for pid in beating:
                self.counts[pid] += 1
            found = self.watch.silent(["t0001", "t0002"])
        return found


def test_a_worker_without_a_heartbeat_is_found_and_the_others_are_not() -> None:
    heartbeats = Heartbeats()
    assert heartbeats.pass_time(600, beating=(1, 2)) == {}
    assert heartbeats.pass_time(SILENT, beating=(1,)) == {}
    found = heartbeats.pass_time(10, beating=(1,))
    assert list(found) == ["t0002"] and "no sign of life from its worker for" in found["t0002"]


def test_a_training_that_hangs_is_found_by_its_results() -> None:
    heartbeats = Heartbeats()
    found: dict[str, str] = {}
    for _ in range(int(STUCK / 60) + 1):
        heartbeats.watch.heard("t0001")
        found = heartbeats.pass_time(60, beating=(1, 2))
    assert list(found) == ["t0002"] and "nothing was heard of its work" in found["t0002"]


def test_a_driver_that_slept_does_not_blame_its_workers() -> None:
    heartbeats = Heartbeats()
    heartbeats.pass_time(20, beating=(1, 2))
    heartbeats.now += 10 * STUCK
    assert heartbeats.watch.silent(["t0001", "t0002"]) == {}
    assert heartbeats.pass_time(SILENT - 10) == {}


def test_where_heartbeats_cannot_be_read_a_worker_is_judged_by_its_results_only() -> None:
    heartbeats = Heartbeats()
    heartbeats.watch.read = lambda host, pid: None
    assert heartbeats.pass_time(5 * SILENT) == {}


def test_a_worker_that_was_stopped_before_its_first_count_is_found_in_minutes() -> None:
    heartbeats = Heartbeats()
    heartbeats.watch.read = lambda host, pid: b"" if pid == 2 else b"1"
    assert heartbeats.pass_time(SILENT) == {}  # a machine may be slow at first
    heartbeats.watch.heard("t0001")
    found = heartbeats.pass_time(UNBORN + 10 - SILENT)
    assert "t0002" in found and "no sign of life from its worker for" in found["t0002"]


def test_a_worker_that_nobody_can_place_is_watched_all_the_same() -> None:
    heartbeats = Heartbeats()
    for trial in ("t0001", "t0002"):
        heartbeats.watch.started(trial, "", None)
    assert heartbeats.pass_time(UNBORN) == {}
    heartbeats.watch.heard("t0001")
    assert list(heartbeats.pass_time(10)) == ["t0002"]
    heartbeats.watch.placed("t0002", "here", 2)
    assert heartbeats.pass_time(10, beating=(2,)) == {}  # it was only slow to say where it is
    heartbeats.watch.heard("t0002")
    found: dict[str, str] = {}
    for _ in range(int(STUCK / 60) + 1):
        found = heartbeats.pass_time(60, beating=(2,))
        heartbeats.watch.heard("t0002")
    assert list(found) == ["t0001"] and "nothing was heard of its work" in found["t0001"]


def test_only_workers_are_ended() -> None:
    end_process(os.getpid())  # no process of Ray's, so nothing happens


# --- what the scheduler does with it ------------------------------------------------------------


class FakeEngine:
    def __init__(self) -> None:
        self.draining: str | None = None
        self.live: dict[str, Any] = {"t0001": 1}
        self.said: list[str] = []
        self.now_paused: list[str] = []

    def warn(self, line: str) -> None:
        self.said.append(line)

    def tick(self) -> None:
        pass

    def heartbeat(self, name: str, examples: int, doing: str) -> None:
        pass

    def paused(self, name: str) -> None:
        del self.live[name]
        self.now_paused.append(name)


@pytest.fixture
def scheduled() -> tuple[RungScheduler, FakeEngine, Any, list[str]]:
    engine = FakeEngine()
    scheduler = RungScheduler(engine)  # type: ignore[arg-type]
    ended: list[str] = []
    scheduler.watch.end = lambda trial, actor: ended.append(trial)  # type: ignore[method-assign]
    trial = SimpleNamespace(
        trial_id="t0001", status=Trial.RUNNING, temporary_state=SimpleNamespace(ray_actor=None)
    )
    controller = SimpleNamespace(stopped=[])
    controller.stop_trial = controller.stopped.append
    scheduler.on_trial_add(controller, trial)  # type: ignore[arg-type]
    return scheduler, engine, trial, ended


BEAT = {"record": '{"heartbeat": true, "doing": "training", "examples": 7}'}


def test_a_trial_whose_machine_will_go_is_saved_and_moves_on(
    scheduled: tuple[RungScheduler, FakeEngine, Any, list[str]],
) -> None:
    scheduler, engine, trial, _ = scheduled
    scheduler.nodes["t0001"] = "node-a"
    scheduler.leave({"node-b"})
    assert scheduler.on_trial_result(None, trial, BEAT) == TrialScheduler.CONTINUE
    scheduler.leave({"node-a"})
    scheduler.leave({"node-a"})
    assert engine.said == ["t0001: its machine is about to go; it is saved and moves on"]
    assert scheduler.controller._reuse_actors is False  # else it would be back there at once
    assert scheduler.on_trial_result(None, trial, BEAT) == TrialScheduler.PAUSE
    trial.status = Trial.PAUSED
    scheduler.settle()
    assert engine.now_paused == ["t0001"] and scheduler.controller.stopped == [trial]
    assert scheduler.controller._reuse_actors is True


def test_a_worker_that_does_not_say_where_it_is_is_looked_up_until_it_is_found(
    scheduled: tuple[RungScheduler, FakeEngine, Any, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, engine, trial, _ = scheduled
    table: list[tuple[str, int | None, dict[str, Any]]] = [("", None, {})]
    for ask in ("whereabouts", "entry_of"):
        monkeypatch.setattr(adapters, ask, lambda actor: table[-1])
    assert scheduler.began(trial) == ("", None, {})
    scheduler.leave({"node-a"})
    scheduler.end_silent()
    assert not engine.said and scheduler.watch.unplaced(["t0001"]) == ["t0001"]
    table.append(("far away", 7, {"machine": "node-a", "address": "10.0.0.7"}))
    scheduler.end_silent()
    assert scheduler.watch.workers["t0001"].pid == 7
    scheduler.leave({"node-a"})
    assert "its machine is about to go" in engine.said[0]


def test_a_worker_that_is_stopped_is_in_rays_table(
    ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray as cluster

    @cluster.remote(num_cpus=0)
    class Stopped:
        def where(self) -> tuple[str, int, dict[str, Any]]:
            return socket.gethostname(), os.getpid(), {}

    actor: Any = Stopped.remote()
    _, pid, _ = adapters.whereabouts(actor)
    assert pid is not None
    monkeypatch.setattr(adapters, "PATIENCE", 0.2)
    os.kill(pid, signal.SIGSTOP)
    try:
        host, found, more = adapters.whereabouts(actor)
    finally:
        end_process(pid)
    assert (host, found) == (socket.gethostname(), pid)
    assert more["machine"] == cluster.get_runtime_context().get_node_id()


def test_saving_has_a_bound(
    scheduled: tuple[RungScheduler, FakeEngine, Any, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, engine, trial, ended = scheduled
    now = [0.0]
    monkeypatch.setattr(adapters.time, "monotonic", lambda: now[0])
    stopper = DrainStopper(engine, scheduler)  # type: ignore[arg-type]
    monkeypatch.setattr(stopper, "_look_around", lambda: None)
    engine.draining = "interrupted"
    assert stopper.stop_all() is False and not ended
    now[0] += adapters.DRAINED + 1
    assert stopper.stop_all() is False
    assert ended == ["t0001"] and "goes on from its last checkpoint" in engine.said[0]
    trial.status = Trial.ERROR
    monkeypatch.setattr(scheduler, "_lost", lambda trial: None)
    assert stopper.stop_all() is True


# --- errors of the machine ----------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES, errno.ESTALE])
def test_an_error_of_the_operating_system_is_not_the_trials_own(number: int) -> None:
    assert failure(OSError(number, os.strerror(number)))["kind"] == "infrastructure"
    assert failure(FolderInUse("x", ["in use"]))["kind"] == "infrastructure"
    assert failure(FileNotFoundError(errno.ENOENT, "no such file"))["kind"] == "code"
    assert failure(OSError(errno.ENOSPC, "full"))["kind"] == "disk"


def test_an_error_of_the_machine_is_seen_through_what_a_reader_made_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks.yaml").write_text("tasks: {}")

    def refused(*given: Any, **more: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as starved:
        starved.setattr(untrusted.os, "open", refused)
        with pytest.raises(InputError) as told:
            read_yaml(tmp_path / "tasks.yaml")
    assert failure(told.value)["kind"] == "infrastructure"
    with pytest.raises(InputError) as told:
        read_yaml(tmp_path / "nobody.yaml")
    assert failure(told.value)["kind"] == "code"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Error while loading: Too many open files (os error 24)", "infrastructure"),
        ("Error while serializing: I/O error: No space left on device (os error 28)", "disk"),
        ("No such file or directory (os error 2)", "code"),
        ("Error while deserializing header: header too large", "code"),
    ],
)
def test_what_libraries_say_of_the_machine_in_words_only_is_understood(
    said: str, kind: str
) -> None:
    assert failure(SafetensorError(said))["kind"] == kind
    try:
        raise InputError("model", ["cannot be loaded"]) from Exception(said)
    except InputError as error:
        assert failure(error)["kind"] == kind


def test_a_worker_that_is_unfit_is_told_from_a_trial_that_failed() -> None:
    cause = WorkerUnfit("OSError: [Errno 5] Input/output error")
    told = RayTaskError("step", "Traceback", cause).as_instanceof_cause()
    assert classify(told) == {
        "kind": "infrastructure",
        "reason": "OSError: [Errno 5] Input/output error",
    }
    assert classify(RayTaskError("step", "Traceback", KeyError("x")))["kind"] == "code"


# --- Ray that does not start --------------------------------------------------------------------


class Starved:
    def __init__(self, fails: int) -> None:
        self.fails, self.places, self.shut = fails, list[str](), 0

    def init(self, **options: Any) -> None:
        self.places.append(Path(options["_temp_dir"]).name)
        if len(self.places) <= self.fails:
            raise RuntimeError("The current node timed out\nduring startup.\n" * 30)

    def shutdown(self) -> None:
        self.shut += 1


def test_ray_that_does_not_start_is_tried_again_and_then_one_sentence(tmp_path: Path) -> None:
    once = Starved(1)
    start(once, None, tmp_path)
    assert once.places == ["ray", "ray1"] and once.shut == 1
    with pytest.raises(OSError, match="Ray did not start on this machine .*; free some") as told:
        start(Starved(9), None, tmp_path)
    assert "\n" not in str(told.value) and len(str(told.value)) < 400
