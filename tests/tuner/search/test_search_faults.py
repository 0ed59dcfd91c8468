"""What a search survives: the command in processes of its own, most with Ray, killed for real."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from tests.faults.fatal_points import forked
from tests.tuner.moments import Moment
from tests.tuner.search_runs import (
    SAME,
    SMALL,
    TRIALS,
    Started,
    assert_whole,
    events,
    is_alive,
    open_study,
    run_here,
    state_of,
)
from tuner.runs.ledger import Ledger

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("scratch"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
KILLS = 5
WITH_RAY = 2  # of them, whose workers outlive the driver; the others are of the same driver without


def killed_in_a_fork(storage: Path, flags: Sequence[str], nth: int, seconds: float) -> None:
    """Killed so long after the nth event of this start."""

    def work(writer: int) -> None:
        moment, append = Moment(nth=nth), Ledger.append

        def told(ledger: Ledger, event: str, **fields: Any) -> Any:
            written = append(ledger, event, **fields)
            if moment.comes(event, fields):
                Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return written

        Ledger.append = told  # type: ignore[method-assign]
        os.write(writer, repr(run_here(storage, *flags)).encode())

    assert forked(work) == b""


def test_a_driver_killed_five_times_ends_like_one_left_alone(
    tmp_path: Path, undisturbed: Path
) -> None:
    draws = random.Random(20)
    folder = tmp_path / "default"
    for kill in range(KILLS):
        # Anywhere between the first line of this start and a few trials later.
        flags = (*SAME, "--resume") if events(folder) else SAME
        nth, seconds = draws.randint(1, 6), draws.uniform(0, 0.3)
        if kill >= WITH_RAY:
            killed_in_a_fork(tmp_path, flags, nth, seconds)
            continue
        search = Started.start(tmp_path, *flags, hold=[Moment(nth=nth)], workers=2)
        search.wait_until_held()
        search.go_on()
        time.sleep(seconds)
        assert search.process.poll() is None, f"before kill {kill + 1}: {search.finish()[1]}"
        search.kill()
    done = run_here(tmp_path, *SAME, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TRIALS} of {TRIALS} configurations" in done.stdout
    assert_whole(folder, undisturbed)
    assert state_of(folder).starts == KILLS + 1


# A worker that is silent is given up sooner than usual, and one trial's first worker is unfit.
UNFIT = """
import tuner.ray_backend.heartbeat, tuner.ray_backend.trainable
from tests.faults.faulty_trials import UnfitTrial
tuner.ray_backend.heartbeat.SILENT = 20.0
tuner.ray_backend.trainable.SearchTrial = UnfitTrial
"""


def test_trials_whose_workers_are_killed_stopped_or_unfit_go_on_and_end_the_same(
    tmp_path: Path, undisturbed: Path
) -> None:
    # One is killed twice, and one stopped. At that moment each waits for the driver's answer.
    stopped = "t0000"
    which = (stopped, 1), ("t0002", 1), ("t0002", 2), ("t0004", 1)
    moments = [Moment("evaluated", *each) for each in which]
    search = Started.start(tmp_path, *SAME, first=UNFIT, hold=moments, workers=2)
    pids = []
    for _ in moments:
        search.wait_until_held()
        victim = search.new("evaluated")[-1]["trial"]
        pids.append([e["pid"] for e in search.new("started") if e["trial"] == victim][-1])
        os.kill(pids[-1], signal.SIGSTOP if victim == stopped else signal.SIGKILL)
        search.go_on()
    code, said = search.finish()
    assert code == 0, said
    assert "it goes on from its last checkpoint" in said
    assert "no sign of life from its worker for" in said
    assert "Input/output error" in said  # of a disk that fails for a moment
    assert not any(map(is_alive, pids))
    assert_whole(search.folder, undisturbed)
    trials = state_of(search.folder).trials
    assert trials["t0002"].attempts >= 3
    assert trials[stopped].attempts >= 2 and trials["t0001"].attempts >= 2
    assert "failed" not in {e["event"] for e in events(search.folder)}


def test_a_second_driver_is_refused_and_a_third_takes_over_after_a_crash(
    tmp_path: Path,
) -> None:
    flags = (*SMALL, "--num-samples", "3")
    first = Started.start(tmp_path, *flags, hold=[Moment("started")], ray=False)
    first.wait_until_held()
    # Others may look on meanwhile, through Optuna's own interface.
    assert open_study(first.folder).trials
    before = {p.name for p in first.folder.iterdir() if not p.name.endswith(".tmp")}
    second = run_here(tmp_path, *flags, "--resume")
    assert second.returncode == 2
    assert f"in use by process {first.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert before <= {p.name for p in first.folder.iterdir()}
    first.kill()
    assert (first.folder / "lock").exists()
    third = run_here(tmp_path, *flags, "--resume")
    assert third.returncode == 0, third.stderr
    assert "taken over" in third.stderr
    assert len(state_of(first.folder).search_trials) == 3
    assert not (first.folder / "lock").exists()
