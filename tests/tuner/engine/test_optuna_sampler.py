"""A space and `task_gp` in studies of plain Optuna."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState as S

from tuner.engine import optuna_sampler as module
from tuner.engine.optuna_sampler import TaskGPSampler, report_evaluation
from tuner.engine.study import quiet
from tuner.space.space import Space, load_space

TINY = {"encoder.name": "tiny"}
RATE, WEIGHT = "optim.learning_rate", "smart.weight"


@pytest.fixture(scope="module")
def space() -> Space:
    return load_space("default", tasks="sample", overrides=TINY)


def made_up(settings: dict[str, Any], examples: int = 200) -> dict[str, Any]:
    """A record whose scores follow from the settings: best at a rate of 2e-4, tasks apart."""
    off = abs(np.log(settings[RATE] / 2e-4))
    values = {"sentiment": 0.7 - 0.1 * off, "paraphrase": 0.6, "similarity": 0.8 - 0.2 * off}
    if settings["pair.encoding.paraphrase"] == "cosine":
        values["paraphrase"] += 0.3
    values = {name: value - 10 / examples for name, value in values.items()}
    tasks = {n: {"value": v, "interval": [v - 0.02, v + 0.02]} for n, v in values.items()}
    return {"score": sum(values.values()) / 3, "examples": examples, "tasks": tasks}


def search(study: optuna.Study, space: Space, count: int, told: bool = True) -> None:
    def objective(trial: optuna.Trial) -> float:
        record = made_up(space.suggest(trial))
        if told:
            report_evaluation(trial, record)
        return float(record["score"])

    with quiet():
        study.optimize(objective, n_trials=count)


def new_study(sampler: optuna.samplers.BaseSampler, **given: Any) -> optuna.Study:
    with quiet():
        return optuna.create_study(**{"direction": "maximize", "sampler": sampler, **given})


@pytest.mark.parametrize("name", ["tpe", "task_gp"])
def test_what_a_trial_is_suggested_is_a_run_s_configuration(space: Space, name: str) -> None:
    sampler = TaskGPSampler(space, 1) if name == "task_gp" else optuna.samplers.TPESampler(seed=1)
    study = new_study(sampler)
    search(study, space, 4)
    for trial in study.trials:
        settings = space.settings(trial.params)
        assert space.missing(settings) == ()
        assert {"batch.sizes.sentiment", "pair.encoding.similarity"} <= settings.keys()  # <task>
        assert "pair.encoding.sentiment" not in settings  # <pair>
        assert space.config(settings).encoder.name == "tiny"


def test_only_parameters_that_take_part_are_suggested() -> None:
    space = load_space("full", tasks="sample", overrides=TINY)
    conditional = [p for p in space.parameters if p.when]
    assert conditional
    study = new_study(TaskGPSampler(space, seed=2))
    points: list[dict[str, Any]] = []

    def objective(trial: optuna.Trial) -> float:
        points.append(space.suggest(trial))
        return 0.5 + 0.01 * trial.number

    with quiet():
        study.optimize(objective, n_trials=6)
    taken = [p.key in point for p in conditional for point in points]
    assert any(taken) and not all(taken)
    for point, trial in zip(points, study.trials, strict=True):
        assert all((p.key in point) == p.active(point) for p in conditional)
        assert trial.params == space.params(point)


def test_start_points_are_tried_first_and_as_they_are(space: Space) -> None:
    study = new_study(TaskGPSampler(space, seed=1))
    starts = space.start_params()
    assert len(starts) >= len(space.start_from) > 1
    for params in starts:
        study.enqueue_trial(params)
    search(study, space, len(starts) + 1)
    assert [trial.params for trial in study.trials[:-1]] == starts
    assert study.trials[-1].params not in starts


def test_what_a_start_point_leaves_open_the_sampler_decides(space: Space) -> None:
    study = new_study(TaskGPSampler(space, seed=1))
    search(study, space, 3)
    study.enqueue_trial({RATE: 3e-4, "not.ours": 1})
    search(study, space, 1)
    last = study.trials[-1].params
    assert last[RATE] == 3e-4 and last.keys() == study.trials[0].params.keys()


@pytest.mark.parametrize("told", [True, False], ids=["every task", "one value"])
def test_it_learns_from_what_it_is_told(space: Space, told: bool) -> None:
    study = new_study(TaskGPSampler(space, seed=4))
    search(study, space, 14, told)
    first, last = study.trials[:4], study.trials[-4:]
    mean = [np.mean([trial.value for trial in part]) for part in (first, last)]
    assert mean[1] > mean[0] + (0.05 if told else 0.02)  # from one value it learns less
    assert len({tuple(trial.params.items()) for trial in study.trials}) == 14  # none twice
    if told:  # whose score it was that it lifted
        assert sum(t.params["pair.encoding.paraphrase"] == "cosine" for t in last) >= 3


def test_each_task_has_a_process_only_where_each_was_told(
    space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[set[str]] = []
    real = module.Surrogate

    def surrogate(points: Any, seen: Any, weights: dict[str, float]) -> Any:
        made.append(set(weights))
        return real(points, seen, weights)

    monkeypatch.setattr(module, "Surrogate", surrogate)
    for told in (True, False):
        search(new_study(TaskGPSampler(space, seed=4)), space, 3, told)
    assert made == [{"sentiment", "paraphrase", "similarity"}, {"overall"}]


def test_with_a_seed_a_study_that_goes_on_proposes_what_it_would_have(space: Space) -> None:
    whole, halves = new_study(TaskGPSampler(space, 7)), new_study(TaskGPSampler(space, 7))
    search(whole, space, 5)
    search(halves, space, 3)
    halves.sampler = pickle.loads(pickle.dumps(TaskGPSampler(space, 7)))  # as Ray Tune keeps it
    search(halves, space, 2)
    assert [t.params for t in whole.trials] == [t.params for t in halves.trials]
    other = new_study(TaskGPSampler(space, 8))
    search(other, space, 1)
    assert other.trials[0].params != whole.trials[0].params


def test_trials_that_were_pruned_count_by_how_far_they_came(space: Space) -> None:
    study = new_study(TaskGPSampler(space, seed=3))

    def objective(trial: optuna.Trial) -> float:
        settings = space.suggest(trial)
        report_evaluation(trial, made_up(settings, 50))
        if trial.number % 2:
            raise optuna.TrialPruned
        report_evaluation(trial, made_up(settings))
        return float(made_up(settings)["score"])

    with quiet():
        study.optimize(objective, n_trials=5)
    assert [t.state for t in study.trials[:2]] == [S.COMPLETE, S.PRUNED]
    seen = module._observed(study.trials, [np.zeros(1)] * 5, {"sentiment": 1.0})
    assert [each.share for each in seen] == [1, 0.25, 1, 0.25, 1]
    assert all(each.variances["sentiment"] > 0 for each in seen)


def test_several_objectives_are_tasks_by_their_names(space: Space) -> None:
    def objective(trial: optuna.Trial) -> tuple[float, float]:
        record = made_up(space.suggest(trial))
        report_evaluation(trial, record)
        return record["tasks"]["sentiment"]["value"], record["tasks"]["similarity"]["value"]

    with quiet():
        study = optuna.create_study(directions=["maximize"] * 2, sampler=TaskGPSampler(space, 1))
        with pytest.raises(ValueError, match="call study.set_metric_names"):
            study.optimize(objective, n_trials=1)
        study.set_metric_names(["sentiment", "similarity"])
        study.optimize(objective, n_trials=4)
        assert study.best_trials


def test_a_study_that_minimises_is_refused(space: Space) -> None:
    study = new_study(TaskGPSampler(space), direction="minimize")
    with pytest.raises(ValueError, match="direction='maximize'"):
        search(study, space, 1)


def test_parameters_beside_the_space_are_drawn(space: Space) -> None:
    study = new_study(TaskGPSampler(space, seed=1))

    def objective(trial: optuna.Trial) -> float:
        space.suggest(trial)
        return trial.suggest_float("own", 0, 1)

    with quiet():
        study.optimize(objective, n_trials=4)
    assert len({trial.params["own"] for trial in study.trials}) == 4
