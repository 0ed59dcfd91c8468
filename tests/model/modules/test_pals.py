from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    RobertaConfig,
    RobertaModel,
)

from model.modules.pals import Pals, attach

TINY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
}
TASKS = ["one", "two", "type"]  # the last is a name that nn.ModuleDict keeps for itself


def encoder(kind: str = "bert") -> Any:
    torch.manual_seed(0)
    if kind == "roberta":
        return RobertaModel(RobertaConfig(**TINY), add_pooling_layer=False).eval()
    return BertModel(BertConfig(**TINY), add_pooling_layer=False).eval()


def lively_pals() -> Pals:
    """PALs that change something: their projection up starts at zero."""
    torch.manual_seed(1)
    pals = Pals(TASKS, 2, 32, size=12, heads=3).eval()
    for name, parameter in pals.named_parameters():
        nn.init.normal_(parameter, std=0.3 if "up" in name else 0.5)
    return pals


def batch() -> tuple[Tensor, Tensor]:
    ids = torch.randint(5, 100, (3, 7), generator=torch.Generator().manual_seed(2))
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 2 + [0] * 5])
    return ids, mask


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, heads: int) -> Tensor:
    """Multi-head attention with softmax written out, [B, L, size]."""
    size = q.shape[-1] // heads
    parts = []
    for h in range(heads):
        s = slice(h * size, (h + 1) * size)
        scores = q[..., s] @ k[..., s].transpose(1, 2) / size**0.5
        scores = scores.masked_fill(mask[:, None, :] == 0, -torch.inf)
        parts.append(scores.softmax(dim=-1) @ v[..., s])
    return torch.cat(parts, dim=-1)


def added_by_hand(pals: Pals, task: str, layer: int, hidden: Tensor, mask: Tensor) -> Tensor:
    mine: Any = pals.tasks[f"task_{task}"]
    small = mine.down(hidden)
    weight, bias = mine.attention[layer].weight, mine.attention[layer].bias
    q, k, v = (small @ w.T + b for w, b in zip(weight.chunk(3), bias.chunk(3), strict=True))
    return F.gelu(mine.up(attention(q, k, v, mask, pals.heads)))


def encoded_by_hand(model: Any, pals: Pals, task: str, ids: Tensor, mask: Tensor) -> Tensor:
    """The whole encoder with LN(h_att + FFN(h_att) + TS(h)) in every layer."""
    h: Tensor = model.embeddings(input_ids=ids)
    for index, layer in enumerate(model.encoder.layer):
        own, out, last = layer.attention.self, layer.attention.output, layer.output
        mixed = attention(own.query(h), own.key(h), own.value(h), mask, 2)
        h_att = out.LayerNorm(h + out.dense(mixed))
        ffn = last.dense(F.gelu(layer.intermediate.dense(h_att)))
        h = last.LayerNorm(h_att + ffn + added_by_hand(pals, task, index, h, mask))
    return h


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("task", TASKS)
def test_an_encoder_with_pals_is_the_formula(task: str, kind: str) -> None:
    model, pals = encoder(kind), lively_pals()
    ids, mask = batch()
    attach(pals, model.encoder.layer)
    with pals.use(task, mask):
        found = model(input_ids=ids, attention_mask=mask).last_hidden_state
    expected = encoded_by_hand(model, pals, task, ids, mask)
    real = mask.bool()
    torch.testing.assert_close(found[real], expected[real], rtol=1e-4, atol=1e-5)
    assert (found - model(input_ids=ids, attention_mask=mask).last_hidden_state).abs().max() > 0.1


