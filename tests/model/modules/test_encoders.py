"""Every promised family keeps every promise, tried on a small random encoder of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from model.common.errors import InputError
from model.config.parse import parse_settings
from model.config.settings import SmartSettings
from model.data.batches import Batch
from model.evaluation.model_folder import read_model, save_model
from model.modules.encoder import (
    attention_dropout,
    checkpoint_gradients,
    choose_trained,
    hidden_dropout,
    layers_of,
    load_encoder,
    load_tokenizer,
    longest_input,
    tiny_tokenizer,
)
from model.modules.multitask import MultitaskModel
from model.modules.pairs import LAYOUTS
from model.tasks.task_set import TaskSet
from model.train import train
from model.training.optim import make_optimizer
from model.training.step import Stepper

from ...conftest import make_model
from ..stepping import close, gradients, stepper
from ..test_resume import after, same_result
from .encoders import FAMILIES, WIDTH, Family, save_encoder, table

DOCS = Path(__file__).parents[3] / "docs" / "encoders.md"
pytestmark = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return cache(lambda name: save_encoder(name, tmp_path_factory.mktemp("encoder")))


@pytest.fixture
def folder(name: str, folder_of: Callable[[str], Path]) -> Path:
    return folder_of(name)


@pytest.fixture
def family(name: str) -> Family:
    return FAMILIES[name]


@pytest.fixture
def encoder(folder: Path) -> Any:
    return load_encoder(str(folder), dropout=0.0, attention_dropout=0.0)


def test_both_dropouts_reach_it(folder: Path) -> None:
    encoder = load_encoder(str(folder), dropout=0.25, attention_dropout=0.35)
    assert {part.p for part in encoder.modules() if isinstance(part, nn.Dropout)} == {0.25, 0.35}
    assert (hidden_dropout(encoder), attention_dropout(encoder)) == (0.25, 0.35)
    model = make_model(encoder=encoder, dropout=None).train()
    assert model.encoder.training


def test_every_parameter_has_the_rate_of_its_place(family: Family, encoder: Any) -> None:
    model = make_model(encoder=encoder)
    layers = len(layers_of(encoder))
    assert layers == family.layers
    groups = make_optimizer(
        model.named_parameters(),
        layers=layers,
        learning_rate=1.0,
        layer_decay=0.5,
        head_learning_rate=7.0,
    ).param_groups
    rates = {name: group["lr"] for group in groups for name in group["names"]}
    assert rates.keys() == {name for name, _ in model.named_parameters()}
    inside = [parameter for layer in layers_of(encoder) for parameter in layer.parameters()]
    depth_of = {
        id(parameter): depth
        for depth, layer in enumerate(layers_of(encoder))
        for parameter in layer.parameters()
    }
    assert len(inside) == len(depth_of) > 10
    seen: set[str] = set()
    for name, parameter in model.named_parameters():
        own = name.removeprefix("encoder.")
        if name.startswith("heads."):
            assert rates[name] == 7.0, name
        elif id(parameter) in depth_of:
            assert rates[name] == 0.5 ** (layers - 1 - depth_of[id(parameter)]), name
        elif any(own.startswith(f"{part}.") for part in family.on_top):
            assert rates[name] == 1.0, name
        else:
            assert rates[name] == 0.5**layers, name
            seen.add(own.rpartition(".")[0])
    assert {part for part in seen if not part.startswith("embeddings.")} == family.everywhere


def test_it_can_be_frozen_whole_or_but_for_a_layer(family: Family, encoder: Any) -> None:
    last = family.layers - 1
    choose_trained(encoder, frozen=False, layers=[last])
    trained = {id(p) for p in encoder.parameters() if p.requires_grad}
    assert trained == {id(p) for p in layers_of(encoder)[last].parameters()}
    with pytest.raises(InputError, match="no such layer"):
        choose_trained(encoder, frozen=False, layers=[family.layers])
    choose_trained(encoder, frozen=True, layers=None)
    assert not any(p.requires_grad for p in encoder.parameters())


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_changes_no_embedding(
    family: Family, encoder: Any, batch_of: Any, pooling: str
) -> None:
    model = make_model(encoder=encoder, pooling=pooling).eval()
    batch: Batch = batch_of(model.tasks["near"], 6)
    assert batch.padded
    together = model.encode(batch)
    for row in range(len(batch.input_ids)):
        length = int(batch.attention_mask[row].sum())
        alone = Batch(
            batch.input_ids[row : row + 1, :length],
            batch.attention_mask[row : row + 1, :length],
            batch.token_type_ids[row : row + 1, :length],
            batch.labels[:1],
            np.arange(1),
            parts=1,
            padded=False,
        )
        assert torch.allclose(model.encode(alone)[0], together[row], atol=1e-5)
        known = replace(alone, padded=True)  # a mask that masks nothing is no other answer
        assert torch.allclose(model.encode(known)[0], together[row], atol=1e-5)


def test_the_pooler_is_there_or_missed_in_words(
    family: Family, encoder: Any, batch_of: Any
) -> None:
    model = make_model(encoder=encoder).eval()
    batch = batch_of(model.tasks["mood"])
    if family.pooler:
        assert model.encode(batch, "pooler").shape == (6, WIDTH)
    else:
        with pytest.raises(InputError, match="no pooler; choose cls or mean"):
            model.encode(batch, "pooler")


@pytest.mark.parametrize("encoding", LAYOUTS)
def test_every_pair_encoding_trains_it(
    encoder: Any, encoding: str, task_of: Any, batch_of: Any
) -> None:
    near = task_of("near", kind="regression", pair=True, encoding=encoding, outputs=1, loss="mse")
    model = make_model([near], encoder=encoder).train()
    model("near", batch_of(near)).sum().backward()
    without = {n for n, p in model.encoder.named_parameters() if p.grad is None}
    assert all(name.startswith("pooler.") for name in without)


def test_pals_stand_beside_it_or_are_refused_in_words(
    family: Family, encoder: Any, batch_of: Any
) -> None:
    if not family.pals:
        with pytest.raises(InputError, match="PALs need BERT-like layers, but .* leave PALs out"):
            make_model(encoder=encoder, adapter="pals")
        return
    model = make_model(encoder=encoder, adapter="pals").eval()
    batch = batch_of(model.tasks["mood"])
    plain = model("mood", batch)
    assert model.pals is not None
    with torch.no_grad():
        model.pals.tasks["task_mood"].up.weight.normal_()  # type: ignore[union-attr,operator]
    assert not torch.allclose(model("mood", batch), plain, atol=1e-5)


@pytest.mark.parametrize("at", ["words", "embeddings"])
@pytest.mark.parametrize("variant", ["published", "ball", "random"])
def test_smart_perturbs_it(folder: Path, batch_of: Any, at: Any, variant: Any) -> None:
    encoder = load_encoder(str(folder), dropout=0.2, attention_dropout=0.2)
    model = make_model(encoder=encoder).train()
    rounds = [(task.name, batch_of(task)) for task in model.spec.tasks]

    def term(radius: float, masks: Any) -> float:
        smart = SmartSettings(weight=1.0, variant=variant, at=at, radius=radius, masks=masks)
        found = stepper(model, smart=smart, clip=1.0).take(0, rounds, 0.0).smart
        assert found is not None
        return found

    assert term(0.5, "anew") > 1e-7
    if variant != "published":  # whose perturbation has one size
        assert term(1e-7, "shared") < 1e-8  # the same pass again, dropout and all


def test_a_step_leaves_the_host_in_peace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On `meta` there is nothing to read, and no copy to the host."""
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda *_: generator())
    model = make_model(encoder=load_encoder(str(folder))).to("meta").train()

    def batch(parts: int, padded: bool) -> Batch:
        ids = torch.zeros(4 * parts, 9, dtype=torch.long, device="meta")
        return Batch(
            ids, ids, ids, torch.zeros(4, device="meta"), np.arange(4), parts, padded=padded
        )

    work = stepper(model, smart=SmartSettings(weight=1.0), clip=1.0)
    for padded in (True, False):
        parts = {"mood": 1, "same": 1, "near": 2}
        rounds = [(task, batch(count, padded)) for task, count in parts.items()]
        Stepper.step(work, 0, rounds, 1.0, dict.fromkeys(parts, 0))


