"""LoRA beside every family of encoders; needs peft, which the extra `lora` installs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from model.common.errors import InputError
from model.config.parse import parse_settings
from model.evaluation.model_folder import read_model, save_model
from model.modules.encoder import layers_of, load_encoder, tiny_tokenizer
from model.modules.lora import attach_lora, has_lora, is_lora, target_names
from model.tasks.task_set import TaskSet
from model.train import train
from model.training.optim import make_optimizer
from model.training.prepare import prepare

from ...conftest import make_model
from ..test_resume import after, same_result
from .encoders import FAMILIES, save_encoder

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")
SETTINGS: dict[str, Any] = {
    "encoder.name": "tiny",
    "encoder.adapter": "lora",
    "encoder.lora_rank": 2,
    "encoder.max_length": 32,
    "batch.sizes": 4,
    "budget.examples": 48,
    "budget.eval_every": 24,
    "budget.eval_rows": 8,
}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: save_encoder(name, tmp_path_factory.mktemp("encoder")))


def with_lora(folder: Path, targets: str = "all") -> Any:
    """An encoder whose updates are not 0."""
    encoder: Any = load_encoder(str(folder), dropout=0.0, attention_dropout=0.0)
    attach_lora(encoder, rank=2, alpha=3.0, dropout=0.0, targets=targets, seed=0)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if is_lora(name):
                parameter.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
    return encoder


@needs_peft
@pytest.mark.parametrize("targets", ["all", "attention"])
@pytest.mark.parametrize("name", FAMILIES)
def test_saved_is_an_ordinary_encoder_that_answers_alike(
    name: str, targets: str, folder_of: Any, batch_of: Any, tmp_path: Path
) -> None:
    encoder = with_lora(folder_of(name), targets)
    model, plain = make_model(encoder=encoder).eval(), load_encoder(str(folder_of(name)))
    save_model(tmp_path / "model", model, tiny_tokenizer())
    again, _ = read_model(tmp_path / "model")
    assert not has_lora(again.encoder) and has_lora(encoder)
    assert again.encoder.state_dict().keys() == plain.state_dict().keys()
    before = make_model(encoder=plain).eval()
    for task in model.spec.tasks:
        batch = batch_of(task)
        torch.testing.assert_close(
            again.features(task.name, batch), model.features(task.name, batch), atol=1e-5, rtol=1e-4
        )
        assert not torch.allclose(
            before.features(task.name, batch), model.features(task.name, batch), atol=1e-3
        )


@needs_peft
@pytest.mark.parametrize("name", FAMILIES)
def test_only_the_updates_are_trained_at_the_rate_of_their_layer(name: str, folder_of: Any) -> None:
    encoder = with_lora(folder_of(name))
    model = make_model(encoder=encoder)
    layers = len(layers_of(encoder))
    groups = make_optimizer(
        model.named_parameters(), layers=layers, learning_rate=1.0, layer_decay=0.5
    ).param_groups
    rates = {n: group["lr"] for group in groups for n in group["names"]}
    trained = {n for n in rates if n.startswith("encoder.")}
    assert trained and all(is_lora(n) for n in trained)
    assert len(trained) == 2 * len(list(target_names(load_encoder(str(folder_of(name))), "all")))
    expected = {0.5 ** (layers - 1 - depth) for depth in range(layers)}
    assert {rates[n] for n in trained} == expected


@needs_peft
def test_an_update_is_b_times_a_scaled(folder_of: Any) -> None:
    encoder = with_lora(folder_of("BERT"))
    layer = encoder.encoder.layer[0].attention.self.query
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    x = torch.randn(3, 32)
    expected = layer.base_layer(x) + x @ a.T @ b.T * 3.0 / 2
    torch.testing.assert_close(layer(x), expected)


@needs_peft
@pytest.mark.parametrize(
    "more",
    [
        {"smart.weight": 1, "smart.bregman": 1, "encoder.lora_dropout": 0.1},
        {"surgery": "pcgrad", "pretrain.simcse.epochs": 0.02, "pretrain.simcse.batch_size": 16},
    ],
    ids=["smart", "surgery, simcse"],
)
def test_a_run_that_was_stopped_is_the_same_run(
    more: dict[str, Any], tasks: TaskSet, tmp_path: Path
) -> None:
    config = parse_settings({**SETTINGS, **more}, tasks)
    list(train(config, tasks, out=tmp_path / "whole"))
    list(train(config, tasks, out=tmp_path / "parts", stop=after(3)))
    list(train(config, tasks, out=tmp_path / "parts", resume=True))
    same_result(tmp_path / "whole", tmp_path / "parts")
    # It goes on from a merged model, and stops and resumes there, too.
    start = {**SETTINGS, "init_from": str(tmp_path / "whole" / "model")}
    config = parse_settings(start, tasks)
    list(train(config, tasks, out=tmp_path / "next", stop=after(2)))
    list(train(config, tasks, out=tmp_path / "next", resume=True))
    list(train(config, tasks, out=tmp_path / "next whole"))
    same_result(tmp_path / "next whole", tmp_path / "next")


@needs_peft
def test_its_rate_is_ten_times_the_encoders_own(tasks: TaskSet) -> None:
    def rate(**more: Any) -> float | None:
        return prepare(
            parse_settings({**SETTINGS, **more}, tasks), tasks
        ).config.optim.learning_rate

    plain = rate(**{"encoder.adapter": "none"})
    assert plain is not None and rate() == pytest.approx(10 * plain)
    assert rate(**{"optim.learning_rate": 3e-5}) == 3e-5
    scaled = rate(**{"encoder.adapter": "none", "optim.rate_scale": 0.5})
    assert scaled == pytest.approx(plain / 2)


def test_without_peft_it_is_refused_in_words(
    tasks: TaskSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs peft; from a clone of Stockpot: .*'\.\[lora\]'"):
        prepare(parse_settings(SETTINGS, tasks), tasks)
