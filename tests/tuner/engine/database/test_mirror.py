"""The study in a database: what the ledger says, whatever was there before."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as S

from model.common.errors import InputError
from tests.tuner.made_up_runs import FakeSpace, begin, close, create, evaluate, live_through
from tuner.engine.database.mirror import StudyMirror, check_place
from tuner.engine.database.place import StudyPlace
from tuner.engine.study import quiet, rebuild_study
from tuner.runs.ledger import Ledger, read_events, run_key
from tuner.runs.state import RunState

SPACE = FakeSpace()
WRITES = (
    *("create_new_study", "set_study_user_attr", "create_new_trial", "delete_study"),
    *("set_trial_intermediate_value", "set_trial_user_attr", "set_trial_state_values"),
)


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/studies.db"


def state_of(events: list[dict[str, Any]]) -> RunState:
    return RunState.from_events(events, lambda line: None)


def mirror_of(url: str, events: list[dict[str, Any]]) -> StudyMirror:
    return StudyMirror(StudyPlace(url), SPACE, run_key(events[0]))


def write(url: str, events: list[dict[str, Any]]) -> None:
    """As a new process would."""
    mirror = mirror_of(url, events)
    mirror.write(state_of(events))
    mirror.close()


def read(url: str, name: str = "made-up") -> list[FrozenTrial]:
    """As anybody would, without anything of ours."""
    with quiet():
        study = optuna.load_study(study_name=name, storage=url)
        trials = study.get_trials()
    storage: Any = study._storage
    storage._backend.engine.dispose()
    return trials


def shown(trial: FrozenTrial) -> tuple[Any, ...]:
    same = (trial.number, trial.state, trial.values, trial.params, trial.distributions)
    return (*same, trial.intermediate_values, trial.user_attrs)


def wanted(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [shown(trial) for trial in rebuild_study(state_of(events), SPACE).trials]


def a_life(tmp_path: Path, moves: int = 60, seed: int = 1, **run: Any) -> list[dict[str, Any]]:
    live_through(tmp_path / "ledger.jsonl", moves, seed, longer=True, **run)
    return read_events(tmp_path / "ledger.jsonl")


def test_the_study_in_a_database_is_that_of_the_run(tmp_path: Path, url: str) -> None:
    events = a_life(tmp_path, 160, rungs=[[100, 9], [300, 3]])
    write(url, events)
    trials = read(url)
    assert [shown(trial) for trial in trials] == wanted(events)
    assert {S.COMPLETE, S.PRUNED, S.FAIL, S.RUNNING} == {trial.state for trial in trials}


def test_of_several_objectives_it_has_all_values(tmp_path: Path, url: str) -> None:
    events = a_life(tmp_path, objectives=["mood", "near"])
    write(url, events)
    assert [shown(trial) for trial in read(url)] == wanted(events)
    with quiet():
        study = optuna.load_study(study_name="made-up", storage=url)
        assert study.metric_names == ["mood", "near"] and study.best_trials
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined]


def test_again_changes_nothing(tmp_path: Path, url: str) -> None:
    events = a_life(tmp_path)
    write(url, events)
    before = read(url)
    write(url, events)
    assert read(url) == before  # Optuna's own ids and times too


def test_event_by_event_by_one_writer_or_by_many_it_comes_to_the_same(
    tmp_path: Path, sqlite: str
) -> None:
    events = a_life(tmp_path, 40)
    mirror = mirror_of(sqlite, events)
    for count in range(1, len(events) + 1):
        now, last = events[:count], events[count - 1]
        if count % 7 == 0:  # it was killed, and another one begins
            mirror.close()
            mirror = mirror_of(sqlite, events)
        changed = [last["trial"]] if "trial" in last else None
        mirror.write(state_of(now), changed)
    mirror.close()
    assert [shown(trial) for trial in read(sqlite)] == wanted(events)


class Killed(BaseException):
    pass


@pytest.fixture
def kill(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """`kill[0] = 3`: at the third write from now on, which then never happens."""
    left = [-1]

    def counted(name: str) -> Any:
        real = getattr(RDBStorage, name)

        def write(self: RDBStorage, *given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return real(self, *given, **named)

        return write

    for name in WRITES:
        monkeypatch.setattr(RDBStorage, name, counted(name))
    yield left


@pytest.mark.parametrize("at", [1, 2, 3, 5, 9, 17, 33])
def test_killed_at_any_write_the_next_one_goes_on(
    tmp_path: Path, sqlite: str, kill: list[int], at: int
) -> None:
    events = a_life(tmp_path)
    half = events[: len(events) // 2]
    for known in (half, events):
        kill[0] = at
        try:
            write(sqlite, known)
        except Killed:
            pass
    kill[0] = -1
    write(sqlite, events)
    assert [shown(trial) for trial in read(sqlite)] == wanted(events)


def test_what_the_ledger_says_otherwise_by_now_is_made_anew(tmp_path: Path, url: str) -> None:
    """A ledger that was cut back with --force, and went on in another way."""
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        begin(ledger)
        for _ in range(3):
            name = create(ledger)
            evaluate(ledger, name, 100, 0.5)
            close(ledger, name, "finished")
    events = read_events(path)
    write(url, events)
    write(url, events[:4])  # one trial
    assert len(read(url)) == 1
    changed = [dict(event) for event in events]
    changed[5]["score"] = 0.6
    write(url, changed)
    assert [trial.value for trial in read(url)] == [0.5, 0.6, 0.5]


def test_the_study_of_another_is_left_alone(tmp_path: Path, url: str) -> None:
    events = a_life(tmp_path)
    with quiet():
        study = optuna.create_study(study_name="made-up", storage=url)
        study.enqueue_trial({"x": 1})
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="a study 'made-up' already, which belongs to no run"):
        write(url, events)
    with pytest.raises(InputError, match="give the run another --name"):
        check_place(StudyPlace(url), "made-up", None)
    assert len(read(url)) == 1
    check_place(StudyPlace(url), "another", None)


def test_a_run_of_the_same_name_is_told_from_the_first(tmp_path: Path, sqlite: str) -> None:
    events = a_life(tmp_path)
    write(sqlite, events)
    other = [{**events[0], "time": events[0]["time"] + 1}, *events[1:]]
    with pytest.raises(InputError, match="belongs to another run"):
        write(sqlite, other)
    check_place(StudyPlace(sqlite), "made-up", run_key(events[0]))
    with pytest.raises(InputError, match="belongs to another run"):
        check_place(StudyPlace(sqlite), "made-up", None)


def test_attributes_that_others_have_added_stay(tmp_path: Path, sqlite: str) -> None:
    events = a_life(tmp_path)
    write(sqlite, events)
    with sqlite3.connect(tmp_path / "studies.db") as database:
        row = ("liked", "true")
        database.execute(
            "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (1, ?, ?)", row
        )
    database.close()
    write(sqlite, events)
    assert read(sqlite)[0].user_attrs["liked"] is True


def test_two_writers_at_once_are_noticed_and_set_right(tmp_path: Path, sqlite: str) -> None:
    events = a_life(tmp_path)
    half = events[: len(events) // 2]
    first, second = mirror_of(sqlite, events), mirror_of(sqlite, events)
    for mirror in (first, second):
        mirror.write(state_of(half))
    first.write(state_of(events))
    with pytest.raises(RuntimeError):  # of a trial that has ended, or has another number
        second.write(state_of(events))
    first.close()
    write(sqlite, events)
    assert [shown(trial) for trial in read(sqlite)] == wanted(events)


def test_a_look_writes_nothing(tmp_path: Path, sqlite: str) -> None:
    check_place(StudyPlace(sqlite), "made-up", None)
    assert not (tmp_path / "studies.db").exists()
