from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from model.common.errors import InputError
from model.config.parse import parse_settings
from model.config.values import show
from model.tasks.task_set import LossName, TaskSet, load_task_set

CS224N = load_task_set("cs224n")
THREE_WAY = replace(
    CS224N["sts"], name="nli", kind="classes", classes=3, low=0, high=2, loss="cross_entropy"
)
FOUR = TaskSet("four", "", (*CS224N.tasks, THREE_WAY))


def faults_of(settings: Any, tasks: TaskSet = CS224N) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_settings(settings, tasks)
    return caught.value.faults


MALFORMED: list[tuple[dict[Any, Any], str]] = [
    (
        {"optim.lerning_rate": 1},
        "'optim.lerning_rate' is not a setting; did you mean 'optim.learning_rate'?",
    ),
    ({"smart": {"wieght": 1}}, "'smart.wieght' is not a setting; did you mean 'smart.weight'?"),
    ({"smrt": {"weight": 1}}, "'smrt' is not a setting; did you mean 'smart'?"),
    ({"weight_decay": 1}, "'weight_decay' is not a setting; did you mean 'optim.weight_decay'?"),
    ({"smart.qqq": 1}, "'smart.qqq' is not a setting; known: smart.weight, smart.variant, "),
    ({"qqq": 1}, "'qqq' is not a setting; known: augment, average, batch, "),
    ({5: 1}, "'5' is not a setting; known: augment, "),
    (
        {"smart": 5},
        "'smart' is a section, not a setting; give its settings, such as 'smart.weight'",
    ),
    ({"smart.weight": {"x": 1}}, "'smart.weight' must be a number >= 0, but is {'x': 1}"),
    ({"smart.weight": -1}, "'smart.weight' must be a number >= 0, but is -1"),
    ({"smart.weight": True}, "'smart.weight' must be a number >= 0, but is true"),
    ({"smart.weight": float("nan")}, "'smart.weight' must be a number >= 0, but is nan"),
    ({"smart.weight": float("inf")}, "'smart.weight' must be a number >= 0, but is inf"),
    ({"smart.weight": "much"}, "'smart.weight' must be a number >= 0, but is 'much'"),
    ({"smart.weight": None}, "'smart.weight' must be a number >= 0, but is null"),
    ({"smart.steps": 1.5}, "'smart.steps' must be a whole number >= 1, but is 1.5"),
    ({"encoder.dropout": 1}, "'encoder.dropout' must be a number >= 0 and < 1, or null, but is 1"),
    ({"encoder.frozen": 1}, "'encoder.frozen' must be true or false, but is 1"),
    ({"encoder.name": 5}, "'encoder.name' must be text, but is 5; put it in quotes"),
    ({"encoder.name": ""}, "'encoder.name' must be text, but is ''"),
    ({"head.hidden": "wide"}, "'head.hidden' must be a whole number >= 0, or width, but is 'wide'"),
    (
        {"smart.variant": "balls"},
        "'smart.variant' must be one of published, ball, random, but is 'balls'; "
        "did you mean 'ball'?",
    ),
    ({"surgery": None}, "'surgery' must be one of none, pcgrad, cagrad, nash_mtl"),
    (
        {"optim.betas": [0.9]},
        "'optim.betas' must be a list of 2, each a number >= 0 and < 1, but is [0.9]",
    ),
    ({"optim.betas": [0.9, 1]}, "'optim.betas' must be a list of 2, each a number >= 0 and < 1"),
    ({"seed": 2**40}, "'seed' must be a whole number >= 0 and <= 4294967295, but is 1099511627776"),
    ({"seed": 1 << 20_000}, "but is a number of too many digits"),
    (
        {"loss.sts2": "mse"},
        "'loss.sts2' is not a setting, and 'sts2' is not a task of cs224n; "
        "did you mean 'loss.sts'?",
    ),
    (
        {"augment": {"foo": "x.csv"}},
        "'augment.foo' is not a setting, and 'foo' is not a task of cs224n; "
        "known: augment.sst, augment.para, augment.sts",
    ),
    (
        {"optim.layer_scale.layers": {"foo": [1]}},
        "'optim.layer_scale.layers.foo' is not a setting, and 'foo' is not a task of cs224n",
    ),
    (
        {"optim": {"layer_scale": {"layers": {"sst": [-1]}}}},
        "'optim.layer_scale.layers.sst' must be a list, each a whole number >= 0, but is [-1]",
    ),
    (
        {"smart.tasks": ["sst", "parra"]},
        "'smart.tasks' names 'parra', which is not a task of cs224n; did you mean 'para'?",
    ),
    ({"smart.tasks": []}, "'smart.tasks' is an empty list; name some of sst, para, sts"),
    ({"smart.tasks": "sst"}, "'smart.tasks' must be a list, each the name of a task, or null"),
    (
        {"smart.tasks": ["sst", "sst"]},
        "'smart.tasks' names sst more than once; name each task",
    ),
    (
        {"pretrain.simcse.tasks": ["para", "para"]},
        "'pretrain.simcse.tasks' names para more than once; name each task",
    ),
    (
        {"pretrain.simcse.tasks": ["parra"]},
        "'pretrain.simcse.tasks' names 'parra', which is not a task of cs224n; did you mean",
    ),
    (
        {"schedule.order": ["sst", "foo", "sts"]},
        "'schedule.order' names 'foo', which is not a",
    ),
    ({"schedule.order": ["sst", "sts"]}, "'schedule.order' leaves out para; name every task"),
    ({"schedule.first": "foo"}, "'schedule.first' names 'foo', which is not a task of cs224n"),
    ({"schedule.anchor": "foo"}, "'schedule.anchor' names 'foo', which is not a task of cs224n"),
    (
        {"batch.sizes": [16, 16]},
        "'batch.sizes' has 2 values for 3 tasks; give one each for sst, para, sts",
    ),
    (
        {"loss.weights": [1, 1, 1, 1]},
        "'loss.weights' has 4 values for 3 tasks; give one each for sst, para, sts",
    ),
    ({"loss.weights": 2}, "'loss.weights' must be a list, each a number >= 0, or null, but is 2"),
    (
        {"loss.sst": "hinge"},
        f"'loss.sst' must be one of {', '.join(get_args(LossName))}, but is 'hinge'",
    ),
    (
        {"loss.sst": "mse"},
        "'loss.sst' is mse, which does not fit a task of 5 classes; known: cross_entropy, "
        "dual_objective, ordinal_log",
    ),
    (
        {"loss.sts": "cross_entropy"},
        "'loss.sts' is cross_entropy, which does not fit regression; known: mse",
    ),
    (
        {"loss.para": "binary_cross_entropy", "head.binary_logits": 2},
        "'loss.para' is binary_cross_entropy, which needs one logit; set head.binary_logits: 1",
    ),
    (
        {"optim.layer_scale.beta": 2},
        "'optim.layer_scale' has a scale but no layers; name each task's own in .layers",
    ),
    ({"loss.weights": [0, 0, 0]}, "'loss.weights' are all 0, so nothing would be trained"),
    (
        {"surgery": "pcgrad", "encoder.frozen": True},
        "'surgery' is for shared weights, but encoder.frozen leaves none; set surgery: none",
    ),
    (
        {"pair.encoding": {"sst": "cross"}},
        "'pair.encoding.sst': sst has one sentence and needs no encoding; remove it",
    ),
    (
        {"pair.encoding": "cosine", "loss.para": "cross_entropy"},
        "'pair.encoding' cosine gives para one logit, but cross_entropy needs two; "
        "set pair.encoding.para: cross, or another loss",
    ),
    (
        {"surgery": "pcgrad", "schedule.name": "annealed"},
        "'surgery' is pcgrad, but annealed trains one task per step, so no gradients meet; "
        "set surgery: none, or schedule.name to one of batch_round_robin, "
        "pretrain_then_simultaneous, simultaneous",
    ),
    (
        {"encoder.frozen": True, "encoder.train_layers": [3]},
        "'encoder.train_layers' names layers to train, but encoder.frozen is true; keep one",
    ),
    (
        {"encoder.frozen": True, "pretrain.simcse.epochs": 1},
        "'pretrain.simcse.epochs': SimCSE trains the encoder, but encoder.frozen is true",
    ),
    ({"encoder.train_layers": []}, "'encoder.train_layers' is empty; name a layer, or set"),
    (
        {"encoder.gradient_checkpointing": True, "encoder.adapter": "pals"},
        "'encoder.gradient_checkpointing': PALs do not know their task when layers are computed",
    ),
    (
        {"encoder.adapter_heads": 5},
        "'encoder.adapter_heads' 5 must divide encoder.adapter_size 204",
    ),
    ({"budget.epochs": None}, "the run has no end; set budget.epochs or budget.examples"),
    ({"budget.epochs": 0}, "'budget.epochs' must be a number > 0, or null, but is 0"),
    (
        {"batch.accumulate": 20},
        "'batch.accumulate' is 20: parts of a batch of 16 would be empty; set at most 16",
    ),
    (
        {"smart.weight": 1, "smart": {"weight": 2}},
        "'smart.weight' is given twice, as 1.0 and as 2; keep one of them",
    ),
]