def test_gradients_computed_again_are_the_same_or_it_is_refused_in_words(
    family: Family, folder: Path, batch_of: Any
) -> None:
    def encoder() -> Any:
        return load_encoder(str(folder), dropout=0.2, attention_dropout=0.2)

    again = encoder()
    if not family.checkpointing:
        with pytest.raises(InputError, match="cannot do it in transformers; set it to false"):
            checkpoint_gradients(again)
        return
    checkpoint_gradients(again)
    found = []
    for model in (make_model(encoder=encoder()).train(), make_model(encoder=again).train()):
        rounds = [(task.name, batch_of(task)) for task in model.spec.tasks]
        work = stepper(model, smart=SmartSettings(weight=0.5, masks="shared"))
        work.step(0, rounds, 1.0, dict.fromkeys(model.tasks, 0))
        found.append(gradients(model))
    assert close(*found, 1e-6)


def test_what_is_saved_is_what_was_there(
    family: Family, encoder: Any, batch_of: Any, tmp_path: Path
) -> None:
    model = make_model(encoder=encoder).eval()
    save_model(tmp_path / "model", model, tiny_tokenizer())
    again, tokenizer = read_model(tmp_path / "model")
    for task in model.spec.tasks:
        batch = batch_of(task)
        assert torch.equal(again(task.name, batch), model(task.name, batch))
    assert tokenizer("ash")["input_ids"] == tiny_tokenizer()("ash")["input_ids"]
    assert load_tokenizer(str(tmp_path / "model")) is not None


def test_a_run_that_was_stopped_is_the_same_run(
    folder: Path, tasks: TaskSet, tmp_path: Path
) -> None:
    settings = {
        "encoder.name": str(folder),
        "encoder.dropout": 0.1,
        "encoder.max_length": 32,
        "batch.sizes": 4,
        "budget.examples": 48,
        "budget.eval_every": 24,
        "budget.eval_rows": 8,
        "optim.layer_decay": 0.9,
        "smart.weight": 1,
    }
    config = parse_settings(settings, tasks)
    list(train(config, tasks, out=tmp_path / "whole"))
    list(train(config, tasks, out=tmp_path / "parts", stop=after(3)))
    list(train(config, tasks, out=tmp_path / "parts", resume=True))
    same_result(tmp_path / "whole", tmp_path / "parts")


def test_the_longest_input_fits(family: Family, encoder: Any) -> None:
    assert longest_input(encoder) == family.longest
    ids = torch.full((1, family.longest), 7)
    with torch.no_grad():
        found: Tensor = encoder(input_ids=ids, attention_mask=torch.ones_like(ids))[0]
    assert found.shape == (1, family.longest, WIDTH)


def test_the_docs_say_so(name: str) -> None:
    assert table() in DOCS.read_text(encoding="utf-8")


def test_a_copy_of_it_answers_alike(encoder: Any, batch_of: Any) -> None:
    """Bregman's copy and the replicas are deep copies."""
    import copy

    model = make_model(encoder=encoder).eval()
    other: MultitaskModel = copy.deepcopy(model)
    batch = batch_of(model.tasks["same"])
    assert torch.equal(other("same", batch), model("same", batch))
