"""`--study-storage`: a search whose study is in a database too, whatever befalls either."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
import pytest
from optuna.trial import TrialState as S

from model.common.secrets import hide
from tests.tuner.made_up_runs import FakeSpace, begin, close, create, evaluate
from tests.tuner.postgres_server import PASSWORD, Postgres
from tests.tuner.search_runs import SAME, SMALL, Started, open_study, run_here
from tuner.engine.database.place import StudyPlace
from tuner.engine.study import quiet
from tuner.runs.ledger import Ledger
from tuner.search import study_storage as module
from tuner.search.study_storage import mirrored_study

FEW = (*SMALL, "--num-samples", "2", "--sampler", "random")
MOST_SEARCHED = 1 << 18  # characters
# Its third trial never begins, so there is time for what else goes on in that process.
WAITS = """
import signal
from tuner.runs.ledger import Ledger
append = Ledger.append
def waiting(ledger, event, **fields):
    if (event, fields.get("trial")) == ("started", "t0002"):
        signal.pause()
    return append(ledger, event, **fields)
Ledger.append = waiting
"""
NO_ONE = f"postgresql://keeper:{quote(PASSWORD, safe='')}@127.0.0.1:1/x"


def shown(study: Any) -> list[tuple[Any, ...]]:
    return [
        (t.number, t.state, t.values, t.params, t.intermediate_values, t.user_attrs)
        for t in study.get_trials()
    ]


def in_database(url: str, name: str) -> list[tuple[Any, ...]]:
    """As anybody would read it, without anything of ours."""
    with quiet():
        study = optuna.load_study(study_name=name, storage=url)
        found = shown(study)
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined]
    return found


def begun(url: str) -> bool:
    try:
        return any(trial[1].is_finished() for trial in in_database(url, "default"))
    except Exception:  # there is no such study yet, or its tables are just being made
        return False


def told(where: Path, words: str) -> list[str]:
    """Files and texts that hold the password, in whatever form."""
    texts = {"what it said": words.encode()}
    texts |= {str(path): path.read_bytes() for path in where.rglob("*") if path.is_file()}
    return [name for name, text in texts.items() if holds(text.decode("latin-1"))]


def holds(text: str) -> bool:
    """Of what is large, as weights, only as it is."""
    return PASSWORD in text or (len(text) < MOST_SEARCHED and hide(text, [PASSWORD]) != text)


# --- a search -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_leaves_its_study_in_a_database_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/studies.db"
    done = run_here(tmp_path / "runs", *FEW, "--study-storage", url)
    assert done.returncode == 0
    assert {line.split()[0] for line in done.stderr.splitlines()} <= {"loading", "looking"}
    assert in_database(url, "default") == shown(open_study(tmp_path / "runs" / "default"))
    again = run_here(tmp_path / "more", *FEW, "--study-storage", url)
    assert again.returncode == 2 and "which belongs to another run" in again.stderr
    assert not (tmp_path / "more").exists()


@pytest.mark.slow
def test_a_search_that_is_killed_and_resumed_has_nothing_twice(
    tmp_path: Path, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed for real, and a real PostgreSQL with a password."""
    url = postgres_server.new_database()
    monkeypatch.setenv("STUDIES", url)
    flags = (*SAME, "--study-storage", "env:STUDIES")
    first = Started.start(tmp_path, *flags, first=WAITS, ray=False)
    assert first.wait_for(lambda: len(first.new("finished")) >= 2), first.finish()
    assert first.wait_for(lambda: begun(url)), first.finish()  # while the search goes on
    first.kill()
    there = in_database(url, "default")
    done = run_here(tmp_path, *flags, "--resume")
    assert done.returncode == 0, done.stderr
    own, mirrored = shown(open_study(tmp_path / "default")), in_database(url, "default")
    assert mirrored == own and [trial[1] for trial in own] == [S.COMPLETE] * 6
    ended = [trial for trial in there if trial[1].is_finished()]
    assert all(trial in mirrored for trial in ended)
    assert told(tmp_path, done.stdout + done.stderr) == []


