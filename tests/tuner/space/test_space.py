from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.importance import (
    FanovaImportanceEvaluator,
    PedAnovaImportanceEvaluator,
    get_param_importances,
)
from optuna.storages.journal import JournalFileBackend

from model.common.errors import InputError
from model.common.files import to_yaml
from tuner.space.domains import Choice, Number, Outside
from tuner.space.space import Space, load_space

optuna.logging.set_verbosity(optuna.logging.WARNING)

Make = Callable[..., Space]

EXAMPLE = """
about: an example
tasks: cs224n
base: {schedule.name: pretrain_then_simultaneous, optim: {learning_rate: 1e-5}}
parameters:
  smart.bregman:   {float: [0.01, 10], log: true, when: {smart.weight: "> 0.1"}}
  smart.weight:    {float: [0.01, 10], log: true}
  encoder.dropout: {float: [0.1, 0.5], step: 0.05}
  batch.sizes:     {choice: [[16, 16, 10], [8, 16, 8], [16, 16, 16]]}
  loss.weights:    {choice: [[1, 1, 1], [0.1, 1, 0.2]]}
  smart.steps:     {int: [1, 9], step: 2}
  smart.tasks:     {choice: [null, [sst], [sst, para]]}
  pair.encoding:   {choice: [cross, {para: cross, sts: cosine}]}
  encoder.frozen:  {choice: [true, false]}
  smart.variant:   {fixed: ball}
start_from:
  - {smart.weight: 5, encoder.dropout: 0.1, batch.sizes: 16}
"""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A space from its text, with `tasks: cs224n` in front where it has none."""

    def space(text: str, **arguments: Any) -> Space:
        path = tmp_path / "mine.yaml"
        own = "\ntasks:" in f"\n{text}"
        path.write_text(text if own else f"tasks: cs224n\n{text}")
        return load_space(str(path), **arguments)

    return space


@pytest.fixture
def faults_of(make: Make) -> Callable[..., list[str]]:
    def faults(text: str, **arguments: Any) -> list[str]:
        with pytest.raises(InputError) as caught:
            make(text, **arguments)
        return caught.value.faults

    return faults


# What a space gives


def test_a_space_file_is_read_whole(make: Make) -> None:
    space = make(EXAMPLE)
    assert (space.name, space.about, space.tasks) == ("mine", "an example", "cs224n")
    assert space.base == {
        "schedule.name": "pretrain_then_simultaneous",
        "optim.learning_rate": 1e-5,
    }
    assert [p.key for p in space.parameters][:2] == ["smart.weight", "smart.bregman"]
    assert space.start_from == (
        {"smart.weight": 5.0, "encoder.dropout": 0.1, "batch.sizes": [16, 16, 16]},
    )


def test_settings_and_params_are_each_others_inverse(make: Make) -> None:
    space, rng = make(EXAMPLE), np.random.default_rng(0)
    for _ in range(300):
        point = space.draw(rng)
        params = space.params(point)
        assert space.settings(params) == point
        assert space.params(space.settings(params)) == params
        assert all(type(label) in (str, int, float, bool) for label in params.values())
        assert json.loads(json.dumps(point)) == point


def test_lists_nulls_and_mappings_have_readable_labels(make: Make) -> None:
    labels = {
        parameter.key: parameter.domain.labels
        for parameter in make(EXAMPLE).parameters
        if isinstance(parameter.domain, Choice)
    }
    assert labels == {
        "batch.sizes": ("16-16-10", "8-16-8", "16-16-16"),
        "loss.weights": ("1-1-1", "0.1-1-0.2"),
        "smart.tasks": ("null", "sst", "sst-para"),
        "pair.encoding": ("cross", "para:cross sts:cosine"),
        "encoder.frozen": (True, False),
    }


def test_labels_that_would_be_the_same_are_told_apart() -> None:
    choice = Choice((None, "null", ["null"]))
    assert choice.labels == ("null", '"null"', '["null"]')
    assert [choice.value(label) for label in choice.labels] == list(choice.values)


def test_values_on_steps_are_round(make: Make) -> None:
    domain = Number(0.1, 0.5, step=0.05)
    assert domain.value(0.45000000000000007) == 0.45
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    space = make("parameters: {encoder.dropout: {float: [0.1, 0.5], step: 0.05}}")
    drawn = set()
    for _ in range(60):
        trial = study.ask()
        drawn.add(space.suggest(trial)["encoder.dropout"])
    assert drawn == {0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5}


@pytest.mark.parametrize(
    "domain",
    [
        Number(0.01, 10, log=True),
        Number(0.1, 0.5, step=0.1),
        Number(0, 1),
        Number(1, 9, step=2, whole=True),
        Number(1, 64, log=True, whole=True),
        Number(2, 5, whole=True),
    ],
)
def test_a_draw_stays_in_its_domain_and_covers_it_as_optuna_does(domain: Number) -> None:
    rng = np.random.default_rng(0)
    mine = [domain.draw(rng) for _ in range(2000)]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    theirs = [domain.suggest(study.ask(), "x") for _ in range(2000)]
    assert all(domain.label(value) == value for value in mine + theirs)
    assert np.mean(mine) == pytest.approx(np.mean(theirs), rel=0.1)
    if domain.whole or domain.step:
        assert set(mine) == set(theirs)


def test_a_parameter_takes_part_only_when_its_conditions_hold(make: Make) -> None:
    space, rng = make(EXAMPLE), np.random.default_rng(0)
    points = [space.draw(rng) for _ in range(200)]
    for point in points:
        assert ("smart.bregman" in point) == (point["smart.weight"] > 0.1)
    assert {"smart.bregman" in point for point in points} == {True, False}


def test_conditions_are_values_lists_and_comparisons(make: Make) -> None:
    space = make("""
