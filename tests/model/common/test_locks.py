from __future__ import annotations

import errno
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.common.locks import file_lock

HOLD = """
import sys, time
from pathlib import Path
from model.common.locks import file_lock
with file_lock(Path(sys.argv[1])) as taken:
    print(taken, flush=True)
    time.sleep(60)
"""


def other_process(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None and other.stdout.readline() == "True\n"
    return other


def test_a_lock_is_for_one_at_a_time(tmp_path: Path) -> None:
    with file_lock(tmp_path / "lock") as first:
        with file_lock(tmp_path / "lock") as second:
            assert (first, second) == (True, False)
    with file_lock(tmp_path / "lock") as again:
        assert again


def test_the_lock_of_a_process_that_died_is_free_and_one_that_lives_is_waited_for(
    tmp_path: Path,
) -> None:
    other = other_process(tmp_path / "lock")
    try:
        began = time.monotonic()
        with file_lock(tmp_path / "lock", wait=0.3) as taken:
            assert taken is False and time.monotonic() - began >= 0.3
        other.send_signal(signal.SIGKILL)
        with file_lock(tmp_path / "lock", wait=60) as taken:
            assert taken
    finally:
        other.kill()
        other.communicate()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def unsupported(*args: object) -> None:
        raise OSError(code, "no locks here")

    monkeypatch.setattr("fcntl.flock", unsupported)
    for _ in range(2):
        with file_lock(tmp_path / "lock") as taken:
            assert taken is None


def test_a_file_that_cannot_be_opened_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(OSError), file_lock(tmp_path / "lock"):
        pass
