from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from model.common.errors import InputError
from model.common.files import read_yaml
from model.config.parse import (
    Layer,
    RunConfig,
    flatten,
    parse_assignment,
    parse_layers,
    parse_settings,
    read_settings,
)
from model.tasks.task_set import load_task_set

CS224N = load_task_set("cs224n")


# What is accepted


def test_nothing_given_is_the_default() -> None:
    assert parse_settings({}, CS224N) == RunConfig()
    assert parse_settings({"smart": None, "optim": {}}, CS224N) == RunConfig()


def test_nested_dotted_and_mixed_keys_mean_the_same() -> None:
    wanted = parse_settings({"pretrain.simcse.epochs": 1, "smart.weight": 5}, CS224N)
    assert wanted.pretrain.simcse.epochs == 1.0
    nested = {"pretrain": {"simcse": {"epochs": 1}}, "smart": {"weight": 5}}
    mixed = {"pretrain": {"simcse.epochs": 1}, "smart": {"weight": 5}}
    other = {"pretrain.simcse": {"epochs": 1}, "smart.weight": 5}
    assert all(parse_settings(way, CS224N) == wanted for way in (nested, mixed, other))


def test_a_key_given_in_both_ways_with_one_value_is_accepted() -> None:
    both = {"smart": {"weight": 5}, "smart.weight": 5.0}
    assert parse_settings(both, CS224N).smart.weight == 5.0


@pytest.mark.parametrize(
    ("key", "given_value", "held"),
    [
        ("optim.learning_rate", "1e-5", 1e-5),  # as PyYAML reads a bare 1e-5
        ("optim.clip", 2, 2.0),
        ("batch.sizes", 16.0, 16),
        ("budget.examples", "1e4", 10_000),
        ("head.binary_logits", 2.0, 2),
        ("optim.betas", [0.8, "9e-1"], [0.8, 0.9]),
        ("encoder.dropout", None, None),
        ("head.hidden", "width", "width"),
        ("head.hidden", 120, 120),
        ("encoder.train_layers", [8, 9], [8, 9]),
    ],
)
def test_values_are_held_in_the_type_of_their_setting(
    key: str, given_value: Any, held: Any
) -> None:
    value = parse_settings({key: given_value}, CS224N).to_flat()[key]
    assert value == held and type(value) is type(held)


def test_a_config_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        RunConfig().seed = 1  # type: ignore[misc]


def test_batch_sizes_and_weights_are_given_for_all_in_order_or_by_task() -> None:
    def sizes(given: dict[str, Any]) -> tuple[int, ...]:
        return parse_settings(given, CS224N).batch_sizes(CS224N)

    assert sizes({}) == (16, 16, 16)
    assert sizes({"batch.sizes": [16, 16, 10]}) == (16, 16, 10)
    assert sizes({"batch": {"sizes": {"sts": 10}}}) == (16, 16, 10)
    assert sizes({"batch.sizes": 8, "batch.sizes.para": 32}) == (8, 32, 8)
    config = parse_settings({"loss.weights": {"para": 2}}, CS224N)
    assert config.loss_weights(CS224N) == (1.0, 2.0, 1.0)
    assert RunConfig().loss_weights(CS224N) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("high", "share"), [(5, 1.0), (1, 25.0), (50, 0.01)])
def test_a_squared_error_counts_as_on_labels_from_0_to_5(
    tmp_path: Path, high: int, share: float
) -> None:
    path = tmp_path / "own.yaml"
    shared = "format: glue\n    files: {train: a, dev: b}\n    columns: {text: s, label: l}\n"
    kinds = {"far": f"regression: [0, {high}]", "near": f"regression: [0, {high}]"}
    kinds["mood"] = "classes: 3"
    tasks = "".join(f"  {name}:\n    {kind}\n    {shared}" for name, kind in kinds.items())
    path.write_text(f"tasks:\n{tasks}")
    tasks = load_task_set(str(path))
    config = parse_settings({"loss.weights": [2.0, 3.0, 4.0], "loss.near": "pearson"}, tasks)
    weights = config.training_weights(tasks)
    # A correlation has no scale.
    assert weights == {"far": pytest.approx(2 * share), "near": 3.0, "mood": 4.0}


def test_pair_encoding_is_one_for_all_or_by_task() -> None:
    config = parse_settings({"pair.encoding": {"sts": "cosine"}}, CS224N)
    assert [config.encoding_of(task) for task in CS224N] == ["single", "cross", "cosine"]
    config = parse_settings({"pair.encoding": "concat", "pair.encoding.sts": "cosine"}, CS224N)
    assert [config.encoding_of(task) for task in CS224N] == ["single", "concat", "cosine"]
    config = parse_settings({"pair.encoding": {"para": "concat", "sts": "concat"}}, CS224N)
    assert config.pair.encoding == "concat"


def test_a_binary_task_with_two_logits_takes_cross_entropy_by_itself() -> None:
    assert RunConfig().loss_of(CS224N["para"]) == "binary_cross_entropy"
    config = parse_settings({"head.binary_logits": 2}, CS224N)
    assert config.loss_of(CS224N["para"]) == "cross_entropy"
    assert config.loss_of(CS224N["sst"]) == "cross_entropy"
    assert config.loss_of(CS224N["sts"]) == "mse"