parameters:
  head.hidden: {choice: [0, 64, width]}
  optim.clip: {choice: [0, 1], when: {head.hidden: [0, 64]}}
  head.activation: {choice: [gelu, relu], when: {head.hidden: "!= 0"}}
  encoder.adapter: {choice: [none, pals], when: {head.hidden: "> 0"}}
  encoder.frozen: {choice: [true, false], when: {encoder.adapter: "!= none"}}
  batch.sizes: {choice: [[8, 8, 8], [4, 4, 4], 2], when: {encoder.frozen: true}}
  optim.decay: {choice: [linear], when: {batch.sizes: [8, 8, 8]}}
  optim.warmup: {choice: [0], when: {batch.sizes: [[8, 8, 8], 2]}}
  smart.steps: {int: [1, 4], when: {optim.decay: linear, optim.warmup: "= 0"}}
""")
    rng = np.random.default_rng(0)
    for _ in range(500):
        p = space.draw(rng)
        assert ("optim.clip" in p) == (p["head.hidden"] in (0, 64))
        assert ("head.activation" in p) == (p["head.hidden"] != 0)
        assert ("encoder.adapter" in p) == (p["head.hidden"] == 64)  # a word is above nothing
        assert ("encoder.frozen" in p) == (p.get("encoder.adapter") == "pals")
        assert ("batch.sizes" in p) == p.get("encoder.frozen", False)
        assert ("optim.decay" in p) == (p.get("batch.sizes") == [8, 8, 8])
        assert ("optim.warmup" in p) == (p.get("batch.sizes") in ([8, 8, 8], 2))
        assert ("smart.steps" in p) == ("optim.decay" in p and "optim.warmup" in p)


def test_a_conditional_parameter_is_as_base_has_it_while_it_takes_no_part(make: Make) -> None:
    space = make("""
base: {schedule.name: epoch_round_robin}
parameters:
  encoder.adapter: {choice: [none, pals]}
  schedule.name: {choice: [uniform, annealed], when: {encoder.adapter: pals}}
""")
    assert space.config({"encoder.adapter": "none"}).schedule.name == "epoch_round_robin"
    pals = {"encoder.adapter": "pals", "schedule.name": "uniform"}
    assert space.config(pals).schedule.name == "uniform"


def test_a_config_is_base_then_settings_then_the_rest(make: Make) -> None:
    space = make("""
