"""Dropout on the CPU: rates, scale, seeds; and attention that uses it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from model.cpu.attention import attention
from model.cpu.dropout import LEVELS, Dropout, dropout


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
def test_so_many_are_dropped_and_the_mean_stays(rate: float) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(1000, 999), rate)
    assert float((dropped == 0).float().mean()) == pytest.approx(rate, abs=0.002)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)
    exact = LEVELS / (LEVELS - round(rate * LEVELS))
    assert torch.equal(dropped[dropped > 0].unique(), torch.tensor([exact]))


def test_places_are_dropped_independently_of_their_neighbours() -> None:
    torch.manual_seed(0)
    gone = (dropout(torch.ones(400_000), 0.3) == 0).float()
    for apart in (1, 2, 3, 4):  # four decisions share a word of the generator
        both = (gone[apart:] * gone[:-apart]).mean()
        assert float(both) == pytest.approx(0.09, abs=0.003)


def test_a_seed_gives_the_same_mask_again() -> None:
    values = torch.randn(7, 5)
    torch.manual_seed(3)
    first, other = dropout(values, 0.5), dropout(values, 0.5)
    torch.manual_seed(3)
    assert torch.equal(dropout(values, 0.5), first)
    assert not torch.equal(other, first)


def test_gradients_go_where_values_went() -> None:
    values = torch.randn(50, 8, requires_grad=True)
    dropped = dropout(values, 0.4)
    dropped.sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad * values, dropped)


def test_nothing_is_dropped_in_evaluation_or_at_rate_0() -> None:
    values = torch.randn(9)
    assert torch.equal(Dropout(0.5).eval()(values), values)
    assert torch.equal(Dropout(0.0)(values), values)
    assert torch.equal(Dropout(1.0)(values), torch.zeros(9))


@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_torchs_where_dropout_spares_everything(
    masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("model.cpu.attention.drop", lambda weights, rate: weights)
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 2, 5, 4, requires_grad=True) for _ in range(3))
    mask = torch.ones(3, 1, 5, 5, dtype=torch.bool)
    mask[1, :, :, 3:] = False
    given = mask if masked else None
    ours, _ = attention(nn.Module(), query, key, value, given, dropout=0.1, scaling=0.5)
    theirs = F.scaled_dot_product_attention(query, key, value, attn_mask=given, scale=0.5)
    assert torch.allclose(ours, theirs.transpose(1, 2), atol=1e-6)
    weights = torch.randn(3, 5, 2, 4)
    mine = torch.autograd.grad((ours * weights).sum(), (query, key, value))
    known = torch.autograd.grad((theirs.transpose(1, 2) * weights).sum(), (query, key, value))
    for one, other in zip(mine, known, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_token_that_may_look_at_nothing_gives_numbers() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 1, 3, 4) for _ in range(3))
    mask = torch.tensor([[[[True, True, False], [True, True, False], [False, False, False]]]])
    found, _ = attention(nn.Module(), query, key, value, mask, dropout=0.1, scaling=0.5)
    assert torch.isfinite(found).all()