def test_a_budget_of_examples_alone_leaves_the_epochs_open() -> None:
    assert RunConfig().budget.epochs == 2.0
    assert parse_settings({"budget.examples": 100}, CS224N).budget.epochs is None
    both = parse_settings({"budget": {"examples": 100, "epochs": 4}}, CS224N).budget
    assert (both.epochs, both.examples) == (4.0, 100)


def test_masks_are_drawn_anew_only_for_the_published_variant_unless_said() -> None:
    def shared(**smart: str) -> bool:
        return parse_settings({"smart": smart}, CS224N).smart.shared_masks

    assert not shared(variant="published")
    assert shared(variant="ball") and shared(variant="random")
    assert shared(variant="published", masks="shared") and not shared(variant="ball", masks="anew")


# Layers


def test_later_layers_win_and_keep_the_rest() -> None:
    config = parse_layers([Layer({"seed": 1, "smart.weight": 5}), Layer({"seed": 2})], CS224N)
    assert (config.seed, config.smart.weight) == (2, 5.0)


def test_a_later_value_for_all_tasks_replaces_earlier_ones_of_single_tasks() -> None:
    own, general = {"batch.sizes.sts": 10}, {"batch.sizes": 8}
    assert parse_layers([Layer(own), Layer(general)], CS224N).batch.sizes == 8
    assert parse_layers([Layer(general), Layer(own)], CS224N).batch.sizes == (8, 8, 10)


def test_null_takes_back_what_was_said_of_a_task() -> None:
    said = {"loss.sst": "ordinal_log", "augment.sst": "more.csv"}
    taken_back = Layer({"loss.sst": None, "augment.sst": None})
    assert parse_layers([Layer(said), taken_back], CS224N) == RunConfig()


def test_faults_of_several_layers_come_together_and_name_their_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("seed: 1\nsmart:\n  wieght: 5\n")
    with pytest.raises(InputError) as caught:
        parse_layers([read_settings(path), Layer({"smart.steps": 0}, "--set")], CS224N)
    assert caught.value.faults == [
        f"{path}: line 3: 'smart.wieght' is not a setting; did you mean 'smart.weight'?",
        "--set: 'smart.steps' must be a whole number >= 1, but is 0",
    ]


# Files and the command line


def test_faults_in_a_file_carry_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("seed: -1\nsmart:\n  weight: 5\n  stepps: 1\nloss.sst: mse\n")
    with pytest.raises(InputError) as caught:
        parse_layers([read_settings(path)], CS224N)
    assert str(path) == caught.value.where
    assert [fault[:8] for fault in caught.value.faults] == ["line 1: ", "line 4: ", "line 5: "]
    document = read_yaml(path)
    with pytest.raises(InputError, match="line 4: 'smart.stepps'"):
        parse_settings(document.data, CS224N, where="x", document=document)


def test_a_file_may_hold_settings_beside_its_tasks(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("about: a run\ntasks: cs224n\ndata: null\nsettings:\n  seed: 3\n")
    layer = read_settings(path)
    assert (layer.about, layer.tasks, layer.settings) == ("a run", "cs224n", {"seed": 3})
    assert parse_layers([read_settings(path)], CS224N).seed == 3
    path.write_text("settings:\n  smart:\n    x: 3\n")
    with pytest.raises(InputError, match="line 3: 'smart.x'"):
        parse_layers([read_settings(path)], CS224N)


def test_the_frame_of_a_file_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("about: [1]\nseed: 3\nsettings: 5\n")
    with pytest.raises(InputError) as caught:
        parse_layers([read_settings(path)], CS224N)
    assert caught.value.faults == [
        "line 1: 'about' must be text, but is [1]",
        "line 2: 'seed' stands beside 'settings'; move it below",
        "line 3: 'settings' must be a mapping of keys to values, but is 5",
    ]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("smart.weight=5", "smart.weight", 5),
        ("optim.learning_rate = 1e-5", "optim.learning_rate", "1e-5"),
        ("batch.sizes=[16, 16, 10]", "batch.sizes", [16, 16, 10]),
        ("encoder.dropout=null", "encoder.dropout", None),
        ("init_from=a=b", "init_from", "a=b"),
    ],
)
def test_an_assignment_is_a_key_and_a_yaml_value(text: str, key: str, value: Any) -> None:
    assert parse_assignment(text) == (key, value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smart.weight", "is not KEY=VALUE; write smart.weight=5"),
        ("=5", "is not KEY=VALUE"),
        ("smart.weight=", "has no value; write smart.weight=null for none"),
        ("batch.sizes=[16", "put the value in quotes, or a list in [brackets]"),
        ("smart.weight=!!bool x", "not valid YAML"),
        ("seed=!!python/object:x y", "could not determine a constructor"),
        ("seed=2020-13-45", "not valid YAML"),
    ],
)
def test_a_bad_assignment_is_told_clearly(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_assignment(text)
    assert message in caught.value.faults[0]


def test_flatten_opens_sections_and_nothing_else() -> None:
    flat = flatten({"optim": {"layer_scale": {"layers": {"sst": [1]}}}, "x": {"y": 1}, "seed": 1})
    assert flat == {"optim.layer_scale.layers.sst": [1], "x": {"y": 1}, "seed": 1}
    with pytest.raises(InputError, match="given twice"):
        flatten({"smart.weight": 1, "smart": {"weight": 2}})