@pytest.mark.parametrize(("size", "heads"), [(204, 12), (12, 3), (16, 2)])
def test_heads_made_wider_for_cuda_give_the_same(
    size: int, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    pals = Pals(["one"], 2, 32, size=size, heads=heads).eval()
    nn.init.normal_(pals.tasks["task_one"].up.weight)  # type: ignore[union-attr,arg-type]
    hidden, (_, mask) = torch.randn(3, 7, 32), batch()
    widths: list[int] = []
    fused = F.scaled_dot_product_attention

    def attend(query: Tensor, *others: Tensor, **options: Any) -> Tensor:
        widths.append(query.shape[-1])
        return fused(query, *others, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend)

    def answers() -> list[Tensor]:
        pals.zero_grad()
        found = pals("one", 1, hidden, mask)
        found.square().sum().backward()
        return [found, *(p.grad for p in pals.parameters() if p.grad is not None)]

    plain = answers()
    monkeypatch.setattr("model.modules.pals.ALIGNED_ON", ("cpu",))
    for mine, same in zip(answers(), plain, strict=True):
        torch.testing.assert_close(mine, same, rtol=1e-4, atol=1e-4)
    assert widths == [size // heads, {17: 24, 4: 8, 8: 8}[size // heads]]


@torch.no_grad()
def test_padding_does_not_reach_the_real_tokens() -> None:
    pals = lively_pals()
    _, mask = batch()
    hidden = torch.randn(3, 7, 32)
    noisy = torch.where(mask.bool().unsqueeze(-1), hidden, torch.randn(3, 7, 32))
    found = [pals("one", 1, x, mask)[mask.bool()] for x in (hidden, noisy)]
    torch.testing.assert_close(found[0], found[1])


@torch.no_grad()
def test_training_starts_from_the_plain_encoder() -> None:
    model = encoder()
    ids, mask = batch()
    plain = model(input_ids=ids, attention_mask=mask).last_hidden_state
    pals = Pals(TASKS, 2, 32, size=12, heads=3)
    attach(pals, model.encoder.layer)
    with pals.use("one", mask):
        assert torch.equal(model(input_ids=ids, attention_mask=mask).last_hidden_state, plain)


def test_gradients_reach_the_task_in_use_and_no_other() -> None:
    model, pals = encoder().requires_grad_(False), lively_pals()
    ids, mask = batch()
    attach(pals, model.encoder.layer)
    with pals.use("two", mask):
        model(input_ids=ids, attention_mask=mask).last_hidden_state.pow(3).sum().backward()
    for name, parameter in pals.named_parameters():
        assert (parameter.grad is not None) == ("task_two" in name), name


def test_gradients_flow_from_the_start_that_is_zero() -> None:
    pals = Pals(["one"], 2, 32, size=12, heads=3)
    pals("one", 0, torch.randn(2, 5, 32)).sum().backward()
    one: Any = pals.tasks["task_one"]
    up = one.up.weight.grad
    assert up is not None and up.abs().max() > 0


@pytest.mark.parametrize(("layers", "width", "size", "heads"), [(2, 32, 12, 3), (12, 768, 204, 12)])
def test_the_number_of_parameters(layers: int, width: int, size: int, heads: int) -> None:
    pals = Pals(["one", "two"], layers, width, size=size, heads=heads)
    down, up = width * size + size, size * width + width
    attention = 3 * (size * size + size)
    count = sum(parameter.numel() for parameter in pals.parameters())
    assert count == 2 * (down + up + layers * attention)


@torch.no_grad()
def test_outside_use_and_after_removal_the_encoder_is_plain() -> None:
    model, pals = encoder(), lively_pals()
    ids, mask = batch()
    keys = list(model.state_dict())
    plain = model(input_ids=ids, attention_mask=mask).last_hidden_state
    handles = attach(pals, model.encoder.layer)
    assert list(model.state_dict()) == keys
    assert torch.equal(model(input_ids=ids, attention_mask=mask).last_hidden_state, plain)
    for handle in handles:
        handle.remove()
    with pals.use("one", mask):
        assert torch.equal(model(input_ids=ids, attention_mask=mask).last_hidden_state, plain)


@torch.no_grad()
def test_a_deep_copy_uses_its_own_pals() -> None:
    whole: Any = nn.ModuleDict({"encoder": encoder(), "pals": lively_pals()})
    attach(whole["pals"], whole["encoder"].encoder.layer)
    other = copy.deepcopy(whole)
    ids, mask = batch()
    with whole["pals"].use("one", mask):
        first = whole["encoder"](input_ids=ids, attention_mask=mask).last_hidden_state
    for parameter in whole["pals"].parameters():
        parameter.zero_()
    with other["pals"].use("one", mask):
        second = other["encoder"](input_ids=ids, attention_mask=mask).last_hidden_state
    assert torch.equal(first, second)


def test_use_ends_even_after_a_fault() -> None:
    pals = lively_pals()
    with pytest.raises(RuntimeError), pals.use("one", None):
        raise RuntimeError
    assert pals.beside(0, torch.zeros(1, 1, 32)) is None


def test_dropout_acts_in_training_only() -> None:
    pals = lively_pals()
    hidden = torch.randn(2, 6, 32)
    assert torch.equal(pals("one", 0, hidden), pals("one", 0, hidden))
    pals.train()
    assert not torch.equal(pals("one", 0, hidden), pals("one", 0, hidden))


def test_faults_are_named() -> None:
    with pytest.raises(ValueError, match="heads must divide"):
        Pals(TASKS, 2, 32, size=12, heads=5)
    with pytest.raises(ValueError, match="for 3 layers, but the encoder has 2"):
        attach(Pals(TASKS, 3, 32, size=12, heads=3), encoder().encoder.layer)
    with pytest.raises(KeyError, match="'three'"), lively_pals().use("three", None):
        pass
    small = DistilBertModel(DistilBertConfig(dim=32, n_layers=2, n_heads=2, hidden_dim=64))
    with pytest.raises(ValueError, match="TransformerBlock has no '.output'"):
        attach(lively_pals(), small.transformer.layer)
