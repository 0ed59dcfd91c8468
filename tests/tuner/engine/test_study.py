from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as S

from model.common.errors import InputError
from tests.tuner.made_up_runs import (
    FakeSpace,
    NarrowSpace,
    begin,
    close,
    create,
    create_suggested,
    evaluate,
    live_through,
    score_of,
    suggest_next,
)
from tuner.engine import study as module
from tuner.engine.study import SAMPLERS, TASK_GP, freeze, make_sampler, rebuild_study, seed_for
from tuner.engine.study_file import StudyFile
from tuner.runs import schema
from tuner.runs.ledger import Ledger, RunState, read_events

SPACE = FakeSpace()
AVAILABLE = [name for name in SAMPLERS if name != "cmaes" or find_spec("cmaes")]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    begin(ledger)
    return ledger


def test_the_ledger_knows_the_samplers_that_there_are() -> None:
    assert set(schema.SAMPLERS) == {TASK_GP, *SAMPLERS}


def no_warning(message: str) -> None:
    raise AssertionError(message)


# --- samplers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AVAILABLE)
def test_every_sampler_is_made_without_a_word(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(make_sampler(name, 1), optuna.samplers.BaseSampler)
    assert capsys.readouterr() == ("", "")


def test_the_default_is_multivariate_grouped_and_lies_about_running_trials() -> None:
    sampler = make_sampler("tpe", 1)
    assert isinstance(sampler, optuna.samplers.TPESampler)
    assert sampler._multivariate and sampler._group and sampler._constant_liar


def test_samplers_that_cannot_be_had_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'tpee' is not a sampler; did you mean 'tpe'"):
        make_sampler("tpee", 1)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs the package cmaes: pip install cmaes"):
        make_sampler("cmaes", 1)
    with pytest.raises(InputError, match="needs the package torch and scipy"):
        make_sampler("gp", 1)
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    with pytest.raises(InputError, match="one objective, but there are 2; choose one of gp, nsga2"):
        make_sampler("cmaes", 1, objectives=2)


def test_every_trial_has_a_seed_of_its_own() -> None:
    assert len({seed_for(seed, number) for seed in range(20) for number in range(50)}) == 1000


# --- suggestions --------------------------------------------------------------------------------


def search(
    path: Path, count: int, sampler: str, objectives: list[str], slots: int = 3, seed: int = 3
) -> None:
    """A small search with several trials at once that end in all kinds of ways."""
    rng = random.Random(0)
    with Ledger(path) as ledger:
        begin(ledger, sampler=sampler, objectives=objectives, seed=seed)
        while ledger.state.next_number < count or ledger.state.open_trials:
            going = ledger.state.open_trials
            if ledger.state.next_number < count and len(going) < slots:
                create_suggested(ledger)
                continue
            trial = rng.choice(going)
            score = score_of(ledger, trial.id, trial.examples + 100)
            evaluate(ledger, trial.id, trial.examples + 100, score)
            if trial.examples >= 200:
                how = rng.choices(["finished", "stopped", "failed"], [8, 3, 1])[0]
                close(ledger, trial.id, how, rng.choice(["code", "memory"]))


@pytest.mark.parametrize("objectives", [["overall"], ["mood", "near"]], ids=len)
@pytest.mark.parametrize("name", AVAILABLE)
def test_a_rebuilt_search_suggests_what_the_first_one_did(
    tmp_path: Path, name: str, objectives: list[str]
) -> None:
    if name in module.ONE_OBJECTIVE and len(objectives) > 1:
        pytest.skip("takes one objective")
    path = tmp_path / "ledger.jsonl"
    search(path, 30 if name == "nsga2" else 14, name, objectives)
    events = read_events(path)
    made = [i for i, event in enumerate(events) if event["event"] == "created"]
    assert len(made) >= 14
    for index in made:
        state = RunState.from_events(events[:index])
        again = suggest_next(state, SPACE)
        assert again.number == events[index]["number"]
        assert again.params == events[index]["params"]
        assert again.settings == events[index]["settings"]


@pytest.mark.parametrize("name", [n for n in AVAILABLE if n in module.STATEFUL])
def test_a_sampler_with_notes_has_them_as_in_a_study_that_lived(ledger: Ledger, name: str) -> None:
    begin(ledger, resumed=True, sampler=name)
    living = optuna.create_study(direction="maximize")
    rng = random.Random(1)
    going: list[tuple[optuna.Trial, str]] = []
    for number in range(45):
        living.sampler = make_sampler(name, seed_for(3, number))
        asked = living.ask()
        _ = asked.relative_params
        SPACE.suggest(asked)
        if any(asked.params == trial.params for trial in ledger.state.trials.values()):
            assert number > 20  # a repeat: here ours goes another way
            return
        trial = create_suggested(ledger)
        assert ledger.state.trials[trial].params == asked.params
        going.append((asked, trial))
        if len(going) == 3:
            asked, trial = going.pop(rng.randrange(3))
            score = score_of(ledger, trial, 100)
            evaluate(ledger, trial, 100, score)
            fails = rng.random() < 0.2
            living.tell(asked, None if fails else score, state=S.FAIL if fails else S.COMPLETE)
            close(ledger, trial, "failed" if fails else "finished")


@pytest.mark.parametrize("name", [n for n in AVAILABLE if n not in ("random", "nsga2")])
def test_a_sampler_learns_from_what_it_is_shown(tmp_path: Path, name: str) -> None:
    """Scores grow with the weight (0 to 10), so later suggestions must lie above the middle."""
    weights: list[float] = []
    for seed in range(1 if name == "gp" else 3):
        path = tmp_path / f"{seed}.jsonl"
        search(path, 36, name, ["overall"], slots=2, seed=seed)
        trials = RunState.from_events(read_events(path)).trials.values()
        weights += [trial.params["weight"] for trial in trials][18:]
    assert sum(weights) / len(weights) > 6


def test_other_seeds_and_numbers_suggest_other_points(ledger: Ledger) -> None:
    first = suggest_next(ledger.state, SPACE)
    assert suggest_next(ledger.state, SPACE) == first
    ledger.state.seed = 4
    assert suggest_next(ledger.state, SPACE).params != first.params


@pytest.mark.parametrize("name", AVAILABLE)
def test_a_known_point_is_taken_and_what_it_leaves_out_is_suggested(
    ledger: Ledger, name: str
) -> None:
    begin(ledger, sampler=name, resumed=True)
    for _ in range(12):
        trial = create_suggested(ledger, {"weight": 5.0, "sizes": "8-16-8"})
        evaluate(ledger, trial, 100, 0.5)
        close(ledger, trial, "finished")
    made = [trial.params for trial in ledger.state.trials.values()]
    assert all(params["weight"] == 5.0 and params["sizes"] == "8-16-8" for params in made)
    assert len({params["rate"] for params in made}) > 6  # some samplers come back to a point
    assert all(trial.settings["sizes"] == [8, 16, 8] for trial in ledger.state.trials.values())


def draws_after_failures(path: Path, kind: str) -> int:
    """How many of 40 suggestions take up the list with which four trials failed."""
    rng = random.Random(0)
    with Ledger(path) as ledger:
        begin(ledger)
        for number in range(12):
            sizes = "16-16-10" if number < 4 else "4-4-4"
            params = {"rate": 10 ** rng.uniform(-5, -2), "weight": rng.uniform(0, 10)}
            trial = create(ledger, params=params | {"sizes": sizes})
            if number < 4:
                close(ledger, trial, "failed", kind)
            else:
                evaluate(ledger, trial, 100, rng.random())
                close(ledger, trial, "finished")
    drawn = []
    for seed in range(40):
        ledger.state.seed = seed
        drawn.append(suggest_next(ledger.state, SPACE).params["sizes"])
    return drawn.count("16-16-10")


def test_a_point_that_did_not_fit_into_memory_is_avoided(tmp_path: Path) -> None:
    unrelated = draws_after_failures(tmp_path / "code", "code")
    assert draws_after_failures(tmp_path / "memory", "memory") < unrelated / 3
    assert draws_after_failures(tmp_path / "diverged", "diverged") < unrelated / 3


def test_a_trial_that_was_lost_leaves_its_number_free_for_nobody(tmp_path: Path) -> None:
    for name in ("tpe", "nsga2"):
        path = tmp_path / f"{name}.jsonl"
        search(path, 8, name, ["overall"])
        events = [
            e for e in read_events(path) if (e["event"], e.get("trial")) != ("created", "t0002")
        ]
        state = RunState.from_events(events, lambda message: None)
        assert suggest_next(state, SPACE).number == 8
        assert rebuild_study(state, SPACE).trials[2].state == S.FAIL


def test_nothing_of_a_suggestion_reaches_the_state(ledger: Ledger) -> None:
    create(ledger)
    before = repr(vars(ledger.state))
    suggest_next(ledger.state, SPACE)
    assert repr(vars(ledger.state)) == before


# --- the study ----------------------------------------------------------------------------------


def test_every_trial_is_in_its_right_state(ledger: Ledger) -> None:
    for how in ("finished", "stopped", "failed", ""):
        trial = create(ledger)
        for examples, score in [(100, 0.5), (200, 0.7), (300, 0.6)]:
            evaluate(ledger, trial, examples, score)
        if how:
            close(ledger, trial, how)
    create(ledger, number=None, origin="confirm", of="t0000")
    finished, stopped, failed, running, again = rebuild_study(ledger.state, SPACE).trials
    curve = {100: 0.5, 200: 0.7, 300: 0.6}

    assert (finished.state, finished.value) == (S.COMPLETE, 0.7)  # the checkpoint that is kept
    assert finished.user_attrs["checkpoint"] == "c000200"
    assert (stopped.state, stopped.value) == (S.PRUNED, 0.6)  # what Optuna's own tell would give
    assert stopped.user_attrs["reason"] == "too low"
    assert (failed.state, failed.value) == (S.FAIL, None)
    assert failed.user_attrs["kind"] == "code"
    assert (running.state, running.value) == (S.RUNNING, None)
    assert (again.state, again.user_attrs["of"]) == (S.RUNNING, "t0000")
    for number, found in enumerate([finished, stopped, failed, running]):
        assert found.intermediate_values == curve
        assert found.user_attrs["trial"] == f"t{number:04d}"
        assert found.user_attrs["examples"] == 300
        assert found.params == {"rate": 1e-3, "weight": 1.0, "sizes": "4-4-4"}
        created = ledger.state.trials[f"t{number:04d}"].created
        assert found.datetime_start is not None
        assert found.datetime_start.timestamp() == pytest.approx(created)


def test_a_default_that_wins_the_final_is_the_study_s_best(ledger: Ledger) -> None:
    begin(ledger, resumed=True, rungs=[[100, 2], [300, 1]])
    default = create(ledger, number=None, params={}, origin="default")
    other = create(ledger)
    for trial, score in ((default, 0.6), (other, 0.5)):
        evaluate(ledger, trial, 100, score)
        close(ledger, trial, "finished")
    more = {"origin": "promoted", "of": default, "level": 1}
    final = create(ledger, number=None, params={}, **more)
    evaluate(ledger, final, 300, 0.7)
    close(ledger, final, "finished")
    again = create(ledger, number=None, params={}, origin="confirm", of=default, seed=9, level=1)
    evaluate(ledger, again, 300, 0.9)
    close(ledger, again, "finished")
    study = rebuild_study(ledger.state, SPACE)
    assert (study.best_trial.number, study.best_value) == (2, 0.7)  # a repeat is no rival
    assert [t.state for t in study.trials] == [S.PRUNED, S.PRUNED, S.COMPLETE, S.PRUNED]
    for trial in (study.trials[0], study.best_trial):
        assert trial.params == {"rate": 1e-3, "sizes": "4-4-4"}
        assert trial.user_attrs["outside the space"] == {"weight": 11.0}
    shown = rebuild_study(ledger.state, SPACE, for_sampler=True)
    assert [trial.user_attrs["trial"] for trial in shown.trials] == [other]


def test_a_pruned_value_is_the_one_that_optuna_tells(ledger: Ledger) -> None:
    trial = create(ledger)
    evaluate(ledger, trial, 100, 0.7)
    evaluate(ledger, trial, 200, 0.6)
    study = rebuild_study(ledger.state, SPACE)
    told = study.tell(0, state=S.PRUNED)
    close(ledger, trial, "stopped")
    assert rebuild_study(ledger.state, SPACE).trials[0].values == told.values


def test_one_task_as_the_objective_is_chosen_by_that_task(ledger: Ledger) -> None:
    begin(ledger, resumed=True, objectives=["near"])
    trial = create(ledger)
    evaluate(ledger, trial, 100, 0.9, mood=0.9, near=0.1)
    evaluate(ledger, trial, 200, 0.5, mood=0.1, near=0.8)
    close(ledger, trial, "finished")
    assert rebuild_study(ledger.state, SPACE).trials[0].value == 0.8


def test_several_objectives_take_the_values_of_the_best_overall(ledger: Ledger) -> None:
    begin(ledger, resumed=True, objectives=["mood", "near"])
    for how in ("finished", "stopped"):
        trial = create(ledger)
        evaluate(ledger, trial, 100, 0.9, mood=0.7, near=0.2)
        evaluate(ledger, trial, 200, 0.5, mood=0.1, near=0.8)
        close(ledger, trial, how)
    finished, stopped = rebuild_study(ledger.state, SPACE).trials
    assert finished.values == [0.7, 0.2]
    assert (stopped.state, stopped.values) == (S.PRUNED, None)
    assert stopped.user_attrs["curve"] == [[100, pytest.approx(0.45)], [200, pytest.approx(0.45)]]
    assert [t.number for t in rebuild_study(ledger.state, SPACE).best_trials] == [0]


def test_a_trial_that_finished_without_an_evaluation_failed(ledger: Ledger) -> None:
    close(ledger, create(ledger), "finished")
    assert rebuild_study(ledger.state, SPACE).trials[0].state == S.FAIL


def test_a_point_outside_the_space_is_kept_out_of_the_model(ledger: Ledger) -> None:
    for sizes in ("4-4-4", "16-16-10"):
        trial = create(ledger, params={"rate": 1e-3, "weight": 1.0, "sizes": sizes})
        evaluate(ledger, trial, 100, 0.5)
        close(ledger, trial, "finished")
    fits, misfit = rebuild_study(ledger.state, NarrowSpace()).trials
    assert fits.state == S.COMPLETE
    assert (misfit.state, misfit.params) == (S.FAIL, {})
    assert misfit.user_attrs["reason"] == "its point does not fit the search space"
    assert misfit.user_attrs["trial"] == "t0001"


# --- the file -----------------------------------------------------------------------------------


def load(path: Path) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(path)))
    return optuna.load_study(study_name="made-up", storage=storage)


