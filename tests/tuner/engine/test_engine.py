"""What a search decides, without Ray: the engine, a trial's records, the adapters' bookkeeping."""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from optuna.trial import TrialState as S
from ray.exceptions import ActorDiedError, RayActorError
from ray.tune.experiment import Trial

from model.common.errors import InputError
from model.common.secrets import brief
from model.training.step import TrainingDiverged
from tests.tuner.made_up_runs import begin
from tuner.engine.engine import FAILURES, LEDGER, STORAGE, TIME, Engine, Limits
from tuner.engine.job import training_budget
from tuner.engine.points import Points
from tuner.engine.promotion import Promotion
from tuner.engine.stages import (
    Rung,
    Stages,
    before_the_speed_is_known,
    for_trials,
    in_full,
    stages_in,
)
from tuner.engine.study import rebuild_study
from tuner.engine.study_file import StudyFile
from tuner.ray_backend import adapters
from tuner.ray_backend.adapters import (
    DrainStopper,
    LedgerSearch,
    RungScheduler,
    evict_finished,
    whereabouts,
)
from tuner.ray_backend.failures import classify
from tuner.ray_backend.heartbeat import SILENT, HeartbeatWatch
from tuner.ray_backend.trainable import (
    NOTES,
    OUTCOME,
    Job,
    SearchTrial,
    failure,
    wait_until_free,
    with_unheard,
)
from tuner.runs.folder import LOCK, write_run
from tuner.runs.ledger import Ledger, read_events
from tuner.runs.lock import Deposed, RunLock
from tuner.runs.retention import CheckpointStore
from tuner.runs.state import DEVICE_MEMORY, INFRASTRUCTURE, RunState, TrialState
from tuner.runs.storage.storage import StorageLost
from tuner.search.__main__ import first_failure
from tuner.search.plan import stages_of_run
from tuner.space.space import Space, load_space

THREE_RUNGS = (Rung(100, 9), Rung(300, 3), Rung(900, 1))


@pytest.fixture(scope="module")
def space() -> Space:
    return load_space("default", None, {"encoder.name": "tiny"})


@pytest.fixture
def engine_of(tmp_path: Path, space: Space) -> Iterator[Callable[..., Engine]]:
    """`engine_of(slots=1)`: a driver of the run in tmp_path; the one before it is dead."""
    ledgers: list[Ledger] = []

    def make(
        stages: Stages | None = None,
        num_samples: int = 6,
        confirm: tuple[int, int] = (0, 0),
        sampler: str = "random",
        **limits: Any,
    ) -> Engine:
        stages = stages or in_full(num_samples, 400, confirm)
        for ledger in ledgers:
            ledger.close()
        ledgers.append(Ledger(tmp_path / "ledger.jsonl"))
        rungs = [[rung.examples, rung.places] for rung in stages.rungs]
        more = {"rungs": rungs, "promotion": stages.promotion, "race": list(stages.race)}
        begin(ledgers[-1], num_samples=stages.trials, sampler=sampler, **more)
        engine = Engine(
            ledger=ledgers[-1],
            space=space,
            tasks=space.task_set,
            folder=tmp_path,
            store=CheckpointStore(tmp_path),
            data=None,
            limits=Limits(**{"slots": 2, "threads": 1, **limits}),
            stages=stages,
            extra={},
            study=StudyFile(tmp_path / "study.journal", ledgers[-1].state, space),
            warn=lambda line: said.append(line),
            log=lambda line: None,
        )
        engine.said = said  # type: ignore[attr-defined]
        return engine

    said: list[str] = []
    yield make
    for ledger in ledgers:
        ledger.close()


def begin_trial(engine: Engine) -> str:
    job = engine.next_job()
    assert job is not None
    engine.started(job.trial, "host", 1)
    return job.trial


def record(examples: int, score: float) -> dict[str, Any]:
    task = {"metric": "accuracy", "value": score, "interval": [score, score]}
    return {
        "examples": examples,
        "score": score,
        "interval": [score, score],
        "tasks": {"sentiment": task},
        "checkpoint": f"step-{examples:08d}",
        "predictions": f"predictions/step-{examples:08d}.parquet",
        "seconds": 1.0,
    }


def finish_trial(engine: Engine, name: str, score: float) -> None:
    """With every task's score, as the sampler's model takes it in."""
    told = record(engine.state.trials[name].length, score)
    own = {"metric": "accuracy", "value": score, "interval": [score - 0.01, score + 0.01]}
    engine.evaluated(name, told | {"tasks": dict.fromkeys(engine.tasks.names, own)})
    engine.finished(name)