@pytest.mark.parametrize(("settings", "message"), MALFORMED, ids=lambda item: show(item)[:60])
def test_a_fault_is_told_with_its_remedy(settings: dict[Any, Any], message: str) -> None:
    (fault,) = faults_of(settings)
    assert message in fault


def test_all_faults_are_told_at_once() -> None:
    everything: dict[Any, Any] = {
        "smart": {"wieght": 1, "steps": 0},
        "loss": {"sst": "mse", "foo": "mse"},
        "surgery": "pcgrad",
        "schedule.name": "uniform",
        "budget.epochs": None,
    }
    assert len(faults_of(everything)) == 6


def test_what_follows_from_a_faulty_value_is_not_told_too() -> None:
    (fault,) = faults_of({"head.binary_logits": 3, "loss.para": "cross_entropy"})
    assert "head.binary_logits" in fault


@pytest.mark.parametrize("settings", [[], "text", 5, None, [{"seed": 1}]])
def test_settings_that_are_no_mapping_are_refused(settings: Any) -> None:
    (fault,) = faults_of(settings)
    assert "must be a mapping of keys to values" in fault


def test_cosine_does_not_fit_three_classes() -> None:
    (fault,) = faults_of({"pair.encoding": "cosine"}, FOUR)
    assert "nli has 3 classes, and a cosine is one number; set pair.encoding.nli: cross" in fault
    fixed = {"pair.encoding": "cosine", "pair.encoding.nli": "cross"}
    assert parse_settings(fixed, FOUR).encoding_of(THREE_WAY) == "cross"