def seen(trials: list[FrozenTrial]) -> list[Any]:
    return [
        (
            t.number,
            t.state,
            t.values,
            t.params,
            t.distributions,
            t.intermediate_values,
            t.user_attrs,
        )
        for t in trials
    ]


def feed_live(path: Path, events: list[dict[str, Any]]) -> RunState:
    """What a driver does: an event into the state, and its trial into the file."""
    first = next(i for i, event in enumerate(events) if event["event"] == "run")
    state = RunState.from_events(events[: first + 1])
    file = StudyFile(path, state, SPACE, no_warning)
    for event in events[first + 1 :]:
        state.apply(event)
        if "trial" in event:
            file.update(state.trials[event["trial"]])
    return state


@pytest.mark.parametrize("objectives", [["overall"], ["mood", "near"]], ids=len)
def test_the_file_that_was_fed_is_the_file_that_is_rebuilt(
    tmp_path: Path, objectives: list[str]
) -> None:
    ledger, fed, rebuilt = (tmp_path / name for name in ("ledger.jsonl", "fed", "rebuilt"))
    live_through(ledger, moves=110, seed=4, sampled=True, objectives=objectives)
    events = read_events(ledger)
    state = feed_live(fed, events)
    StudyFile(rebuilt, state, SPACE, no_warning)
    assert seen(load(fed).trials) == seen(load(rebuilt).trials)
    assert seen(load(fed).trials) == seen(rebuild_study(state, SPACE).trials)
    assert {t.state for t in load(fed).trials} == {S.COMPLETE, S.PRUNED, S.FAIL, S.RUNNING}
    assert load(fed).metric_names == objectives


