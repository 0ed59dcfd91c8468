"""What a search survives: the real command in real processes, killed for real."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.tuner.search_runs import (
    SAME,
    SMALL,
    TRIALS,
    Started,
    assert_whole,
    events,
    open_study,
    run_here,
    state_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("scratch")]
KILLS = 5


def test_a_driver_killed_five_times_ends_like_one_left_alone(
    tmp_path: Path, undisturbed: Path
) -> None:
    draws = random.Random(20)
    folder = tmp_path / "default"
    kills = 0
    while kills < KILLS:
        search = Started.start(tmp_path, *SAME, *(["--resume"] if events(folder) else []))
        # Anywhere between the first line of this start and a few trials later.
        enough = draws.randint(1, 6)
        alive = search.wait_for(lambda s=search, n=enough: len(s.new()) >= n)
        if alive:
            time.sleep(draws.uniform(0, 0.3))
            alive = search.process.poll() is None
        assert alive, f"ended before kill {kills + 1}: {search.finish()[1]}"
        search.kill()
        kills += 1
    done = run_here(tmp_path, *SAME, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TRIALS} of {TRIALS} trials" in done.stdout
    assert_whole(folder, undisturbed)
    assert state_of(folder).starts == KILLS + 1


def test_a_trial_whose_worker_is_killed_goes_on_and_ends_the_same(
    tmp_path: Path, undisturbed: Path
) -> None:
    search = Started.start(tmp_path, *SAME)
    victims = []
    for name in ("t0002", "t0002", "t0004"):  # one of them twice
        search.wait_for(lambda n=name: len(reports(search, n)) > victims.count(n))
        victims.append(name)
        pid = [e["pid"] for e in search.new("started") if e["trial"] == name][-1]
        os.kill(pid, signal.SIGKILL)
        search.wait_for(lambda n=name: starts(search, n) > victims.count(n))
    code, said = search.finish()
    assert code == 0, said
    assert "it goes on from its last checkpoint" in said
    assert_whole(search.folder, undisturbed)
    assert state_of(search.folder).trials["t0002"].attempts == 3
    assert "failed" not in {e["event"] for e in events(search.folder)}


def reports(search: Started, trial: str) -> list[int]:
    return [e["examples"] for e in search.new("evaluated") if e["trial"] == trial]


def starts(search: Started, trial: str) -> int:
    return sum(e["trial"] == trial for e in search.new("started"))


def test_a_second_driver_is_refused_and_a_third_takes_over_after_a_crash(
    tmp_path: Path,
) -> None:
    flags = (*SMALL, "--num-samples", "3")
    first = Started.start(tmp_path, *flags)
    assert first.wait_for(lambda: first.new("started"))
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
