from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from model.training.optim import (
    DECAYS,
    layer_of,
    layer_scales,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    progress_scale,
    rates,
    scale_gradients,
    set_rates,
)

LAYERS = 3


def model() -> nn.ModuleDict:
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=50,
    )
    heads = nn.ModuleDict({"one": nn.Linear(16, 2), "embeddings": nn.Linear(16, 2)})
    return nn.ModuleDict({"encoder": BertModel(config), "heads": heads})


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("embeddings.word_embeddings.weight", 0),
        ("encoder.embeddings.LayerNorm.bias", 0),
        ("encoder.embeddings_project.weight", 0),
        ("encoder.layer.0.output.dense.weight", 1),
        ("encoder.encoder.layer.11.attention.self.query.bias", 12),
        ("encoder.layers.3.attn.Wqkv.weight", 4),  # ModernBERT
        ("encoder.pooler.dense.weight", 13),
        ("encoder.final_norm.weight", 13),  # ModernBERT
        ("encoder.encoder.rel_embeddings.weight", 0),  # DeBERTa
        ("encoder.encoder.LayerNorm.weight", 0),
        ("encoder.encoder.relative_attention_bias.weight", 0),  # MPNet
        ("encoder.encoder.embedding_hidden_mapping_in.weight", 0),  # ALBERT
        ("encoder.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight", 1),
        ("heads.one.output.weight", 14),
        ("heads.embeddings.output.weight", 14),
        ("pals.tasks.task_one.attention.3.weight", 14),
    ],
)
def test_the_depth_of_a_parameter(name: str, depth: int) -> None:
    assert layer_of(name, 12) == depth


def test_every_parameter_of_an_encoder_has_its_depth() -> None:
    depths = {layer_of(name, LAYERS) for name, _ in model().named_parameters()}
    assert depths == set(range(LAYERS + 3))


def test_layerwise_rates_by_hand() -> None:
    found = rates(12, 1e-5, 0.95)
    assert len(found) == 15
    assert found[14] == found[13] == found[12] == 1e-5
    for depth in range(12):
        assert found[depth] == pytest.approx(0.95 * found[depth + 1])
    assert found[0] == pytest.approx(1e-5 * 0.95**12)
    assert rates(2, 1e-5, 0.5, head_rate=1e-3) == pytest.approx([2.5e-6, 5e-6, 1e-5, 1e-5, 1e-3])


def test_layer_scales_are_means_over_the_tasks_of_a_round() -> None:
    best = {"a": [0, 1], "b": [1, 2]}
    scales = {
        round_: layer_scales(round_, best, layers=4, alpha=0.5, beta=2.0)
        for round_ in (("a",), ("b",), ("a", "b"), ("a", "c"))
    }
    assert scales[("a",)] == [2, 2, 0.5, 0.5]
    assert scales[("b",)] == [0.5, 2, 2, 0.5]
    assert scales[("a", "b")] == [1.25, 2, 1.25, 0.5]
    assert scales[("a", "c")] == [1.5, 1.5, 0.75, 0.75]  # c's layers are not ranked


@pytest.mark.parametrize("warmup", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("kind", DECAYS)
def test_rates_warm_up_and_then_never_rise(kind: str, warmup: float) -> None:
    steps = [i / 100 for i in range(101)]
    found = [progress_scale(kind, step, warmup) for step in steps]
    assert all(0 <= value <= 1 for value in found) and max(found) == 1
    top = round(100 * warmup)
    assert found[:top] == pytest.approx([step / warmup for step in steps[:top]])
    assert found[top] == 1
    assert sorted(found[top:], reverse=True) == found[top:]
    assert progress_scale(kind, 2.0, warmup) == found[-1]


def test_decays_by_hand() -> None:
    for progress in (0.2, 0.5, 0.9, 1.0):
        share = (progress - 0.2) / 0.8
        assert progress_scale("constant", progress, 0.2) == 1
        assert progress_scale("linear", progress, 0.2) == pytest.approx(1 - share)
        cosine = (1 + math.cos(math.pi * share)) / 2
        assert progress_scale("cosine", progress, 0.2) == pytest.approx(cosine)
        cool = min(1, (1 - progress) / 0.4)
        assert progress_scale("wsd", progress, 0.2, 0.4) == pytest.approx(cool)


def test_until_its_cooldown_wsd_knows_nothing_of_the_end() -> None:
    assert {progress_scale("wsd", share, 0.0, 0.25) for share in (0.1, 0.5, 0.75)} == {1.0}


def make(net: nn.Module, **settings: float) -> torch.optim.AdamW:
    return make_optimizer(
        net.named_parameters(),
        layers=LAYERS,
        learning_rate=1e-2,
        **settings,  # type: ignore[arg-type]
    )


def test_each_parameter_is_in_one_group_with_its_rate_and_decay() -> None:
    net = model()
    optimizer = make(net, layer_decay=0.5, weight_decay=0.1, head_learning_rate=3e-2)
    named = dict(net.named_parameters())
    seen = []
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            seen.append(name)
            assert parameter is named[name]
            depth = layer_of(name, LAYERS)
            rate = 3e-2 if depth == LAYERS + 2 else 1e-2 * 0.5 ** max(0, LAYERS - depth)
            assert group["depth"] == depth
            assert group["lr"] == group["base_rate"] == pytest.approx(rate)
            plain = name.endswith(".bias") or "LayerNorm" in name
            assert group["weight_decay"] == (0.0 if plain else 0.1)
    assert sorted(seen) == sorted(named)


def test_frozen_parameters_are_left_out() -> None:
    net = model()
    net["encoder"].requires_grad_(False)
    names = [name for group in make(net).param_groups for name in group["names"]]
    assert len(names) == 4 and all(name.startswith("heads.") for name in names)
    net.requires_grad_(False)
    with pytest.raises(ValueError, match="every parameter is frozen"):
        make(net)


def test_rates_are_set_from_the_base_each_time() -> None:
    optimizer = make(model(), layer_decay=0.5)
    for _ in range(2):
        set_rates(optimizer, 0.1, [1.0, 2.0, 3.0])
    for group in optimizer.param_groups:
        own = {1: 1.0, 2: 2.0, 3: 3.0}.get(group["depth"], 1.0)
        assert group["lr"] == pytest.approx(group["base_rate"] * 0.1 * own)
    set_rates(optimizer, 1.0)
    assert all(group["lr"] == group["base_rate"] for group in optimizer.param_groups)


def train(net: Any, optimizer: torch.optim.Optimizer, seed: int) -> None:
    optimizer.zero_grad(set_to_none=True)
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 50, (2, 5), generator=draw)
    pooled = net["encoder"].eval()(input_ids=ids).pooler_output
    net["heads"]["one"](pooled).pow(2).sum().backward()
    optimizer.step()


