"""Ctrl-C, SIGTERM and SIGHUP in all parts of a search: the real command, stopped for real."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.tuner.moments import Moment
from tests.tuner.search_runs import (
    PATIENCE,
    SAME,
    Started,
    assert_whole,
    is_alive,
    run_here,
    state_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("scratch")]


def test_signals_drain_and_nothing_is_lost(tmp_path: Path, undisturbed: Path) -> None:
    later = [(signal.SIGINT, True)]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        later.insert(0, (signal.SIGHUP, True))
    for number, group in ((signal.SIGTERM, False), *later):
        moment = Moment("evaluated", nth=3 if number == signal.SIGTERM else 1)
        again = [] if number == signal.SIGTERM else ["--resume"]
        workers = 1 if again else 2
        search = Started.start(tmp_path, *SAME, *again, hold=[moment], workers=workers)
        search.wait_until_held()
        live = {e["trial"] for e in search.new("started")}
        pids = {e["pid"] for e in search.new("started")}
        search.signal(number, group)
        search.go_on()
        code, said = search.finish()
        assert code == 130, said
        resume = f"python -m tuner.search --resume --name default --storage-path {tmp_path}"
        assert resume in said
        assert "Traceback" not in said
        state = state_of(search.folder)
        assert state.ended == "interrupted"
        started = {e["trial"] for e in search.new("started")}
        assert started >= live
        running = {t for t in started if state.trials[t].status == "open"}
        assert running == {e["trial"] for e in search.new("paused")}
        assert running
        assert all_gone(pids)
    done = run_here(tmp_path, "--resume")  # all else is in run.yaml
    assert done.returncode == 0, done.stdout + done.stderr
    assert_whole(tmp_path / "default", undisturbed)


def all_gone(pids: set[int]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not any(map(is_alive, pids))


IN_RAYS_START = """
import os, signal, threading
import ray
real = ray.init
def interrupted(*given, **more):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    return real(*given, **more)
ray.init = interrupted
"""
IN_THE_SOUP = """
import os, signal
from tuner.soup import make
real = make.make_soup
def interrupted(*given, **more):
    os.kill(os.getpid(), signal.SIGTERM)
    return real(*given, **more)
make.make_soup = interrupted
"""


def test_sigterm_outside_of_the_trials_is_answered_too(tmp_path: Path) -> None:
    flags = ("--encoder", "tiny", "--max-examples", "96", "--num-samples", "2", "--no-report")
    resume = f"python -m tuner.search --resume --name default --storage-path {tmp_path}"
    early = Started.start(tmp_path / "early", *flags, first=IN_RAYS_START)
    code, said = early.finish()
    assert code == 130 and "Traceback" not in said, said
    assert not early.folder.exists()  # there was nothing in it to go on with
    search = Started.start(tmp_path, *flags, first=IN_THE_SOUP, ray=False)
    code, said = search.finish()
    assert code == 130 and resume in said, said
    assert search.new("end")
    assert "no soup: interrupted" in said and "best trials" in said
    assert "greedy soup" not in said and "Traceback" not in said
    done = run_here(tmp_path, "--resume")
    assert done.returncode == 0 and "greedy soup" in done.stdout, done.stderr
