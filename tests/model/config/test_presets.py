from __future__ import annotations

from typing import Any

import pytest

from model.common.errors import InputError
from model.config.parse import load_preset, parse_layers, preset_names
from model.config.settings import RunConfig
from model.objectives.schedules import JOINT
from model.tasks.task_set import load_task_set

CS224N = load_task_set("cs224n")
PAPERS = [f"paper-00{number}" for number in range(5)]

# What each paper reports of its final model.
FACTS: dict[str, dict[str, Any]] = {
    "paper-000": {
        "pair.encoding": "cross",
        "encoder.dropout": None,
        "head.dropout": 0.3,
        "pair.segments": False,
        "optim.decayed": "all",
        "optim.epsilon": 1e-6,
        "loss.sst": "dual_objective",
        "schedule.name": "staggered",
        "schedule.first": "para",
        "schedule.first_epochs": 2.0,
        "batch.sizes": [16, 16, 10],
        "smart.weight": 0.45,
        "smart.tasks": ["sst", "para"],
        "smart.steps": 1,
        "smart.noise": 1e-5,
        "smart.epsilon": 1e-6,
        "smart.step_size": 1e-3,
        "optim.learning_rate": 2e-5,
        "optim.weight_decay": 0.01,
    },
    "paper-001": {
        "pair.encoding": "cross",
        "encoder.dropout": 0.1,
        "schedule.name": "pretrain_then_simultaneous",
        "schedule.first": "para",
        "schedule.first_epochs": 1.0,
        "schedule.anchor": "sst",
        "batch.sizes": 8,
        "smart.weight": 5.0,
        "smart.tasks": None,
        "surgery": "none",
        "optim.learning_rate": 1e-5,
        "optim.epsilon": 1e-6,
        "budget.epochs": 10.0,
    },
    "paper-002": {
        "pair.encoding": "cross",
        "encoder.dropout": None,
        "head.dropout": 0.3,
        "pair.segments": True,
        "optim.epsilon": 1e-6,
        "head.binary_logits": 2,
        "schedule.name": "annealed",
        "schedule.anneal": 0.8,
        "schedule.epoch_steps": 1000,
        "batch.sizes": 16,
        "smart.weight": 0.0,
        "optim.learning_rate": 1e-5,
        "optim.weight_decay": 0.0,
        "budget.epochs": 25.0,
    },
    "paper-003": {
        "pair.encoding": "bi_concat",
        "head.hidden": "width",
        "head.activation": "gelu",
        "encoder.adapter": "pals",
        "encoder.adapter_size": 204,
        "encoder.adapter_heads": 12,
        "encoder.frozen": False,
        "schedule.name": "epoch_round_robin",
        "pretrain.simcse.epochs": 3.0,
        "smart.weight": 1.0,
        "smart.bregman": 2.0,
        "smart.noise": 1e-5,
        "optim.learning_rate": 1e-5,
        "budget.epochs": 10.0,
    },
    "paper-004": {
        "pair.encoding": "concat",
        "head.hidden": 120,
        "head.activation": "relu",
        "head.dropout": 0.3,
        "schedule.name": "batch_round_robin",
        "batch.sizes": 16,
        "loss.weights": [0.1, 1.0, 0.2],
        "smart.weight": 0.0,
        "optim.learning_rate": 1e-5,
        "budget.epochs": 150.0,
    },
}
REPORTED = {
    "paper-000": ("0.790", "0.793"),
    "paper-001": ("0.800", "0.798"),
    "paper-002": ("0.803", "0.793"),
    "paper-003": ("0.778", "0.786"),
    "paper-004": ("0.783",),
}


def config_of(name: str) -> RunConfig:
    return parse_layers([load_preset(name)], CS224N)


def test_every_paper_has_a_preset() -> None:
    assert preset_names() == PAPERS == list(FACTS)


@pytest.mark.parametrize("name", PAPERS)
def test_a_preset_is_the_final_model_of_its_paper(name: str) -> None:
    flat = config_of(name).to_flat()
    assert {key: flat.get(key) for key in FACTS[name]} == FACTS[name]


@pytest.mark.parametrize("name", PAPERS)
def test_every_preset_trains_bert_base_on_the_tasks_of_the_course(name: str) -> None:
    encoder = config_of(name).encoder
    assert (encoder.name, encoder.pooling) == ("bert-base-uncased", "cls")
    assert load_preset(name).tasks == "cs224n"


@pytest.mark.parametrize("name", PAPERS)
def test_no_preset_has_a_schedule_of_the_rate_or_clipping_that_its_paper_does_not_state(
    name: str,
) -> None:
    optim = config_of(name).optim
    assert (optim.decay, optim.warmup, optim.clip, optim.layer_decay) == ("constant", 0.0, 0.0, 1.0)
    assert optim.betas == (0.9, 0.999)


@pytest.mark.parametrize("name", PAPERS)
def test_smart_is_the_published_one_with_dropout_drawn_anew(name: str) -> None:
    smart = config_of(name).smart
    assert smart.variant == "published" and not smart.shared_masks


@pytest.mark.parametrize("name", PAPERS)
def test_a_preset_tells_the_reported_scores(name: str) -> None:
    about = load_preset(name).about
    assert all(score in about for score in REPORTED[name])


def test_only_one_preset_has_a_loss_that_is_not_the_tasks_own() -> None:
    losses = {name: [config_of(name).loss_of(task) for task in CS224N] for name in PAPERS}
    plain = ["cross_entropy", "binary_cross_entropy", "mse"]
    assert losses["paper-000"] == ["dual_objective", "binary_cross_entropy", "mse"]
    assert losses["paper-002"] == ["cross_entropy", "cross_entropy", "mse"]
    assert losses["paper-001"] == losses["paper-003"] == losses["paper-004"] == plain


def test_papers_001_and_004_train_all_tasks_in_one_step() -> None:
    joint = [name for name in PAPERS if config_of(name).schedule.name in JOINT]
    assert joint == ["paper-001", "paper-004"]


def test_an_unknown_preset_is_told_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'paper-00"):
        load_preset("paper-0")
    with pytest.raises(InputError, match="known: paper-000, paper-001"):
        load_preset("zzz")