base: {batch.sizes.sts: 4, seed: 1, smart.steps: 2}
parameters: {smart.weight: {float: [0, 1]}, loss.sst: {choice: [null, ordinal_log]}}
""")
    config = space.config({"smart.weight": 0.5, "loss.sst": None}, extra={"seed": 2})
    assert (config.seed, config.smart.weight, config.smart.steps) == (2, 0.5, 2)
    assert config.batch_sizes(space.task_set) == (16, 16, 4)


def test_the_default_point_has_what_is_in_the_domains_and_no_more(make: Make) -> None:
    space = make("""
base: {optim.clip: 2, optim.layer_scale.layers.sst: [0]}
parameters:
  smart.weight: {float: [0.01, 10], log: true}
  smart.bregman: {float: [0, 1]}
  batch.sizes: {choice: [[8, 8, 8], [16, 16, 16]]}
  loss.weights: {choice: [[1, 1, 1], [2, 1, 1]]}
  loss.sst: {choice: [dual_objective, cross_entropy]}
  pair.encoding: {choice: [{para: cross, sts: cosine}, {para: cross, sts: cross}]}
  optim.layer_scale: {choice: [{alpha: 1, beta: 2}, {alpha: 1, beta: 1}]}
  optim.decay: {choice: [constant, cosine]}
  smart.steps: {fixed: 3}
""")
    point = space.default_point()
    assert point == {
        "smart.bregman": 0.0,
        "batch.sizes": [16, 16, 16],
        "loss.weights": [1.0, 1.0, 1.0],
        "loss.sst": "cross_entropy",
        "pair.encoding": {"para": "cross", "sts": "cross"},
        "optim.layer_scale": {"alpha": 1.0, "beta": 1.0},
        "smart.steps": 3,
    }


def test_the_most_expensive_point_is_large_and_has_everything_on(make: Make) -> None:
    space = make("""
parameters:
  batch.sizes: {choice: [[8, 8, 40], [64, 8, 8], 16]}
  smart.weight: {choice: [1, 0]}
  smart.variant: {choice: [random, ball], when: {smart.weight: "> 0"}}
  smart.steps: {int: [1, 3], when: {smart.variant: ball}}
  smart.every: {int: [1, 4], when: {smart.weight: "> 0"}}
  smart.tasks: {choice: [[sst], null, [sst, sts]], when: {smart.weight: "> 0"}}
  encoder.max_length: {choice: [64, 256, 128]}
  encoder.frozen: {choice: [true, false]}
  schedule.name: {choice: [uniform, simultaneous]}
  surgery: {choice: [none, pcgrad], when: {schedule.name: simultaneous, encoder.frozen: false}}
  batch.accumulate: {int: [1, 4]}
  pair.encoding.sts: {choice: [cosine, cross]}
