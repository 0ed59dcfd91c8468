"""What a search survives: the real command in real processes, killed and stopped for real."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.tuner.search_runs import (
    FIXED,
    SMALL,
    Started,
    curves_of,
    events,
    is_alive,
    open_study,
    run_command,
    state_of,
    weights_of,
)
from tuner.ray_session import PREFIX, sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TRIALS = 6
KILLS = 5
SAME = (*FIXED, "--num-samples", str(TRIALS), "--seed", "5")


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever was killed on the way, nothing of Ray's is left at the end."""
    place = Path(tempfile.mkdtemp(prefix="s", dir="/tmp"))  # short, for Ray's sockets
    monkeypatch.setenv("TMPDIR", str(place))
    yield
    # What a killed driver left goes when the next one starts, and its processes with it.
    deadline = time.monotonic() + 20
    while (left := list(place.glob(f"{PREFIX}*"))) and time.monotonic() < deadline:
        sweep(place)
        time.sleep(0.1)
    shutil.rmtree(place, ignore_errors=True)
    assert not left


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("undisturbed")
    done = run_command(storage, *SAME)
    assert done.returncode == 0, done.stdout + done.stderr
    return storage / "default"


def assert_whole(folder: Path, undisturbed: Path) -> None:
    """Nothing lost, nothing twice, nothing open, and the same to the byte."""
    state = state_of(folder)
    assert len(state.trials) == TRIALS
    assert state.counts() == {"open": 0, "finished": TRIALS, "stopped": 0, "failed": 0}
    closings = [e["trial"] for e in events(folder) if e["event"] == "finished"]
    assert sorted(closings) == sorted(state.trials)
    study = open_study(folder)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * (TRIALS - 1)
    other = state_of(undisturbed)
    assert [t.params for t in state.trials.values()] == [t.params for t in other.trials.values()]
    assert curves_of(folder) == curves_of(undisturbed)
    assert weights_of(folder) == weights_of(undisturbed)


def test_a_driver_killed_five_times_ends_like_one_left_alone(
    tmp_path: Path, undisturbed: Path
) -> None:
    draws = random.Random(20)
    folder = tmp_path / "default"
    kills = 0
    while kills < KILLS:
        search = Started.start(tmp_path, *SAME, *(["--resume"] if events(folder) else []))
        # Anywhere between the first line of this start and a few trials later.
        enough = draws.randint(1, 9)
        alive = search.wait_for(lambda s=search, n=enough: len(s.new()) >= n)
        if alive:
            time.sleep(draws.uniform(0, 0.3))
            alive = search.process.poll() is None
        assert alive, f"ended before kill {kills + 1}: {search.finish()[1]}"
        search.kill()
        kills += 1
    done = run_command(tmp_path, *SAME, "--resume")
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


def test_signals_drain_and_nothing_is_lost(tmp_path: Path, undisturbed: Path) -> None:
    for number, group in ((signal.SIGTERM, False), (signal.SIGINT, True)):
        search = Started.start(tmp_path, *SAME, *(["--resume"] if group else []))
        assert search.wait_for(lambda s=search: len(s.new("evaluated")) >= 3)
        live = {e["trial"] for e in search.new("started")}
        workers = {e["pid"] for e in search.new("started")}
        search.signal(number, group)
        code, said = search.finish(60)
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
        assert all_gone(workers)
    done = run_command(tmp_path, "--resume")  # all else is in run.yaml
    assert done.returncode == 0, done.stdout + done.stderr
    assert_whole(tmp_path / "default", undisturbed)


def test_sigterm_outside_of_the_trials_is_answered_too(tmp_path: Path) -> None:
    flags = ("--encoder", "tiny", "--max-examples", "96", "--num-samples", "2", "--no-report")
    resume = f"python -m tuner.search --resume --name default --storage-path {tmp_path}"
    early = Started.start(tmp_path / "early", *flags)
    assert early.wait_for(lambda: (early.folder / "lock").exists())  # Ray comes next
    early.signal(signal.SIGTERM)
    code, said = early.finish(120)
    assert code == 130 and "Traceback" not in said, said
    assert not early.folder.exists()  # there was nothing in it to go on with
    search = Started.start(tmp_path, *flags)
    assert search.wait_for(lambda: search.new("end"))  # and then the soup
    search.signal(signal.SIGTERM)
    code, said = search.finish(120)
    assert code == 130 and resume in said, said
    # On a slow machine the soup may be done before the signal is there.
    assert ("no soup: interrupted" in said or "greedy soup" in said) and "best trials" in said
    done = run_command(tmp_path, "--resume")
    assert done.returncode == 0 and "greedy soup" in done.stdout, done.stderr


def all_gone(pids: set[int], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not any(map(is_alive, pids))


def test_a_second_driver_is_refused_and_a_third_takes_over_after_a_crash(tmp_path: Path) -> None:
    flags = (*SMALL, "--num-samples", "3")
    first = Started.start(tmp_path, *flags)
    assert first.wait_for(lambda: (first.folder / "ledger.jsonl").exists())
    before = {p.name for p in first.folder.iterdir() if not p.name.endswith(".tmp")}
    second = run_command(tmp_path, *flags, "--resume")
    assert second.returncode == 2
    assert f"in use by process {first.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert before <= {p.name for p in first.folder.iterdir()}
    # Others may look on meanwhile, through Optuna's own interface.
    assert first.wait_for(lambda: len(open_study(first.folder).trials) == 2)
    first.kill()
    assert (first.folder / "lock").exists()
    third = run_command(tmp_path, *flags, "--resume")
    assert third.returncode == 0, third.stderr
    assert "taken over" in third.stderr
    assert len(state_of(first.folder).trials) == 3
    assert not (first.folder / "lock").exists()