def test_a_password_on_the_command_line_is_written_and_said_nowhere(
    tmp_path: Path, postgres_server: Postgres
) -> None:
    """Not even when the search is stopped, and says how to go on."""
    url = postgres_server.new_database()
    done = run_here(tmp_path, *FEW, "--study-storage", url, "--time-budget-s", "0.001")
    assert "--resume" in done.stderr and "--study-storage" in done.stderr
    assert told(tmp_path, done.stdout + done.stderr) == []


def test_a_database_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    done = run_here(tmp_path / "runs", *FEW, "--study-storage", NO_ONE)
    assert done.returncode == 2 and "cannot be used (" in done.stderr
    assert "leave the flag out" in done.stderr
    assert not (tmp_path / "runs").exists() and told(tmp_path, done.stderr) == []


# --- the thread -----------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "made-up").mkdir()
    return Ledger(tmp_path / "made-up" / "ledger.jsonl")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTEST", 0.05)
    monkeypatch.setattr(module, "LONGEST", 0.05)


def live(ledger: Ledger, trials: int) -> None:
    for _ in range(trials):
        name = create(ledger)
        evaluate(ledger, name, 100, 0.5)
        close(ledger, name, "finished")


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.usefixtures("quick")
def test_a_server_that_goes_away_and_comes_back_gets_everything(
    ledger: Ledger, postgres_server: Postgres
) -> None:
    url, warnings = postgres_server.new_database(), list[str]()
    with ledger, mirrored_study(StudyPlace(url), ledger, FakeSpace(), warnings.append):
        begin(ledger)
        live(ledger, 2)
        postgres_server.stop()
        try:
            live(ledger, 2)
            wait_for(lambda: warnings)
        finally:
            postgres_server.start()
        live(ledger, 2)
    own = [trial.params for trial in ledger.state.trials.values()]
    mirrored = in_database(url, "made-up")
    assert [trial[3] for trial in mirrored] == own
    assert [trial[2] for trial in mirrored] == [[0.5]] * 6
    (said,) = warnings  # once
    assert "the search goes on, and it is tried again" in said
    assert not holds(said)


@pytest.mark.usefixtures("quick")
def test_a_server_that_stays_away_costs_a_sentence_and_no_more(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    place, warnings = StudyPlace(f"sqlite:///{tmp_path}/x.db"), list[str]()

    def fail(self: Any) -> Any:
        raise OSError("no route to host")

    monkeypatch.setattr(StudyPlace, "open", fail)
    with ledger, mirrored_study(place, ledger, FakeSpace(), warnings.append):
        begin(ledger)
        live(ledger, 3)
    assert len(ledger.state.closed_trials) == 3
    first, last = warnings
    assert "not written (no route to host)" in first
    assert "is behind the ledger; to bring it up: " in last
    assert f"--to optuna --out sqlite:///{tmp_path}/x.db" in last


def test_a_study_that_somebody_else_makes_meanwhile_is_left_alone(
    ledger: Ledger, tmp_path: Path
) -> None:
    url, warnings = f"sqlite:///{tmp_path}/x.db", list[str]()
    place = StudyPlace(url)
    with quiet():
        study = optuna.create_study(study_name="made-up", storage=url)
        study.enqueue_trial({})
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined]
    with ledger, mirrored_study(place, ledger, FakeSpace(), warnings.append):
        begin(ledger)
        live(ledger, 1)
    assert "belongs to no run" in warnings[0] and warnings[0].endswith("no longer written")
    assert len(in_database(url, "made-up")) == 1


def test_a_search_that_began_nothing_leaves_nothing(ledger: Ledger, tmp_path: Path) -> None:
    place, warnings = StudyPlace(f"sqlite:///{tmp_path}/x.db"), list[str]()
    with ledger, mirrored_study(place, ledger, FakeSpace(), warnings.append):
        pass
    assert warnings == [] and not (tmp_path / "x.db").exists()