""")
    assert space.most_expensive() == {
        "batch.sizes": [64, 8, 8],
        "smart.weight": 1.0,
        "smart.variant": "ball",
        "smart.steps": 3,
        "smart.every": 1,
        "smart.tasks": None,
        "encoder.max_length": 256,
        "encoder.frozen": False,
        "schedule.name": "simultaneous",
        "surgery": "pcgrad",
        "batch.accumulate": 1,
        "pair.encoding.sts": "cross",
    }


def test_the_table_shows_each_parameter_on_a_line(make: Make) -> None:
    lines = make(EXAMPLE).table().splitlines()
    assert len(lines) == 11
    assert lines[0].split() == "parameter values scale takes part when starts from".split()
    assert lines[1].split() == ["smart.weight", "0.01", "..", "10", "log", "5"]
    assert "smart.weight > 0.1" in lines[2]
    assert "16-16-10 | 8-16-8 | 16-16-16" in lines[4] and lines[4].endswith("16-16-16")
    assert all(len(line) < 160 and line == line.rstrip() for line in lines)


def test_a_space_can_be_pickled_and_written_out(make: Make) -> None:
    space = make(EXAMPLE)
    assert pickle.loads(pickle.dumps(space)) == space
    assert make(to_yaml(space.to_dict())) == space


def test_params_of_another_space_are_refused(make: Make) -> None:
    space = make(EXAMPLE)
    with pytest.raises(InputError, match=r"did you mean 'smart\.weight'"):
        space.settings({"smart.wieght": 1})
    with pytest.raises(InputError, match="'batch.sizes' '9-9-9' is not one of 16-16-10"):
        space.settings({"batch.sizes": "9-9-9"})
    with pytest.raises(InputError, match="'smart.weight' 'much' is not a number"):
        space.settings({"smart.weight": "much"})
    with pytest.raises(InputError) as caught:
        space.params({"smart.weight": 50, "encoder.dropout": 0.12, "x": 1, "smart.steps": 2})
    assert caught.value.faults == [
        "'smart.weight' 50 is outside 0.01 .. 10",
        "'encoder.dropout' 0.12 is not on the steps of 0.1 .. 0.5; the nearest is 0.1",
        "'x' is not one; known: batch.sizes, encoder.dropout, encoder.frozen, loss.weights, "
        "pair.encoding, smart.bregman, smart.steps, smart.tasks, smart.variant, smart.weight",
        "'smart.steps' 2 is not on the steps of 1 .. 9; the nearest is 1",
    ]
    with pytest.raises(Outside):
        Number(0, 1).label(True)


# With Optuna


def storages(folder: Path) -> dict[str, Callable[[], optuna.storages.BaseStorage]]:
    def journal() -> optuna.storages.BaseStorage:
        return optuna.storages.JournalStorage(JournalFileBackend(str(folder / "journal.log")))

    return {
        "journal": journal,
        "sqlite": lambda: optuna.storages.RDBStorage(f"sqlite:///{folder / 'study.db'}"),
    }


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_lists_survive_storage_reload_and_importance(kind: str, make: Make, tmp_path: Path) -> None:
    space, storage = make(EXAMPLE), storages(tmp_path)[kind]
    rng = np.random.default_rng(0)
    study = optuna.create_study(
        study_name="s",
        storage=storage(),
        direction="maximize",
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    study.enqueue_trial(space.params(space.start_from[0]))
    asked = []
    for _ in range(40):
        trial = study.ask()
        point = space.suggest(trial)
        study.tell(trial, float(point["batch.sizes"] == [16, 16, 16]) + rng.random() / 10)
        asked.append(point)
    assert asked[0].items() >= space.start_from[0].items()

    again = optuna.load_study(study_name="s", storage=storage())
    assert [space.settings(trial.params) for trial in again.trials] == asked
    for frozen in again.trials:
        params = space.params(space.settings(frozen.params))
        assert params == pytest.approx(frozen.params)
        assert space.distributions(params) == frozen.distributions
    fanova = get_param_importances(again, evaluator=FanovaImportanceEvaluator(seed=0))
    assert fanova["batch.sizes"] > 0.5
    ped_anova = get_param_importances(again, evaluator=PedAnovaImportanceEvaluator())
    assert ped_anova["batch.sizes"] > 0.1
    for importances in (fanova, ped_anova):
        assert importances.keys() >= {"loss.weights", "smart.tasks", "pair.encoding"}
    again.sampler = optuna.samplers.TPESampler(seed=1, multivariate=True, group=True)
    space.config(space.suggest(again.ask()))


def test_a_finished_trial_can_be_made_from_settings(make: Make) -> None:
    space, rng = make(EXAMPLE), np.random.default_rng(0)
    study = optuna.create_study(direction="maximize")
    for number in range(20):
        params = space.params(space.draw(rng))
        study.add_trial(
            optuna.trial.create_trial(
                params=params, distributions=space.distributions(params), value=float(number)
            )
        )
    assert space.settings(study.best_params) == space.settings(study.trials[-1].params)
    space.config(space.suggest(study.ask()))


@pytest.mark.parametrize("name", ["tpe", "random", "nsga2", "qmc"])
def test_every_sampler_can_work_on_a_space(name: str, make: Make) -> None:
    samplers: dict[str, Callable[..., optuna.samplers.BaseSampler]] = {
        "tpe": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "nsga2": optuna.samplers.NSGAIISampler,
        "qmc": optuna.samplers.QMCSampler,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(sampler=samplers[name](seed=0))
    space = make(EXAMPLE)
    for _ in range(15):
        trial = study.ask()
        space.config(space.suggest(trial))
        study.tell(trial, 1.0)


# What is set from outside


def test_what_is_set_is_not_searched_and_takes_its_dependants_along(make: Make) -> None:
    text = """