@pytest.mark.parametrize("name", ["weights", "alpha"])
def test_a_task_named_like_a_setting_does_not_hide_it(name: str) -> None:
    tasks = TaskSet("odd", "", (replace(CS224N["sst"], name=name),))
    (fault,) = faults_of({f"loss.{name}": "ordinal_log"}, tasks)
    assert f"the setting comes before the task '{name}': rename the task" in fault
    value: Any = [2.0] if name == "weights" else 2.0
    config = parse_settings({f"loss.{name}": value}, tasks)
    assert config.to_flat()[f"loss.{name}"] == value and not config.loss.by_task


def test_the_loss_decides_how_many_logits_a_binary_task_has() -> None:
    tasks = TaskSet("one", "", (replace(CS224N["para"], loss="dual_objective"),))
    assert parse_settings({}, tasks).logits_of(tasks["para"]) == 2
    para = CS224N["para"]
    assert parse_settings({}, CS224N).logits_of(para) == 1
    assert parse_settings({"loss.para": "cross_entropy"}, CS224N).logits_of(para) == 2
    assert parse_settings({"head.binary_logits": 2}, CS224N).logits_of(para) == 2
    cosine = {"head.binary_logits": 2, "pair.encoding": "cosine"}
    assert parse_settings(cosine, CS224N).logits_of(para) == 1
