from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from model.common.errors import InputError
from tuner.runs import lock as module
from tuner.runs.folder import write_run
from tuner.runs.lock import Deposed, RunLock, check_holder, start_of

HOLD = """
import sys, time
from pathlib import Path
from tuner.runs.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()  # until it is killed
"""
# Many at once: who gets it says so, and holds it until all have tried.
COMPETE = """
import sys, time
from pathlib import Path
from model.common.errors import InputError
from tuner.runs.lock import RunLock
print("ready", flush=True)
while not Path(sys.argv[2]).exists():
    time.sleep(0.001)
try:
    with RunLock(Path(sys.argv[1]), lambda line: None):
        print("held", flush=True)
        sys.stdin.read()
except InputError:
    print("refused", flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def other(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def rewrite(path: Path, **changes: Any) -> None:
    """A lock like the one there, but another file, which no kernel lock is on."""
    data = json.loads(path.read_text()) | changes
    path.unlink()
    path.write_text(json.dumps(data) + "\n")


def no_warning(message: str) -> None:
    raise AssertionError(message)


def test_a_lock_is_there_while_it_is_held(path: Path) -> None:
    with RunLock(path, no_warning):
        data = json.loads(path.read_text())
        assert (data["pid"], data["host"]) == (os.getpid(), socket.gethostname())
        assert abs(data["since"] - time.time()) < 60
    assert list(path.parent.iterdir()) == []
    with RunLock(path, no_warning):
        pass


def test_a_second_driver_is_told_who_holds_it(path: Path, other: subprocess.Popen[str]) -> None:
    with pytest.raises(InputError) as caught:
        RunLock(path, no_warning).acquire()
    since = time.strftime("%Y-%m-%d ", time.localtime(json.loads(path.read_text())["since"]))
    expected = f"in use by process {other.pid} on {socket.gethostname()} since {since}"
    assert expected in str(caught.value) and str(path) in str(caught.value)
    assert json.loads(path.read_text())["pid"] == other.pid


def test_the_same_process_cannot_take_it_twice(path: Path) -> None:
    with RunLock(path), pytest.raises(InputError, match=f"process {os.getpid()} "):
        RunLock(path).acquire()


def test_the_lock_of_a_killed_driver_is_taken_over(
    path: Path, other: subprocess.Popen[str]
) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    warnings: list[str] = []
    with RunLock(path, warnings.append):
        assert json.loads(path.read_text())["pid"] == os.getpid()
        with pytest.raises(InputError, match=f"process {os.getpid()} "):
            RunLock(path).acquire()
    assert len(warnings) == 1
    assert f"left by process {other.pid} on " in warnings[0] and "taken over" in warnings[0]
    assert list(path.parent.iterdir()) == []


def test_a_killed_driver_that_nobody_waited_for_is_gone_too(
    path: Path, other: subprocess.Popen[str]
) -> None:
    other.send_signal(signal.SIGKILL)
    stat = Path(f"/proc/{other.pid}/stat")
    if stat.exists():  # still a zombie, as its parent does not ask
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
    with RunLock(path, lambda message: None):
        pass


def test_a_pid_that_belongs_to_another_process_now_is_no_holder(
    path: Path, other: subprocess.Popen[str]
) -> None:
    rewrite(path, started="some boot 12345")  # the pid is alive, but it is not the same process
    warnings: list[str] = []
    with RunLock(path, warnings.append):
        pass
    assert len(warnings) == 1


def test_an_old_lock_of_another_host_is_refused_with_the_remedy(
    path: Path, other: subprocess.Popen[str]
) -> None:
    rewrite(path, host="node-7", pid=1, beat="")  # as versions wrote it that did not count
    with pytest.raises(InputError) as caught:
        RunLock(path, no_warning).acquire()
    assert "process 1 on node-7 since " in str(caught.value)
    assert f"if you are sure that it is dead, remove {path}" in str(caught.value)
    path.unlink()
    with RunLock(path, no_warning):
        pass


@pytest.mark.skipif(not find_spec("fcntl"), reason="no kernel locks here")
def test_a_process_that_cannot_be_seen_is_felt_by_its_lock(
    path: Path, other: subprocess.Popen[str]
) -> None:
    """As from another container: the same host by name, but its pids are not ours."""
    data = json.loads(path.read_text()) | {"pid": 2**22 + 1}
    with open(path, "r+") as file:  # the same file, so that the other's lock stays on it
        file.write(json.dumps(data) + "\n")
        file.truncate()
    with pytest.raises(InputError, match="cannot be seen from here but holds the lock; if you"):
        RunLock(path, no_warning).acquire()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}\n', "\0\0\0"])
def test_a_lock_that_was_never_written_to_the_end_is_taken_over(
    path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    path.write_text(content)
    warnings: list[str] = []
    with RunLock(path, warnings.append):
        pass
    assert warnings == [f"{path}: a lock left by a crash; taken over"]


@pytest.mark.parametrize("before", ["free", "stale"])
@pytest.mark.parametrize("kernel", [True, False])
def test_of_many_drivers_at_once_one_gets_it(path: Path, before: str, kernel: bool) -> None:
    if before == "stale":
        data = {"pid": 2**22 + 1, "host": socket.gethostname(), "started": "x", "since": 1.0}
        path.write_text(json.dumps(data) + "\n")
    without_flock = "import tuner.runs.lock as lock\nlock.fcntl = None\nwhile"
    script = COMPETE if kernel else COMPETE.replace("while", without_flock, 1)
    go = path.with_name("go")
    command = [sys.executable, "-c", script, str(path), str(go)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    rivals = [subprocess.Popen(command, **pipes) for _ in range(6)]
    lines: list[Any] = [rival.stdout for rival in rivals]
    assert [line.readline() for line in lines] == ["ready\n"] * 6
    go.touch()
    said = sorted(line.readline().strip() for line in lines)
    for rival in rivals:
        rival.communicate()  # and whoever holds it leaves
    assert said == ["held"] + ["refused"] * 5
    assert not path.exists()


def test_file_systems_without_locks_make_do(
    path: Path, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*args: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with pytest.raises(InputError, match=f"in use by process {other.pid} "):
        RunLock(path, no_warning).acquire()
    other.kill()
    other.wait()
    with RunLock(path, lambda message: None):
        pass


def test_someone_elses_lock_is_not_released(path: Path) -> None:
    lock = RunLock(path)
    lock.acquire()
    path.unlink()
    path.write_text("another's")
    lock.release()
    lock.release()
    assert path.read_text() == "another's"


def test_a_forked_child_does_not_release_it(path: Path) -> None:
    lock = RunLock(path)
    lock.acquire()
    lock._pid += 1  # what a child finds: a lock that another process took
    lock.release()
    assert path.exists()


def test_the_start_of_a_process_tells_it_from_others() -> None:
    assert start_of(os.getpid()) == start_of(os.getpid()) is not None
    assert start_of(os.getpid()) != start_of(1)
    assert start_of(2**22 + 1) is None


def test_without_proc_the_start_is_asked_of_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        found = "Mon Mar  3 10:00:00 2025\n" if command[-1] == "7" else ""
        return subprocess.CompletedProcess(command, 0, stdout=found)

    monkeypatch.setattr(subprocess, "run", answer)
    assert module._start_by_ps(7) == "Mon Mar  3 10:00:00 2025"
    assert module._start_by_ps(8) is None

    def missing(*args: object, **options: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    unsure = module._start_by_ps(8)
    monkeypatch.setattr(module, "start_of", lambda pid: unsure)
    assert module._is_alive(module.Holder(8, "here", "", 0.0))  # nothing can be told: not stale


# --- a lease: where neither the process nor its lock can be seen ----------------------------------


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT", 0.05)
    monkeypatch.setattr(module, "LEASE", 1.0)


def test_the_lock_of_a_container_that_is_gone_is_taken_over(path: Path, brisk: None) -> None:
    with RunLock(path, no_warning):
        rewrite(path, host="container-1", pid=7)
    assert json.loads(path.read_text())["host"] == "container-1"  # not ours to remove any more
    told: list[str] = []
    with RunLock(path, told.append):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert "Waiting up to 1 s for a sign of it" in told[0]
    assert "left by process 7 on container-1" in told[1] and "taken over" in told[1]


def test_the_lock_of_another_host_that_counts_on_is_held(
    path: Path, brisk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE", 60.0)
    monkeypatch.setattr(module, "lock_file", lambda file: True)  # a file system without locks
    with RunLock(path, no_warning):
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        with pytest.raises(InputError, match="which is at work; wait for it, or end it there"):
            RunLock(path, lambda line: None).acquire()


def test_a_driver_whose_lock_was_taken_over_finds_out_and_leaves_it_alone(
    path: Path, brisk: None
) -> None:
    slept = RunLock(path, no_warning)
    slept.acquire()
    slept.check()
    rewrite(path, host="elsewhere", pid=7)
    with pytest.raises(module.Deposed, match="another driver has taken this run over; this driver"):
        slept.check()
    slept.release()
    assert json.loads(path.read_text())["host"] == "elsewhere"
    with pytest.raises(module.Deposed, match="not held"):
        slept.check()


def test_a_copy_of_a_live_run_is_called_one(path: Path, other: subprocess.Popen[str]) -> None:
    copy = path.with_name("copied-lock")
    copy.write_bytes(path.read_bytes())
    with pytest.raises(InputError, match="If this folder is a copy of that run's, remove"):
        RunLock(copy, no_warning).acquire()


def test_a_machine_whose_name_holds_a_secret_knows_its_own_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are compared as they are, and hidden where they are told."""
    monkeypatch.setenv("POSTGRES_PASSWORD", "stockpot")
    monkeypatch.setattr("socket.gethostname", lambda: "stockpot-head-7f9c")
    lock = RunLock(path, lambda line: None)
    lock.acquire()
    assert lock.holder is not None and lock.holder.host == "stockpot-head-7f9c"
    write_run(path.parent, {"space": "default"}, {}, epoch=1)
    check_holder(path.parent, lock.holder, 1)
    lock.check()
    assert "stockpot" not in str(lock.holder)
    lock.release()


def test_workers_of_a_deposed_driver_are_told_before_they_write(path: Path) -> None:
    first, second = RunLock(path, lambda line: None), RunLock(path, lambda line: None)
    first.acquire()
    mine = first.holder
    assert mine is not None
    write_run(path.parent, {"space": "default"}, {}, epoch=1)
    check_holder(path.parent, mine, 1)
    first.beat()
    check_holder(path.parent, mine, 1)  # it counts on, and is the same
    first.release()
    check_holder(path.parent, mine, 1)  # nobody has had it since: a worker may save what it has
    second.acquire()
    with pytest.raises(Deposed, match="another driver .* has taken this run over"):
        check_holder(path.parent, mine, 1)
    write_run(path.parent, {"space": "default"}, {}, epoch=2)
    second.release()
    with pytest.raises(Deposed, match="another driver has had this run meanwhile"):
        check_holder(path.parent, mine, 1)