def test_the_default_comes_first_then_known_points_then_the_sampler(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of()
    origins = []
    while not engine.done:
        name = begin_trial(engine)
        origins.append(engine.state.trials[name].origin)
        engine.finished(name)
    starts = len(engine.space.start_from)
    assert starts and origins == ["default", *["start_from"] * starts, *["sampler"] * (5 - starts)]
    numbers = [trial.number for trial in engine.state.trials.values()]
    assert numbers == [None, 0, 1, 2, 3, 4]


def test_a_space_that_is_tried_whole_leaves_repeats_with_new_seeds(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(Stages((Rung(100, 12), Rung(300, 2), Rung(900, 1))), slots=1)
    told: list[str] = []
    engine.log = told.append
    runs_dry(engine, 4)
    while (job := engine.next_job()) is not None:
        length = engine.state.trials[job.trial].length or 0
        engine.started(job.trial, "host", 1)
        engine.evaluated(job.trial, record(length, 0.5 + len(engine.state.trials) / 100))
        engine.finished(job.trial)
    assert engine.done and len(engine.state.search_trials) == 5  # with the default
    assert {(t.of, t.seed) for t in engine.state.repeats} == {("t0004", 4), ("t0000", 4)}
    assert "all 5 points of the space are tried" in " ".join(told)
    assert sum(trial.length or 0 for trial in engine.state.repeats) <= 7 * 100  # of those missing
    again = RunState.from_events(read_events(engine.folder / "ledger.jsonl"))
    assert again.missing == 0 and again.num_samples == 5


def runs_dry(engine: Engine, after: int) -> None:
    """A space with so many points."""
    suggest, found = engine.suggester.next, []
    engine.suggester.next = lambda fixed=None: (  # type: ignore[method-assign]
        None if len(found) == after else found.append(suggest(fixed)) or found[-1]
    )


def test_a_small_space_by_the_clock_has_its_finals_too(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of(before_the_speed_is_known("restart"), slots=4)
    runs_dry(engine, 2)
    engine.replan = lambda pace, speed: Stages((Rung(400, 9), Rung(5000, 1)))
    names = [begin_trial(engine) for _ in range(3)]
    assert engine.next_job() is None and not engine.state.planned  # nobody knows how fast they are
    for name in names:
        engine.evaluated(name, {**record(400, 0.5), "examples_per_second": 80.0})
        engine.finished(name)
    lengths = []
    while (job := engine.next_job()) is not None:
        lengths.append(job.settings["budget.examples"])
        engine.started(job.trial, "host", 1)
        engine.evaluated(job.trial, record(lengths[-1], 0.5))
        engine.finished(job.trial)
    assert engine.done and lengths[-1] == 5000 and lengths.count(5000) == 1


def test_a_space_that_runs_dry_as_the_ledger_fails_ends_in_good_order(
    engine_of: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(slots=1)
    runs_dry(engine, 0)
    engine.finished(begin_trial(engine))

    def full(*event: Any, **fields: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(engine.ledger, "append", full)
    assert engine.next_job() is None and isinstance(engine.fatal, OSError)


def test_what_the_sampler_puts_in_place_of_a_known_point_is_its_own(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(slots=9)
    suggest = engine.suggester.next
    engine.suggester.next = lambda fixed=None: suggest()  # type: ignore[method-assign]
    origins = [engine.state.trials[begin_trial(engine)].origin for _ in range(3)]
    assert origins == ["default", "sampler", "sampler"]


def test_no_more_run_than_there_are_slots(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of(slots=2)
    first, second = begin_trial(engine), begin_trial(engine)
    assert engine.next_job() is None
    engine.finished(first)
    assert begin_trial(engine) not in (first, second)


def test_a_new_driver_goes_on_with_what_is_open_before_it_creates(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of()
    first, second = begin_trial(engine), begin_trial(engine)
    engine.evaluated(first, record(100, 0.5))
    engine.finished(second)
    engine = engine_of()
    job = engine.next_job()
    assert job is not None and job.trial == first
    assert job.known == 100  # it need not tell of that again
    assert len(engine.state.trials) == 2


def test_a_driver_that_died_and_one_that_did_not_create_the_same(
    engine_of: Callable[..., Engine], tmp_path: Path
) -> None:
    engine = engine_of(num_samples=8)
    for _ in range(5):
        engine.finished(begin_trial(engine))
    here = engine.state
    name = begin_trial(engine)
    wanted = here.trials[name].params
    lines = (tmp_path / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if f'"trial":"{name}"'.encode() not in line]
    engine.ledger.close()
    (tmp_path / "ledger.jsonl").write_bytes(b"".join(kept))
    engine = engine_of(num_samples=8)
    assert engine.state.trials[begin_trial(engine)].params == wanted


def test_a_lost_machine_costs_attempts_and_in_the_end_the_trial(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(slots=1, attempts=3)
    for attempt in range(3):
        name = begin_trial(engine)
        assert engine.state.trials[name].attempts == attempt + 1
        engine.lost(name, {"kind": "infrastructure", "reason": "its worker died"})
    trial = engine.state.trials["t0000"]
    assert (trial.status, trial.kind) == ("failed", "infrastructure")
    assert sum("goes on from its last checkpoint" in line for line in engine.said) == 2
    assert engine.draining is None and not engine.state.failures_in_a_row
    engine.lost("t0000", None)  # told twice, as Ray does
    assert begin_trial(engine) == "t0001"


def test_memory_on_a_shared_gpu_is_tried_once_more_without_neighbours(
    engine_of: Callable[..., Engine],
) -> None:
    full = {"kind": DEVICE_MEMORY, "reason": "CUDA out of memory"}
    engine = engine_of(slots=1, shared_gpu=True)
    job = engine.next_job()
    assert job is not None and not job.own_gpu
    engine.failed(job.trial, full)
    assert engine.state.trials[job.trial].status == "open"  # the sampler hears of nothing
    assert any("once more with a GPU to itself" in line for line in engine.said)
    again = engine.next_job()
    assert again is not None and (again.trial, again.own_gpu) == (job.trial, True)
    assert Job.from_config(again.as_config()) == again
    engine.failed(job.trial, full)
    assert engine.state.trials[job.trial].kind == "memory"
    alone = engine_of(slots=1, shared_gpu=False)
    name = begin_trial(alone)
    alone.failed(name, full)
    assert alone.state.trials[name].kind == "memory"
    host = engine_of(slots=1, shared_gpu=True)  # whose memory another GPU would not help
    name = begin_trial(host)
    host.failed(name, {"kind": "memory", "reason": "can't allocate memory"})
    assert host.state.trials[name].kind == "memory" and name not in host.own_gpu


def test_nothing_takes_the_place_of_a_trial_that_waits_for_a_gpu_to_itself(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(slots=2, shared_gpu=True)
    first, second = begin_trial(engine), begin_trial(engine)
    engine.failed(second, {"kind": DEVICE_MEMORY, "reason": "CUDA out of memory"})
    engine.lost(first, None)  # it waits as well, and for longer
    alone = engine.next_job()
    assert alone is not None and (alone.trial, alone.own_gpu) == (second, True)
    assert engine.next_job() is None  # a part of its GPU would go to that one
    engine.started(second, "host", 1)
    assert begin_trial(engine) == first


def test_low_rank_updates_that_rest_on_their_way_are_not_averaged(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(Stages((Rung(100, 2), Rung(400, 1)), promotion="continue"))
    trial = engine.state.trials[begin_trial(engine)]
    for base, share in (({}, 0.2), ({"encoder.adapter": "lora"}, None)):
        budget = training_budget(trial, engine.stages, base, 3)
        assert (budget.get("average.share"), budget["optim.decay"]) == (share, "wsd")


def test_what_goes_on_is_trained_alike_whatever_the_space_says_of_averages(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(Stages((Rung(100, 2), Rung(300, 2), Rung(1000, 1)), promotion="continue"))
    trial = engine.state.trials[begin_trial(engine)]
    trial.settings = {"average.share": 0, "optim.layer_decay": 0.9}
    budget = training_budget(trial, engine.stages, {}, 3)
    assert (budget["average.share"], budget["optim.layer_decay"]) == (0.2, 0.9)
    # Warm by a fifth of the first rung, not by a tenth of the whole.
    assert budget["optim.warmup"] * 1000 == pytest.approx(0.2 * 100)
    held = training_budget(trial, engine.stages, {"average.share": 0.5, "optim.warmup": 0.3}, 3)
    assert held["average.share"] == 0 and "optim.warmup" not in held


def test_a_training_in_full_is_scored_as_often_as_is_asked_for_and_a_short_one_once(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(Stages((Rung(100, 2), Rung(900, 1))))
    short = engine.state.trials[begin_trial(engine)]
    whole, base = replace(short, length=900, level=1), {"budget.eval_rows": 1000}
    every = [
        training_budget(whole, engine.stages, base, 3, n)["budget.eval_every"] for n in (None, 9)
    ]
    assert every == [450, 100]
    assert training_budget(short, engine.stages, base, 3, 9)["budget.eval_every"] == 100
    on = Stages(engine.stages.rungs, promotion="continue")
    assert training_budget(whole, on, base, 3, 9)["budget.eval_at"] == [*range(100, 1000, 100)]
    many = training_budget(whole, on, base, 3, 110)["budget.eval_at"]
    assert many == sorted(set(many)) and many[-1] == 900


def test_a_repeat_of_what_goes_on_is_trained_as_that_was_up_to_the_rung(
    engine_of: Callable[..., Engine],
) -> None:
    stages = Stages((Rung(100, 2), Rung(300, 2), Rung(1000, 1)), "continue", race=(2, 1))
    engine = engine_of(stages)
    first = engine.state.trials[begin_trial(engine)]
    again = replace(first, origin="confirm", of=first.id, length=300, level=1)
    on, repeat = (training_budget(each, stages, {}, 3) for each in (first, again))
    assert repeat["optim.decay"] == "constant"  # as wsd is before its cool-down
    assert repeat["optim.warmup"] * 300 == pytest.approx(on["optim.warmup"] * 1000)
    assert repeat["average.share"] == on["average.share"]
    assert (repeat["budget.examples"], repeat["budget.eval_every"]) == (300, 300)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "rungs",
    [((100, 9), (300, 3), (900, 1)), ((100, 6), (900, 2)), ((50, 9), (100, 5), (300, 3), (900, 1))],
)
def test_no_more_trials_rest_at_once_than_the_forecast_of_the_disk_says(
    engine_of: Callable[..., Engine], rungs: tuple[tuple[int, int], ...], seed: int
) -> None:
    stages = Stages(tuple(Rung(*rung) for rung in rungs), promotion="continue")
    engine = engine_of(stages, slots=2)
    rng, most = random.Random(seed), 0
    lengths = [rung.examples for rung in stages.rungs]
    for _ in range(200):  # or it would stand still
        if engine.done:
            break
        while job := engine.next_job():
            engine.started(job.trial, "host", 1)
        if not engine.live:  # those that will go no further were closed by that
            continue
        name = rng.choice(sorted(engine.live))
        at = next(n for n in lengths if n > engine.state.trials[name].examples)
        if engine.evaluated(name, record(at, rng.random())) and at == lengths[-1]:
            engine.finished(name)
        most = max(most, sum(trial.frozen for trial in engine.state.trials.values()))
    assert engine.done and 0 < most <= stages.most_frozen


def test_a_final_that_the_model_put_together_is_one_of_several_and_counts_as_none_asked_for(
    engine_of: Callable[..., Engine],
) -> None:
    """Killed after every trial, the next driver does what the one before would have done."""

    def finish(stages: Stages) -> list[TrialState]:
        made = []
        while not (engine := engine_of(stages, sampler="task_gp", slots=1)).done:
            trial = engine.state.trials[begin_trial(engine)]
            made.append(trial)
            weight = trial.settings.get("smart.weight", 1.0)
            dropout = trial.settings.get("encoder.dropout", 0.3)
            score = 0.5 - dropout / 2 - 0.02 * math.log10(weight) + trial.length / 1e5
            finish_trial(engine, trial.id, score)
        return made

    made = finish(Stages((Rung(100, 6), Rung(400, 3))))
    finals = [trial for trial in made if trial.level == 1]
    assert [trial.origin for trial in finals] == ["promoted", "expected", "promoted"]
    own = finals[1]
    assert own.of is None and own.number is not None
    assert own.settings not in [trial.settings for trial in made if trial is not own]
    state = engine_of(Stages((Rung(100, 6), Rung(400, 3))), sampler="task_gp").state
    assert state.missing == 0 and sum(state.counts().values()) == 6
    # With more trials it goes on: the first rung is full again, and nobody waits for ever.
    more = finish(Stages((Rung(100, 9), Rung(400, 4))))
    assert [trial.level for trial in more] == [0, 0, 0, 1]
    assert more[-1].origin == "promoted"


def test_a_space_of_listed_points_has_no_other_finals(
    engine_of: Callable[..., Engine], space: Space
) -> None:
    engine = engine_of(Stages((Rung(100, 4), Rung(400, 3))), sampler="task_gp", slots=1)
    engine.promotion.points = Points(replace(space, listed=True))
    for score in (0.3, 0.5, 0.6, 0.7, 0.7):
        name = begin_trial(engine)
        finish_trial(engine, name, score)
    assert engine.state.trials[name].level == 1  # a final, so the next could be of that kind
    assert engine.promotion.expected_best() is None
    engine.promotion = Promotion(engine.state, engine.stages, 3.0, Points(space))
    assert engine.promotion.expected_best() is not None


def test_the_default_is_in_the_race(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of(Stages((Rung(100, 4), Rung(400, 1)), race=(2, 1)), slots=1)
    for score in (0.1, 0.5, 0.6, 0.7):  # the default is the last of them
        name = begin_trial(engine)
        engine.evaluated(name, record(100, score))
        engine.finished(name)
    raced = []
    for _ in range(2):
        raced.append(engine.state.trials[begin_trial(engine)])
        engine.evaluated(raced[-1].id, record(100, 0.5))
        engine.finished(raced[-1].id)
    assert [(trial.origin, trial.of) for trial in raced] == [
        ("confirm", "t0003"),
        ("confirm", "t0000"),
    ]


def test_an_interrupted_search_costs_its_trials_no_attempts(
    engine_of: Callable[..., Engine],
) -> None:
    lost = {"kind": "infrastructure", "reason": "its worker died"}
    for pauses in (True, True, False, False):  # drained by Ctrl-C, or its driver killed
        engine = engine_of(slots=1, attempts=2)
        name = begin_trial(engine)
        if pauses:
            engine.paused(name)
    engine = engine_of(slots=1, attempts=2)
    assert begin_trial(engine) == name == "t0000"
    engine.lost(name, lost)
    assert engine.state.trials[name].status == "open"
    assert engine.state.trials[name].attempts == 5
    assert begin_trial(engine) == name
    engine.lost(name, lost)
    assert engine.state.trials[name].kind == "infrastructure"


def test_settings_that_cannot_be_built_fail_their_trial_and_no_other(
    engine_of: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(slots=1)
    real, bad_ones = Space.config, ["t0001"]

    def config(space: Space, settings: Any, *more: Any) -> Any:
        trials = engine.state.trials.values()
        if settings and (
            not bad_ones or settings in [t.settings for t in trials if t.id in bad_ones]
        ):
            raise InputError("settings", ["these two do not go together"])
        return real(space, settings, *more)

    engine.finished(begin_trial(engine))
    monkeypatch.setattr(Space, "config", config)
    assert begin_trial(engine) == "t0002"
    bad = engine.state.trials["t0001"]
    assert (bad.status, bad.kind, bad.reason) == ("failed", "code", "these two do not go together")
    assert set(engine.live) == {"t0002"}
    bad_ones.clear()  # now all but the default are
    engine = engine_of(num_samples=20)
    assert engine.next_job() is None and engine.draining == FAILURES  # and ends, if all are so


def test_what_trials_warn_of_alike_is_said_once(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of()
    engine.heard.add("skipped 3 damaged rows")  # by the driver, before the first trial
    for name in ("t0000", "t0001"):
        engine.note(name, "skipped 3 damaged rows")
        engine.note(name, "the heads of sentiment start anew")
        engine.note(name, "checkpoint step-00000100 is damaged")  # each its own
    assert engine.said == [
        "t0000: the heads of sentiment start anew",
        "t0000: checkpoint step-00000100 is damaged",
        "t0001: checkpoint step-00000100 is damaged",
    ]


def test_a_trial_passes_on_all_that_its_run_warns_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*args: Any, warn: Callable[[str], None], **options: Any) -> Iterator[dict[str, Any]]:
        warn("the budget ends before 'similarity' has its first batch")
        yield record(100, 0.5)
        warn("another")
        yield record(200, 0.5)

    monkeypatch.setattr("model.train.train", train)
    monkeypatch.setattr(SearchTrial, "_check_device", lambda self: None)  # asks Ray
    (tmp_path / "ledger.jsonl").touch()
    trial = SearchTrial.__new__(SearchTrial)
    trial.node_folder, trial.staged, trial.cache, trial.records = None, {}, None, None
    job = Job("t0000", {}, "sample", None, str(tmp_path / "trials" / "t0000"), 1)
    trial._begin(job.as_config())
    notes = [json.loads(trial.step()[NOTES]) for _ in range(3)]
    assert notes == [["the budget ends before 'similarity' has its first batch"], ["another"], []]


def test_a_trial_saves_in_its_own_drivers_epoch_only(
    engine_of: Callable[..., Engine], tmp_path: Path
) -> None:
    engine, trial = engine_of(), SearchTrial.__new__(SearchTrial)
    trial.records = None
    with RunLock(tmp_path / LOCK, lambda line: None) as lock:
        assert lock.holder is not None
        engine.driver = asdict(lock.holder)
    job = engine.next_job()
    assert job is not None
    trial._begin(job.as_config())
    write_run(tmp_path, {"space": "default"}, {}, engine.state.epoch)
    trial._check_driver()  # its driver has gone, and nobody has come since
    write_run(tmp_path, {"space": "default"}, {}, engine.state.epoch + 1)
    with pytest.raises(Deposed):
        trial._check_driver()


@pytest.fixture
def paused_trial(tmp_path: Path) -> SearchTrial:
    """A trial that cannot save itself."""

    def failing() -> Iterator[dict[str, Any]]:
        raise FileNotFoundError("checkpoints")
        yield {}

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ledger.jsonl").touch()
    trial = SearchTrial.__new__(SearchTrial)
    trial.node_folder = trial.records = None
    out = tmp_path / "run" / "trials" / "t0000"
    trial._begin(Job("t0000", {}, "sample", None, str(out), 1).as_config())
    trial.records = failing()
    return trial


def test_a_trial_that_was_stopped_gives_its_memory_back_before_the_next_one(
    paused_trial: SearchTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []

    def training() -> Iterator[dict[str, Any]]:
        try:
            yield {}
        finally:
            ended.append("run")

    give_back = "tuner.ray_backend.trainable.give_back_memory"
    monkeypatch.setattr(give_back, lambda *, device: ended.append(device))
    paused_trial.records = training()
    next(paused_trial.records)
    for _ in range(2):
        paused_trial.reset_config(paused_trial.job.as_config())
    assert ended == ["run", False]


def test_a_trial_that_cannot_be_saved_fails_only_where_the_run_is_still_there(
    paused_trial: SearchTrial, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        paused_trial.save_checkpoint(str(tmp_path))


def test_a_trial_whose_run_is_gone_is_paused_all_the_same(
    paused_trial: SearchTrial, tmp_path: Path
) -> None:
    (tmp_path / "run").rename(tmp_path / "away")
    paused_trial.save_checkpoint(str(tmp_path))
    assert (tmp_path / "trial.json").exists()
    paused_trial._start = paused_trial._folder  # type: ignore[method-assign,assignment]
    outcome = json.loads(paused_trial.step()[OUTCOME])
    assert outcome["kind"] == "storage" and "does not see the run's folder" in outcome["reason"]


def test_what_fails_because_the_run_is_gone_is_no_failure_of_the_trial(
    paused_trial: SearchTrial, tmp_path: Path
) -> None:
    (tmp_path / "run").rename(tmp_path / "away")
    outcome = json.loads(paused_trial.step()[OUTCOME])
    assert outcome == {"kind": "storage", "reason": f"{tmp_path / 'run'} is gone", "traceback": ""}


def test_lost_storage_stops_the_search_and_fails_no_trial(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(slots=2)
    first, second = begin_trial(engine), begin_trial(engine)
    engine.failed(first, {"kind": "storage", "reason": "cannot write x in s3://b/runs"})
    assert engine.draining == STORAGE
    assert set(engine.live) == {second} and engine.next_job() is None
    assert {engine.state.trials[name].status for name in (first, second)} == {"open"}
    engine.failed(second, {"kind": "storage", "reason": "cannot write y in s3://b/runs"})
    assert len([line for line in engine.said if "s3://b/runs" in line]) == 1


def test_a_mirror_in_trouble_stops_the_search(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of()
    engine.tick()
    assert engine.draining is None
    engine.store.trouble = lambda: "cannot write x in s3://b/runs"  # type: ignore[method-assign]
    engine.tick()
    assert engine.draining == STORAGE


def test_failures_in_a_row_stop_the_search_and_a_success_between_does_not(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(num_samples=20, failures=3)
    failed = {"kind": "code", "reason": "broke", "traceback": "Traceback"}
    for how in (engine.failed, engine.failed, None, engine.failed, engine.failed):
        name = begin_trial(engine)
        engine.finished(name) if how is None else how(name, failed)
        assert engine.draining is None
    engine.failed(begin_trial(engine), failed)
    assert engine.draining == FAILURES
    assert engine.next_job() is None
    # Whoever resumes has done something about it, so the count starts anew.
    engine = engine_of(num_samples=20, failures=3)
    engine.failed(begin_trial(engine), failed)
    assert engine.draining is None


def test_the_failures_that_stopped_a_search_are_told_although_another_trial_finished(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(slots=2, num_samples=20, failures=3)
    good = begin_trial(engine)
    for number in range(3):
        engine.failed(begin_trial(engine), {"kind": "code", "reason": f"broke {number}"})
    engine.finished(good)  # its last step was under way
    assert engine.draining == FAILURES and not engine.state.failures_in_a_row
    result: Any = SimpleNamespace(state=engine.state)
    assert "3 trials failed in a row; the first, t0001: broke 0" in first_failure(result)


def test_the_end_of_the_time_budget_drains(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of(deadline=time.monotonic() - 1)
    name = begin_trial(engine)
    engine.tick()
    assert engine.draining == TIME
    engine.heartbeat(name, 64)
    engine.paused(name)
    assert engine.state.trials[name].paused and not engine.live
    assert not engine.done


def test_the_time_budget_holds_where_a_worker_is_stopped(
    engine_of: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(adapters, "draining_nodes", set)
    monkeypatch.setattr(adapters.ray, "nodes", lambda: [{"Alive": True}])
    engine = engine_of(deadline=45.0)
    scheduler = RungScheduler(engine)
    scheduler.watch = HeartbeatWatch(lambda host, pid: b"the last", lambda: now[0])
    trial: Any = SimpleNamespace(trial_id=begin_trial(engine), status=Trial.RUNNING)
    trial.temporary_state = SimpleNamespace(ray_actor=None)
    scheduler.on_trial_add(SimpleNamespace(), trial)
    scheduler.watch.started(trial.trial_id, "elsewhere", 7)
    ended: list[float] = []

    def end(trial_id: str, actor: Any) -> None:
        trial.status = Trial.ERROR  # as Ray has it of an actor that died
        ended.append(now[0])

    scheduler.watch.end = end  # type: ignore[method-assign]
    stopper = DrainStopper(engine, scheduler)
    while not stopper.stop_all():
        now[0] += 1.0
    assert engine.draining == TIME and ended == now
    assert now[0] < 45 + SILENT
    assert engine.state.trials[trial.trial_id].status == "open"  # it goes on with --resume


def test_a_ledger_that_cannot_be_written_ends_the_search_in_good_order(
    engine_of: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of()
    name = begin_trial(engine)

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device", "ledger.jsonl")

    monkeypatch.setattr(engine.ledger, "append", full)
    assert engine.next_job() is None  # nothing starts that is not written down
    assert isinstance(engine.fatal, OSError) and engine.draining == LEDGER
    assert engine.evaluated(name, record(100, 0.5)) is False
    engine.finished(name)
    engine.failed(name, {"kind": "code", "reason": "broke"})
    assert engine.state.trials[name].status == "open"


def test_scores_that_are_no_numbers_fail_the_trial(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of()
    name = begin_trial(engine)
    assert engine.evaluated(name, record(100, float("nan"))) is False
    assert engine.state.trials[name].kind == "metric"
    assert not engine.state.trials[name].evaluations


def test_a_finished_trial_is_told_by_the_objective(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of()
    engine.state.objectives = ["sentiment"]
    told: list[str] = []
    engine.log = told.append
    name = begin_trial(engine)
    for examples, score, mood in ((100, 0.9, 0.2), (200, 0.1, 0.6)):
        task = {"metric": "accuracy", "value": mood, "interval": [mood, mood]}
        engine.evaluated(name, {**record(examples, score), "tasks": {"sentiment": task}})
    engine.finished(name)
    assert told[-1] == f"{name} finished: sentiment .600 after 200 examples"


def test_a_trial_is_told_by_the_full_names_of_its_parameters(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of()
    told: list[str] = []
    engine.log = told.append
    begin_trial(engine)
    trial = engine.state.trials[begin_trial(engine)]
    assert told[0].endswith(": the default configuration")
    names = [word.split("=")[0] for word in told[1].split(": ", 1)[1].split() if "=" in word]
    assert names == list(trial.params) and any("." in name for name in names)


def test_a_new_driver_tidies_up_after_one_that_died_before_it_could(
    engine_of: Callable[..., Engine], tmp_path: Path
) -> None:
    engine = engine_of(slots=1, keep=1)
    name = begin_trial(engine)
    for examples in (100, 200):
        engine.evaluated(name, record(examples, examples / 1000))
        place = tmp_path / "trials" / name / "checkpoints" / f"step-{examples:08d}"
        (place / "state").mkdir(parents=True)
        (place / "model").mkdir()
    engine.ledger.append("finished", trial=name)  # and here it dies
    engine_of(slots=1, keep=1)
    found = sorted(p.name for p in (tmp_path / "trials" / name / "checkpoints").iterdir())
    assert found == ["step-00000200"]
    assert not list(tmp_path.rglob("state"))


def test_repeats_come_after_the_search_and_once(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of(num_samples=3, slots=1, confirm=(2, 2))
    for score in (0.1, 0.9, 0.5):
        name = begin_trial(engine)
        engine.evaluated(name, record(400, score))
        engine.finished(name)
    assert not engine.done
    repeats = []
    while (job := engine.next_job()) is not None:
        repeats.append((engine.state.trials[job.trial].of, job.settings["seed"]))
        engine.evaluated(job.trial, record(400, 0.7))
        engine.finished(job.trial)
        engine = engine_of(num_samples=3, slots=1, confirm=(2, 2))  # dies after each
    assert repeats == [("t0001", 4), ("t0001", 5), ("t0002", 4), ("t0002", 5)]
    assert engine.done


def test_a_teacher_is_found_where_the_run_is(engine_of: Callable[..., Engine]) -> None:
    """The ledger has no path of a machine: the run may go on in another folder."""
    engine = engine_of(num_samples=1, slots=1)
    name = begin_trial(engine)
    engine.evaluated(name, record(400, 0.5))
    engine.finished(name)
    answers = {f"distill.{what}": f"teacher/{what}.parquet" for what in ("teacher", "text")}
    engine.distill(answers)
    (taught,) = engine.state.distilled
    assert taught.settings.items() >= answers.items()
    job = engine.next_job()
    assert job is not None and job.trial == taught.id
    for key, file in answers.items():
        assert job.settings[key] == str(engine.folder / file)


def test_a_teacher_outside_of_the_run_is_not_asked(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of(num_samples=1, slots=1)
    name = begin_trial(engine)
    engine.evaluated(name, record(400, 0.5))
    engine.finished(name)
    engine.distill({"distill.teacher": "../elsewhere.parquet"})
    assert engine.next_job() is None
    (taught,) = engine.state.distilled
    assert taught.status == "failed" and "leads out of it" in taught.reason


# --- from rung to rung --------------------------------------------------------------------------

RESTART, CONTINUE = Stages(THREE_RUNGS), Stages(THREE_RUNGS, "continue")
RACE = Stages(THREE_RUNGS, race=(3, 1))
BOTH = pytest.mark.parametrize("stages", [RESTART, CONTINUE], ids=["restart", "continue"])
# Of the configurations in the order of their creation: the default is the worst but one.
SCORES = dict(
    zip(
        [f"t{n:04d}" for n in range(9)],
        [0.2, 0.5, 0.9, 0.3, 0.8, 0.4, 0.7, 0.6, 0.1],
        strict=True,
    )
)


def train(engine: Engine, name: str) -> None:
    """Made-up training until the trial ends or rests, as a worker reports it."""
    trial, promotion = engine.state.trials[name], engine.stages.promotion
    ends = [rung.examples for rung in engine.stages.rungs] if promotion == "continue" else []
    points = {*ends, trial.length} if not trial.is_repeat else {trial.length}
    for examples in sorted(point for point in points if point and point > trial.examples):
        score = SCORES[trial.configuration] + examples / 10_000
        if not engine.evaluated(name, record(examples, score)):
            return
    engine.finished(name)


def search(
    engine_of: Callable[..., Engine], stages: Stages, slots: int = 1, dies_after: int = 0
) -> Engine:
    """To the end; the driver dies once when so many jobs were given, with what runs then."""
    engine = engine_of(stages, slots=slots)
    jobs = 0
    while not engine.done:
        while job := engine.next_job():
            engine.started(job.trial, "host", 1)
            jobs += 1
        if jobs >= dies_after > 0:
            engine, dies_after = engine_of(stages, slots=slots), 0
        elif engine.live:
            train(engine, next(iter(engine.live)))
    return engine


def by_level(state: RunState) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for trial in state.trials.values():
        if not trial.is_repeat:
            found.setdefault(trial.level, []).append(trial.configuration)
    return {level: sorted(names) for level, names in found.items()}


def test_promoted_configurations_start_again_and_one_gets_to_the_end(
    engine_of: Callable[..., Engine],
) -> None:
    state = search(engine_of, RESTART).state
    assert by_level(state) == {
        0: sorted(SCORES),
        1: ["t0000", "t0001", "t0002"],  # the default and the first start point go along
        2: ["t0002"],
    }
    assert state.examples == RESTART.cost() == 2700
    promoted = [trial for trial in state.trials.values() if trial.of]
    assert [trial.id for trial in promoted] == ["t0009", "t0010", "t0011", "t0012"]
    for trial in promoted:
        first = state.trials[trial.configuration]
        assert (trial.origin, trial.number) == ("promoted", None)
        assert (trial.settings, trial.seed) == (first.settings, first.seed)
        assert trial.length == trial.examples == THREE_RUNGS[trial.level].examples
    best = state.best_trial()
    assert best is not None and best.id == "t0012"
    assert state.counts() == {"open": 0, "finished": 9, "stopped": 0, "failed": 0}


@BOTH
def test_each_that_goes_no_further_is_told_once_with_rank_and_cutoff(
    engine_of: Callable[..., Engine], stages: Stages
) -> None:
    told: list[str] = []

    def listening(*given: Any, **limits: Any) -> Engine:
        engine = engine_of(*given, **limits)
        engine.log = told.append
        return engine

    state = search(listening, stages, dies_after=12).state
    pruned = {trial.id for trial in state.trials.values() if state.outcome(trial) == "pruned"}
    assert pruned == {line[:5] for line in told if " pruned " in line}  # the same word elsewhere
    first = {line[:5]: line[6:] for line in told if " pruned at 100 " in line}
    assert set(first) == set(SCORES) - {"t0000", "t0001", "t0002"}
    assert first["t0003"] == "pruned at 100 examples: .310, rank 4 of 5 so far, cutoff .510"
    assert first["t0008"] == "pruned at 100 examples: .110, rank 9 of 9, cutoff .710"
    # Two go along whatever they score: where that decides there is no cutoff.
    assert first["t0004"] == (
        "pruned at 100 examples: .810, rank 2 of 9; t0001 (the first start point, in any case) "
        "and t0000 (the default, in any case) go on"
    )
    assert sum(" pruned at 300 examples: " in line for line in told) == 2
    assert len({line for line in told if " pruned " in line}) == len(first) + 2
    assert not any(line.startswith("t0008 finished") for line in told)  # it was clear at once


@pytest.mark.parametrize(
    ("default", "start", "why"),
    [
        (0.78, 0.2, "t0000 (the default, and nothing is clearly above it) goes on"),
        (0.2, 0.77, "t0001 (the first start point, and nothing is clearly above it) goes on"),
        (0.2, 0.2, ""),
    ],
)
def test_the_best_that_has_no_final_is_told_who_has_it_and_why(
    engine_of: Callable[..., Engine], default: float, start: float, why: str
) -> None:
    told: list[str] = []
    engine = engine_of(Stages((Rung(100, 3), Rung(900, 1))), slots=1)
    engine.log = told.append
    scores = iter([default, start, 0.8])
    while not engine.done:
        while job := engine.next_job():
            engine.started(job.trial, "host", 1)
        (name,) = engine.live
        trial = engine.state.trials[name]
        score = next(scores, 0.9)
        found = record(trial.length, score) | {"interval": [score - 0.05, score + 0.05]}
        if engine.evaluated(name, found):
            engine.finished(name)
    said = [line for line in told if line.startswith("t0002 pruned")]
    whole = f"t0002 pruned at 100 examples: .800 ± .050, rank 1 of 3; {why}"
    assert said == ([whole] if why else [])
    begun = [line.split(":")[0] for line in told if " started " in line]
    own = len(engine.space.start_from)
    assert begun == [
        "t0000 started (default)",
        f"t0001 started (start point 1 of {own})",
        f"t0002 started (start point 2 of {own})",
        "t0003 started (final)",
    ]
    assert any("'s settings in full, for 900 examples" in line for line in told)


def test_configurations_that_go_on_rest_at_their_rungs_and_train_no_example_twice(
    engine_of: Callable[..., Engine], tmp_path: Path
) -> None:
    state = search(engine_of, CONTINUE).state
    assert list(state.trials) == sorted(SCORES)
    assert {trial.id: trial.examples for trial in state.trials.values()} == {
        **dict.fromkeys(SCORES, 100),
        **{"t0000": 300, "t0001": 300, "t0002": 900},
    }
    assert state.examples == CONTINUE.cost() == 2100
    assert state.counts() == {"open": 0, "finished": 1, "stopped": 8, "failed": 0}
    best = state.best_trial()
    assert best is not None and best.id == "t0002"
    events = [(e["event"], e["trial"]) for e in read_events(tmp_path / "ledger.jsonl")[1:]]
    assert [name for event, name in events if event == "promoted"].count("t0002") == 2
    assert [name for event, name in events if event == "frozen"].count("t0002") == 2
    reason = state.trials["t0001"].reason
    assert reason == "number 2 of 3 at 300 examples"


@BOTH
@pytest.mark.parametrize("slots", [1, 3])
def test_a_search_stays_within_what_its_stages_cost(
    engine_of: Callable[..., Engine], stages: Stages, slots: int
) -> None:
    engine = search(engine_of, stages, slots)
    assert engine.state.examples <= stages.cost()
    assert [len(level.entered) for level in engine.promotion.ladder.levels] == [9, 3, 1]


@BOTH
@pytest.mark.parametrize("dies_after", [4, 9, 11, 13])
def test_a_driver_that_takes_over_comes_to_the_same_end(
    engine_of: Callable[..., Engine], stages: Stages, dies_after: int, tmp_path: Path
) -> None:
    undisturbed = outcome(search(engine_of, stages).state)
    (tmp_path / "ledger.jsonl").unlink()
    state = search(engine_of, stages, dies_after=dies_after).state
    assert state.starts == 2 and outcome(state) == undisturbed


def outcome(state: RunState) -> list[tuple[Any, ...]]:
    return [
        (t.id, t.params, t.origin, t.of, t.level, t.length, t.status, t.examples, t.reason)
        for t in state.trials.values()
    ]


def test_a_driver_that_takes_over_breaks_ties_as_the_one_before_it(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(RESTART, slots=9, reduction=100.0)
    names = [begin_trial(engine) for _ in range(9)]
    for name in reversed(names):  # all alike, and the last is heard first
        engine.evaluated(name, record(100, 0.5))
        engine.finished(name)
    before = [r.configuration for r in engine.promotion.ladder.levels[0].results]
    after = [r.configuration for r in engine_of(RESTART).promotion.ladder.levels[0].results]
    assert before == after == names


def test_what_rests_is_running_in_the_study_and_pruned_in_the_end(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(CONTINUE, slots=1)
    train(engine, begin_trial(engine))  # the default, which samplers are not shown
    first = begin_trial(engine)
    train(engine, first)
    assert engine.state.trials[first].frozen and not engine.live

    def states() -> list[S]:
        return [trial.state for trial in rebuild_study(engine.state, engine.space).trials]

    assert states() == [S.RUNNING, S.RUNNING]
    shown = rebuild_study(engine.state, engine.space, for_sampler=True).trials
    assert [trial.state for trial in shown] == [S.PRUNED]  # samplers learn from what it has
    engine = search(engine_of, CONTINUE)
    engine.ledger.append("end", reason="complete")
    engine.study.finish()
    assert sorted(states()) == sorted([S.COMPLETE, *[S.PRUNED] * 8])


def test_optuna_s_trials_have_the_numbers_that_the_names_have(
    engine_of: Callable[..., Engine],
) -> None:
    engine = search(engine_of, RESTART)
    studied = rebuild_study(engine.state, engine.space)
    names = [trial.user_attrs["trial"] for trial in studied.trials]
    assert names == list(engine.state.trials) == [f"t{n:04d}" for n in range(len(names))]
    assert {trial.state for trial in studied.trials} == {S.COMPLETE, S.PRUNED}
    assert studied.trials[0].user_attrs["origin"] == "default"
    best = engine.state.best_trial()
    assert best is not None and studied.best_trial.user_attrs["trial"] == best.id
    assert studied.best_trial.user_attrs["of"] == best.of
    assert studied.best_params == engine.state.trials[best.configuration].params


def test_the_best_race_over_further_seeds_before_the_final(
    engine_of: Callable[..., Engine],
) -> None:
    state = search(engine_of, RACE).state
    assert [(t.of, t.length) for t in state.repeats] == [
        ("t0002", 300),
        ("t0001", 300),
        ("t0000", 300),
    ]
    final = state.best_trial()
    assert final is not None and final.length == 900
    assert all(repeat.order < final.order for repeat in state.repeats)
    assert state.examples == RACE.cost()


@BOTH
def test_a_final_that_fails_gives_its_place_to_the_next(
    engine_of: Callable[..., Engine], stages: Stages
) -> None:
    engine = engine_of(stages, slots=1)
    while not engine.done:
        job = engine.next_job()
        if job is None:
            continue
        engine.started(job.trial, "host", 1)
        trial = engine.state.trials[job.trial]
        if trial.level == 2 and trial.configuration == "t0002":
            engine.failed(job.trial, {"kind": "memory", "reason": "no room"})
        else:
            train(engine, job.trial)
    best = engine.state.best_trial()
    assert best is not None and (best.configuration, best.level) == ("t0001", 2)


def finals(state: RunState) -> list[tuple[str, int]]:
    return [(t.configuration, t.seed) for t in state.trials.values() if t.level == 2]


@pytest.mark.parametrize("slots", [1, 3])
def test_finals_beyond_the_configurations_are_further_seeds_of_the_best(
    engine_of: Callable[..., Engine], slots: int
) -> None:
    seven = Stages((*THREE_RUNGS[:2], Rung(900, 7)))
    engine = search(engine_of, seven, slots)
    state = engine.state
    names, seed = ["t0002", "t0001", "t0000"], state.seed
    again = [(name, seed + 1) for name in names] + [("t0002", seed + 2)]
    assert finals(state) == [(name, seed) for name in names] + again
    assert [(trial.length, trial.seed) for trial in state.runs_of("t0002")] == [
        *((100, seed), (300, seed), (900, seed))
    ]
    assert state.examples == seven.cost() and len(state.ranked()) == len(state.closed_trials)
    assert "seed" in engine.trial_text(state.further_seeds[0])
    # A search that goes on where it was is rung by rung the same.
    assert search(engine_of, seven, slots).state.trials == state.trials


def test_a_further_seed_that_fails_takes_nothing_from_the_others(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(Stages((*THREE_RUNGS[:2], Rung(900, 4))), slots=1)
    while not engine.done:
        job = engine.next_job()
        assert job is not None
        engine.started(job.trial, "host", 1)
        if engine.state.has_another_seed(engine.state.trials[job.trial]):
            engine.failed(job.trial, {"kind": "memory", "reason": "no room"})
        else:
            train(engine, job.trial)
    assert len(finals(engine.state)) == 4
    best = engine.state.best_trial()
    assert best is not None and (best.configuration, best.status) == ("t0002", "finished")


def test_a_default_that_fails_is_not_waited_for(engine_of: Callable[..., Engine]) -> None:
    engine = engine_of(RESTART, slots=1)
    engine.failed(begin_trial(engine), {"kind": "code", "reason": "broke"})
    state = search(engine_of, RESTART).state
    assert by_level(state)[1] == ["t0001", "t0002", "t0004"]
    assert by_level(state)[2] == ["t0002"]


# --- a trial's records --------------------------------------------------------------------------


def history(out: Path, *examples: int) -> None:
    lines = [json.dumps(record(count, 0.5)) for count in examples]
    (out / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))


def told(out: Path, known: int, *records: dict[str, Any]) -> list[int]:
    found = list(with_unheard(iter(records), out, known))
    return [entry["examples"] for entry in found if not entry.get("heartbeat")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"examples": "many"}', "'examples' must be a whole number, 0 or more, but is 'many'"),
        ('{"examples": 3, "score": []}', "'score' must be a number"),
        ('{"examples": 3, "checkpoint": "../x"}', "'checkpoint' must be the name of a folder"),
        ("[]", "it has no 'examples'"),
        ('{"examples"', "Expecting"),
    ],
)
def test_a_record_of_wrong_values_is_one_sentence(tmp_path: Path, line: str, why: str) -> None:
    history(tmp_path, 100)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match=r"metrics.jsonl: 1 problem\n.*line 2 is not") as refused:
        told(tmp_path, 0, record(200, 0.5))
    assert why in str(refused.value)


def test_what_was_saved_but_never_heard_is_told_first(tmp_path: Path) -> None:
    history(tmp_path, 100, 200, 300)
    heartbeat = {"heartbeat": True, "examples": 300}
    assert told(tmp_path, 100, heartbeat, record(400, 0.5)) == [200, 300, 400]
    assert told(tmp_path, 100) == [200, 300]  # the run was through
    assert told(tmp_path, 300, heartbeat) == []


def test_nothing_is_told_twice(tmp_path: Path) -> None:
    history(tmp_path, 100, 200)  # the list has the first new record already
    assert told(tmp_path, 100, record(200, 0.5), record(300, 0.5)) == [200, 300]
    assert told(tmp_path / "new", 0, record(100, 0.5)) == [100]


def test_a_folder_that_a_dying_worker_still_holds_is_waited_for(tmp_path: Path) -> None:
    import fcntl
    import threading

    wait_until_free(tmp_path / "not there")
    (tmp_path / ".lock").touch()
    held = os.open(tmp_path / ".lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    let_go = threading.Timer(0.5, os.close, [held])
    let_go.start()
    wait_until_free(tmp_path)
    assert let_go.finished.is_set()


def test_a_job_survives_its_journey() -> None:
    job = Job("t0001", {"batch.sizes": [1, 2]}, "sample", None, "/x", 2, 300)
    assert Job.from_config(job.as_config()) == job


# --- what failed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ZeroDivisionError("by zero"), "code"),
        (InputError("data", ["gone"]), "code"),
        (TrainingDiverged("step 3: the loss is nan"), "diverged"),
        (MemoryError(), "memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), DEVICE_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory."), DEVICE_MEMORY),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED in cublasCreate"), DEVICE_MEMORY),
        (RuntimeError("CUDA error: unspecified launch failure"), INFRASTRUCTURE),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access"), INFRASTRUCTURE),
        (RuntimeError("CUDA error: no kernel image is available for execution"), "code"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "memory"),
        (RuntimeError("shapes differ"), "code"),
        (StorageLost("cannot write x in s3://b/runs"), "storage"),
    ],
)
def test_failures_are_told_apart(error: Exception, kind: str) -> None:
    found = failure(error)
    assert found["kind"] == kind
    said = brief(found["reason"])  # as the driver writes it
    assert said and "\n" not in said
    assert bool(found["traceback"]) == (kind == "code")


def test_a_dead_actor_is_no_fault_of_the_trial_unless_it_never_lived() -> None:
    assert classify(RayActorError())["kind"] == "infrastructure"
    assert classify(ValueError("in reset"))["kind"] == "code"
    born_dead = ActorDiedError()
    born_dead._actor_init_failed = True
    assert classify(born_dead)["kind"] == "code"


# --- the adapters -------------------------------------------------------------------------------


class FakeEngine:
    draining = None
    done = False

    def __init__(self) -> None:
        self.live: dict[str, Any] = {}
        self.heard: list[tuple[str, str]] = []

    def lost(self, name: str, failure: Any) -> None:
        self.heard.append(("lost", name))

    def paused(self, name: str) -> None:
        self.live.pop(name)
        self.heard.append(("paused", name))


def test_the_first_start_of_a_trial_is_not_taken_for_the_second() -> None:
    engine: Any = FakeEngine()
    scheduler = RungScheduler(engine)
    old: Any = SimpleNamespace(trial_id="t0001", status=Trial.ERROR, failure=None)
    scheduler.on_trial_add(None, old)
    scheduler.on_trial_error(None, old)
    # Started again, it runs under the same name while Ray keeps the old one, in error.
    engine.live["t0001"] = None
    new: Any = SimpleNamespace(trial_id="t0001", status=Trial.RUNNING, failure=None)
    scheduler.on_trial_add(None, new)
    scheduler.on_trial_error(None, old)
    scheduler.settle()
    scheduler.settle()
    assert engine.heard == [("lost", "t0001")]
    assert not scheduler.at_rest()
    new.status = Trial.PAUSED
    assert scheduler.at_rest()
    scheduler.settle()
    scheduler.settle()
    assert engine.heard == [("lost", "t0001"), ("paused", "t0001")]


def test_trials_that_ended_are_not_looked_at_again() -> None:
    scheduler = RungScheduler(FakeEngine())  # type: ignore[arg-type]
    for status in (Trial.TERMINATED, Trial.ERROR, Trial.RUNNING):
        trial: Any = SimpleNamespace(trial_id=status, status=status, failure=None)
        scheduler.on_trial_add(None, trial)
    scheduler.settle()
    assert [trial.status for trial in scheduler.going.values()] == [Trial.RUNNING]


class RayTrial:
    def __init__(self, trial_id: str, status: str = Trial.TERMINATED) -> None:
        self.trial_id, self.status = trial_id, status
        self.run_metadata = SimpleNamespace(last_result={"record": "long"})

    def is_finished(self) -> bool:
        return self.status == Trial.TERMINATED


class Controller:
    """What Ray's has, as far as ended trials are concerned."""

    def __init__(self, *trials: Any) -> None:
        self._trials = list(trials)
        self._stopped_trials = {trial for trial in trials if trial.is_finished()}
        self._failed_trials: set[Any] = set()
        self._live_trials: set[Any] = set()
        self._trials_to_cache = set(trials)
        self._trial_metadata = {trial.trial_id: "long" for trial in trials}
        self._trial_to_actor: dict[Any, str] = {}

    def get_trials(self) -> list[Any]:
        return self._trials


def test_what_ended_is_forgotten_when_ray_is_done_with_it() -> None:
    ended, busy, running = RayTrial("a"), RayTrial("b"), RayTrial("c", Trial.RUNNING)
    ray: Any = Controller(ended, busy, running)
    ray._trial_to_actor = {busy: "actor", running: "actor"}
    assert [evict_finished(ray, trial) for trial in (ended, busy, running)] == [True, False, False]
    assert ray.get_trials() == [busy, running]
    assert ray._stopped_trials == {busy} and ray._trials_to_cache == {busy, running}
    assert list(ray._trial_metadata) == ["b", "c"]
    assert not ended.run_metadata.last_result and busy.run_metadata.last_result
    ray._trial_to_actor = {}
    assert evict_finished(ray, busy)
    running.status = Trial.TERMINATED
    assert not evict_finished(ray, running)  # the last one stays: Ray would look for it on disk
    assert ray.get_trials() == [running]


def test_another_ray_that_keeps_its_trials_elsewhere_is_left_alone() -> None:
    trials = [RayTrial("a"), RayTrial("b")]
    ray: Any = SimpleNamespace(get_trials=lambda: trials)
    assert evict_finished(ray, trials[0])
    assert [trial.trial_id for trial in trials] == ["b"]


def test_ray_does_not_wait_for_trials_while_the_search_drains() -> None:
    engine: Any = FakeEngine()
    search = LedgerSearch(engine, None)
    assert not search.is_finished()
    engine.draining = "interrupted"
    assert search.is_finished()


def test_an_actor_that_is_dead_is_nowhere() -> None:
    class Actor:
        class where:
            @staticmethod
            def remote() -> Any:
                raise RayActorError()

    assert whereabouts(Actor()) == ("", None, {})


def test_a_search_by_the_clock_is_planned_when_its_first_trial_has_shown_its_speed(
    engine_of: Callable[..., Engine],
) -> None:
    engine = engine_of(before_the_speed_is_known("restart"), slots=2)
    plan = Stages((Rung(400, 4), Rung(900, 1)), race=(2, 1))
    heard: list[float] = []
    engine.replan = lambda pace, speed: (heard.append(speed), plan)[1]
    for speed in (10.0, 20.0, 80.0, 90.0):
        name = begin_trial(engine)
        engine.evaluated(name, {**record(400, 0.5), "examples_per_second": speed})
        engine.finished(name)
    assert heard == [80.0]  # not those whose workers had to start, and once only
    assert engine.stages == plan and engine.state.missing == 0
    again = engine_of(stages_in(engine.state), slots=2)
    assert again.state.rungs == [(400, 4), (900, 1)] and again.stages.race == (2, 1)
    assert stages_of_run(again.state, in_full(9, 9)) == plan
    while job := again.next_job():
        length = job.settings["budget.examples"]
        again.started(job.trial, "host", 1)
        again.evaluated(job.trial, record(length, 0.5))
        again.finished(job.trial)
    lengths = [trial.length for trial in again.state.trials.values()]
    assert again.done and lengths == [400] * 6 + [900]  # four, two again, the final


def test_a_search_that_is_extended_keeps_the_lengths_of_its_rungs(
    engine_of: Callable[..., Engine],
) -> None:
    began = Stages((Rung(100, 4), Rung(400, 1)))
    engine = engine_of(began)
    begin_trial(engine)
    more = stages_of_run(engine.state, for_trials(8, 400))
    assert [(rung.examples, rung.places) for rung in more.rungs] == [(100, 8), (400, 2)]
    assert stages_of_run(engine.state, for_trials(4, 400)).rungs == began.rungs