parameters:
  smart.weight: {choice: [0, 1]}
  smart.variant: {choice: [ball, random], when: {smart.weight: "> 0"}}
  smart.radius: {float: [0.01, 0.1], when: {smart.variant: [ball, random]}}
  optim.clip: {choice: [1, 2]}
start_from: [{smart.weight: 1, optim.clip: 1}, {smart.weight: 0, optim.clip: 1}]
"""
    off = make(text, overrides={"smart": {"weight": 0}})
    assert [parameter.key for parameter in off.parameters] == ["optim.clip"]
    assert off.base == {"smart.weight": 0.0} and off.start_from == ({"optim.clip": 1.0},)
    assert off.notes == (
        "smart.weight is set to 0 and not searched",
        "smart.variant takes part only when smart.weight > 0, and is not searched",
        "smart.radius takes part only when smart.variant is ball or random, and is not searched",
    )
    on = make(text, overrides={"smart.weight": 3})
    assert [p.key for p in on.parameters] == ["smart.variant", "smart.radius", "optim.clip"]
    assert on.parameters[0].when == () and on.config({}).smart.weight == 3.0
    assert on.missing({}) == ("smart.variant", "optim.clip")


def test_a_setting_for_all_tasks_takes_the_place_of_those_for_one(make: Make) -> None:
    text = """
base: {loss.weights.sts: 3}
parameters: {batch.sizes.sst: {choice: [4, 8]}, optim.clip: {choice: [1, 2]}}
"""
    space = make(text, overrides={"batch.sizes": 32, "loss.weights": [1, 1, 1]})
    assert [parameter.key for parameter in space.parameters] == ["optim.clip"]
    assert space.config({}).batch.sizes == 32 and space.config({}).loss.weights == (1, 1, 1)


def test_faults_in_what_is_set_are_told_with_those_of_the_file(
    faults_of: Callable[..., list[str]],
) -> None:
    text = "parameters:\n  batch.sizes: {choice: [[8, 8, 8], 4]}\n  smart.stepps: {int: [1, 2]}"
    given = {"smart.wieght": 1, "optim.clip": -1, "batch.sizes.sts": 3}
    assert faults_of(text, overrides=given) == [
        "line 4: 'smart.stepps' is not a setting; did you mean 'smart.steps'?",
        "--set: 'smart.wieght' is not a setting; did you mean 'smart.weight'?",
        "--set: 'optim.clip' must be a number >= 0, but is -1",
        "--set: 'batch.sizes.sts' is part of 'batch.sizes', which is searched as a whole; "
        "set 'batch.sizes'",
    ]
    alone = faults_of("parameters: {smart.weight: {float: [0, 1]}}", overrides={"smart.weight": 1})
    assert alone == ["--set: decides every parameter; leave one to the search"]


def test_another_task_set_can_be_asked_for(make: Make, tmp_path: Path) -> None:
    text = "tasks: cs224n\nparameters: {optim.clip: {choice: [1, 2]}}"
    assert make(text, tasks="sample").task_set.name == "sample"
    task = "{binary: true, format: arrow, files: {train: a, dev: b}, "
    task += "columns: {text: sentence1, label: label}}"
    (tmp_path / "own.yaml").write_text(f"tasks: {{mood: {task}}}")
    space = make("tasks: own.yaml\nparameters: {batch.sizes.mood: {choice: [1, 2]}}")
    assert space.tasks == str(tmp_path / "own.yaml")  # found beside the space


def test_an_unknown_space_is_told_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'paper-00"):
        load_space("paper-0")
    with pytest.raises(InputError, match="known: default, full, paper-000"):
        load_space("zzz")
    with pytest.raises(InputError, match="no such file"):
        load_space("nothing/here.yaml")
    with pytest.raises(InputError, match=r"^search: 1 problem\n  --tasks: .*: no such file"):
        load_space("default", tasks="none.yaml")