def test_one_step_is_adamw_by_hand() -> None:
    net = model()
    before = {name: p.detach().clone().double() for name, p in net.named_parameters()}
    optimizer = make(net, weight_decay=0.1, layer_decay=0.5)
    train(net, optimizer, 0)
    checked = 0
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            if parameter.grad is None:
                assert torch.equal(parameter.double(), before[name])
                continue
            g, rate = parameter.grad.double(), group["lr"]
            expected = before[name] * (1 - rate * group["weight_decay"]) - rate * g / (
                g.abs() + 1e-8
            )
            torch.testing.assert_close(parameter.double(), expected, rtol=1e-4, atol=1e-6)
            checked += 1
    assert checked > 40


def test_the_state_survives_a_round_trip_exactly() -> None:
    net = model()
    optimizer = make(net)
    for seed in range(3):
        train(net, optimizer, seed)
    stored: dict[str, Tensor] = load(save(optimizer_tensors(optimizer)))
    assert "heads.one.weight.exp_avg" in stored
    assert not any(key.startswith("heads.embeddings") for key in stored), "never had a gradient"

    other = copy.deepcopy(net)
    again = make(other)
    load_optimizer_tensors(again, stored)
    back = optimizer_tensors(again)
    assert back.keys() == stored.keys()
    assert all(torch.equal(back[key], stored[key]) for key in stored)
    for seed in range(3, 6):
        train(net, optimizer, seed)
        train(other, again, seed)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(stored["heads.one.weight.step"], torch.tensor(3.0)), "loading copies"


def test_loading_keeps_the_rates_of_the_new_optimizer() -> None:
    net = model()
    optimizer = make(net)
    train(net, optimizer, 0)
    again = make(net, layer_decay=0.5)
    load_optimizer_tensors(again, optimizer_tensors(optimizer))
    assert {group["depth"]: group["base_rate"] for group in again.param_groups} == pytest.approx(
        dict(enumerate(rates(LAYERS, 1e-2, 0.5)))
    )


def test_faults_are_named() -> None:
    with pytest.raises(ValueError, match="beyond the encoder's 3 layers"):
        layer_of("encoder.layer.3.output.dense.bias", 3)
    optimizer = make(model())
    with pytest.raises(ValueError, match="other parameters: strange.step"):
        load_optimizer_tensors(optimizer, {"strange.step": torch.tensor(1.0)})
    with pytest.raises(ValueError, match="'heads.one.weight' is not whole"):
        load_optimizer_tensors(optimizer, {"heads.one.weight.step": torch.tensor(1.0)})


def test_decay_on_all_is_the_courses_step_by_hand() -> None:
    net = model()
    before = {name: p.detach().clone().double() for name, p in net.named_parameters()}
    optimizer = make(net, weight_decay=0.1, decay_all=True)
    train(net, optimizer, 0)
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.1}
    for name, p in net.named_parameters():
        if p.grad is not None:  # the first step of Adam is as long as the rate
            g = p.grad.double()
            expected = before[name] * (1 - 1e-2 * 0.1) - 1e-2 * g / (g.abs() + 1e-8)
            torch.testing.assert_close(p.double(), expected, rtol=1e-4, atol=1e-6)


def test_gradients_are_scaled_layer_by_layer() -> None:
    one = torch.ones(2)
    named = [("embeddings.x.weight", one), ("encoder.layer.0.x.weight", one)]
    named += [("encoder.layer.1.x.weight", None), ("encoder.layer.1.y.weight", one)]
    named += [("pooler.dense.weight", one)]
    found = scale_gradients(named, [0.5, 3.0])
    assert [None if g is None else g.tolist() for g in found] == [
        *([1.0, 1.0], [0.5, 0.5], None, [3.0, 3.0], [1.0, 1.0])
    ]
