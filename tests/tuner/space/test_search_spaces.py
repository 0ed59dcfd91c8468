"""The spaces that come with the package."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from model.common.files import to_yaml
from model.config.parse import load_preset, parse_layers
from model.tasks.task_set import load_task_set
from tuner.space.space import Space, load_space, shipped_spaces

PAPERS = [f"paper-00{number}" for number in range(5)]
NAMES = ["default", "full", *PAPERS]
ROOT = Path(__file__).parents[3]

optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture(scope="module")
def spaces() -> dict[str, Space]:
    return {name: load_space(name) for name in NAMES}


def tpe(**settings: Any) -> optuna.samplers.TPESampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            multivariate=True, group=True, constant_liar=True, seed=0, **settings
        )


def test_every_space_in_the_folder_is_here() -> None:
    assert sorted(shipped_spaces()) == NAMES
    assert sorted(path.stem for path in (ROOT / "search_spaces").glob("*")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_200_points_drawn_at_random_are_valid_runs(name: str, spaces: dict[str, Space]) -> None:
    space, rng = spaces[name], np.random.default_rng(1)
    tasks = load_task_set(space.tasks)
    for _ in range(200):
        settings = space.draw(rng)
        assert not space.missing(settings)
        config = space.config(settings, tasks, {"budget.examples": 1000, "seed": 3})
        assert (config.seed, config.budget.examples) == (3, 1000)


@pytest.mark.parametrize("name", NAMES)
def test_200_points_of_optunas_random_sampler_are_valid_runs(
    name: str, spaces: dict[str, Space]
) -> None:
    space = spaces[name]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(200):
        trial = study.ask()
        settings = space.suggest(trial)
        space.config(settings)
        assert not space.missing(settings)
        assert space.settings(trial.params) == settings
        assert space.params(settings) == pytest.approx(trial.params)
        study.tell(trial, 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_and_every_choice_comes_up(name: str, spaces: dict[str, Space]) -> None:
    space, rng = spaces[name], np.random.default_rng(2)
    drawn = [space.draw(rng) for _ in range(600)]
    for parameter in space.parameters:
        values = [point[parameter.key] for point in drawn if parameter.key in point]
        assert values
        offered = getattr(parameter.domain, "values", ())
        assert all(value in values for value in offered)


@pytest.mark.parametrize("name", NAMES)
def test_start_default_and_most_expensive_points_are_valid_runs(
    name: str, spaces: dict[str, Space]
) -> None:
    space = spaces[name]
    for point in (*space.start_from, space.default_point(), space.most_expensive()):
        space.config(point)
        assert space.settings(space.params(point)) == point
    assert space.start_from
    assert not space.missing(space.most_expensive())


@pytest.mark.parametrize("name", NAMES)
def test_the_default_point_is_what_base_alone_gives(name: str, spaces: dict[str, Space]) -> None:
    space = spaces[name]
    default, plain = space.config(space.default_point()), space.config({})
    tasks = space.task_set
    assert default.batch_sizes(tasks) == plain.batch_sizes(tasks)
    assert default.loss_weights(tasks) == plain.loss_weights(tasks)
    for task in tasks:
        assert default.loss_of(task) == plain.loss_of(task)
        assert default.encoding_of(task) == plain.encoding_of(task)
    assert (default.smart, default.optim) == (plain.smart, plain.optim)
    assert (default.schedule, default.encoder) == (plain.schedule, plain.encoder)


# What a space says for its other points, and its best one does not use or has by default.
UNUSED: dict[str, set[str]] = {
    "paper-000": set(),
    "paper-001": {"schedule.order"},
    "paper-002": {"smart.epsilon", "smart.noise", "smart.step_size", "smart.masks"},
    "paper-003": {"pretrain.simcse.attention_dropout"},
    "paper-004": {f"optim.layer_scale.layers.{task}" for task in ("sst", "para", "sts")},
}


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_best_point_is_its_preset(name: str, spaces: dict[str, Space]) -> None:
    space = spaces[name]
    best = space.config(space.start_from[0], extra={"budget.epochs": 1})
    preset = parse_layers([load_preset(name)], space.task_set)
    tasks, mine, theirs = space.task_set, best.to_flat(), preset.to_flat()
    for key in ("batch.sizes", "loss.weights", "pair.encoding", "loss.para", "budget.epochs"):
        mine.pop(key, None)
        theirs.pop(key, None)
    assert best.batch_sizes(tasks) == preset.batch_sizes(tasks)
    assert best.loss_weights(tasks) == preset.loss_weights(tasks)
    assert [best.loss_of(task) for task in tasks] == [preset.loss_of(task) for task in tasks]
    assert [best.encoding_of(t) for t in tasks] == [preset.encoding_of(t) for t in tasks]
    differs = {key for key in mine.keys() | theirs if mine.get(key) != theirs.get(key)}
    assert differs == UNUSED[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_space_written_out_and_loaded_again_is_the_same(
    name: str, spaces: dict[str, Space], tmp_path: Path
) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(to_yaml(spaces[name].to_dict()))
    assert load_space(str(path)) == spaces[name]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_tpe_asks_its_way_through_the_full_space(spaces: dict[str, Space]) -> None:
    space, rng = spaces["full"], np.random.default_rng(0)
    study = optuna.create_study(direction="maximize", sampler=tpe(n_startup_trials=5))
    for point in space.start_from:
        study.enqueue_trial(space.params(point))
    for number in range(30):
        trial = study.ask()
        settings = space.suggest(trial)
        space.config(settings)
        if number < len(space.start_from):
            assert settings.items() >= space.start_from[number].items()
        if number % 4:  # the others stay open, as with trials side by side
            study.tell(trial, rng.random())
    assert len(study.trials) == 30


def test_the_default_space_is_the_embedded_default(spaces: dict[str, Space]) -> None:
    space = spaces["default"]
    config = space.config({})
    assert (space.tasks, config.encoder.name) == ("sample", "minilm")
    assert config.smart.weight == 0.0
    # What the longest trial gets, and what the whole search does, unless told otherwise.
    assert (config.budget.examples, space.budget) == (2400, 9000)


def test_the_most_expensive_run_of_full_has_everything_on(spaces: dict[str, Space]) -> None:
    config = spaces["full"].config(spaces["full"].most_expensive())
    assert config.batch.sizes == (32, 32, 32) and config.surgery == "pcgrad"
    assert config.smart.weight > 0 and config.smart.steps == 2 and config.smart.every == 1
    assert config.smart.variant != "random" and config.smart.bregman > 0
    assert config.encoder.adapter == "pals" and config.encoder.adapter_size == 204
    assert config.pretrain.simcse.epochs > 0 and config.pretrain.simcse.batch_size == 128