def test_the_file_is_open_to_optuna_while_it_grows(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "study.journal"
    file = StudyFile(path, ledger.state, SPACE, no_warning)
    reader = load(path)
    trial = create(ledger)
    file.update(ledger.state.trials[trial])
    assert [t.state for t in reader.trials] == [S.RUNNING]
    evaluate(ledger, trial, 100, 0.5)
    file.update(ledger.state.trials[trial])
    assert reader.trials[0].intermediate_values == {100: 0.5}
    close(ledger, trial, "finished")
    file.update(ledger.state.trials[trial])
    file.update(ledger.state.trials[trial])  # again: nothing to do
    assert reader.best_value == 0.5


def test_a_file_that_goes_while_it_is_fed_is_made_anew(tmp_path: Path, ledger: Ledger) -> None:
    path = tmp_path / "study.journal"
    said: list[str] = []
    file = StudyFile(path, ledger.state, SPACE, said.append)
    file.update(ledger.state.trials[create(ledger)])
    path.unlink()
    trial = ledger.state.trials[create(ledger)]
    file.update(trial)
    for examples in (100, 200):
        evaluate(ledger, trial.id, examples, 0.5)
        file.update(trial)
    assert seen(load(path).trials) == seen(rebuild_study(ledger.state, SPACE).trials)
    assert len(said) == 1


def test_another_process_reads_the_file_with_optuna_alone(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    state = live_through(tmp_path / "ledger.jsonl", moves=60, seed=6, sampled=True)
    StudyFile(path, state, SPACE, no_warning)
    script = (
        "import sys, optuna\n"
        "from optuna.storages import JournalStorage\n"
        "from optuna.storages.journal import JournalFileBackend\n"
        "storage = JournalStorage(JournalFileBackend(sys.argv[1]))\n"
        "study = optuna.load_study(study_name='made-up', storage=storage)\n"
        "print(len(study.trials), study.best_trial.user_attrs['trial'])\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    best = state.best_trial()
    assert best is not None
    assert found.stdout.split() == [str(len(state.trials)), best.id]


def test_importances_work_with_lists_by_their_labels(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    search(path, 30, "random", ["overall"])
    StudyFile(tmp_path / "study.journal", RunState.from_events(read_events(path)), SPACE)
    importances = optuna.importance.get_param_importances(load(tmp_path / "study.journal"))
    assert set(importances) >= {"rate", "weight", "sizes"}
    assert max(importances, key=lambda name: importances[name]) == "weight"


@pytest.mark.parametrize("harm", ["torn", "gone", "garbage"])
def test_a_harmed_file_is_made_anew_at_the_next_start(
    tmp_path: Path, ledger: Ledger, harm: str
) -> None:
    path = tmp_path / "study.journal"
    StudyFile(path, ledger.state, SPACE).update(ledger.state.trials[create(ledger)])
    if harm == "torn":
        path.write_bytes(path.read_bytes()[:-7])
    elif harm == "gone":
        path.unlink()
    else:
        path.write_bytes(b"\0\1\2")
    os.symlink(path, tmp_path / "study.journal.lock")  # as a killed writer leaves it
    file = StudyFile(path, ledger.state, SPACE, no_warning)
    assert not os.path.lexists(tmp_path / "study.journal.lock")
    file.update(ledger.state.trials[create(ledger)])
    assert len(load(path).trials) == 2


def test_a_file_that_cannot_be_written_does_not_stop_the_search(
    tmp_path: Path, ledger: Ledger
) -> None:
    path = tmp_path / "later" / "study.journal"
    warnings: list[str] = []
    file = StudyFile(path, ledger.state, SPACE, warnings.append)
    file.update(ledger.state.trials[create(ledger)])
    assert len(warnings) == 1 and "the search goes on" in warnings[0]
    path.parent.mkdir()
    file.update(ledger.state.trials[create(ledger)])
    assert len(load(path).trials) == 2
    path.write_bytes(b"garbage\n" + path.read_bytes())
    for _ in range(2):
        file.update(ledger.state.trials[create(ledger)])
    assert len(load(path).trials) == 4


@pytest.mark.parametrize("name", AVAILABLE)
def test_nothing_is_pickled_and_no_sampler_notes_are_on_disk(tmp_path: Path, name: str) -> None:
    ledger = tmp_path / "ledger.jsonl"
    search(ledger, 14, name, ["overall"])
    feed_live(tmp_path / "study.journal", read_events(ledger))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ledger.jsonl", "study.journal"]
    for line in (tmp_path / "study.journal").read_text(encoding="ascii").splitlines():
        assert not json.loads(line).get("system_attrs")
        assert "system_attr" not in json.loads(line) or "metric_names" in line
    assert b"cma" not in (tmp_path / "study.journal").read_bytes().replace(b"made-up", b"")


def test_more_than_a_hundred_trials_leave_no_snapshot(tmp_path: Path, ledger: Ledger) -> None:
    """Optuna's journals on other media are snapshotted with pickle at each hundredth trial."""
    path = tmp_path / "study.journal"
    file = StudyFile(path, ledger.state, SPACE, no_warning)
    for _ in range(105):
        file.update(ledger.state.trials[create(ledger)])
    assert len(load(path).trials) == 105
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ledger.jsonl", "study.journal"]


def test_optuna_is_as_loud_afterwards_as_before(ledger: Ledger) -> None:
    before = optuna.logging.get_verbosity()
    suggest_next(ledger.state, SPACE)
    assert optuna.logging.get_verbosity() == before
    assert freeze(ledger.state.trials[create(ledger)], SPACE, ledger.state).state == S.RUNNING
