from __future__ import annotations

import pytest
import torch
from torch import nn

from model.modules.heads import ACTIVATIONS, Head, outputs_for


def test_a_plain_head_is_one_linear_layer() -> None:
    head = Head(8, 3).eval()
    x = torch.randn(4, 8)
    torch.testing.assert_close(head(x), x @ head.output.weight.T + head.output.bias)
    assert [name for name, _ in head.named_parameters()] == ["output.weight", "output.bias"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_hidden_layer_comes_with_its_activation(activation: str) -> None:
    head = Head(8, 3, hidden=5, activation=activation).eval()
    assert head.hidden is not None
    nn.init.normal_(head.hidden.weight)
    x = torch.randn(4, 8, dtype=torch.float32)
    inner = x @ head.hidden.weight.T + head.hidden.bias
    if activation == "relu":
        inner = inner * (inner > 0)
    else:
        inner = inner * 0.5 * (1 + torch.erf(inner / 2**0.5))
    torch.testing.assert_close(head(x), inner @ head.output.weight.T + head.output.bias)


@pytest.mark.parametrize("hidden", [0, 6])
def test_dropout_acts_in_training_only(hidden: int) -> None:
    head = Head(8, 3, hidden=hidden, dropout=0.5)
    x = torch.randn(4, 8)
    assert not torch.equal(head(x), head(x))
    head.eval()
    assert torch.equal(head(x), head(x))


def test_a_head_starts_as_berts_layers_do() -> None:
    torch.manual_seed(0)
    head = Head(400, 50, hidden=300)
    assert head.hidden is not None
    for layer in (head.hidden, head.output):
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.05)
        assert layer.bias.eq(0).all()


@pytest.mark.parametrize(
    ("kind", "classes", "logits", "expected"),
    [
        ("classes", 5, 1, 5),
        ("classes", 3, 2, 3),
        ("binary", 2, 1, 1),
        ("binary", 2, 2, 2),
        ("regression", 0, 1, 1),
    ],
)
def test_the_number_of_outputs(kind: str, classes: int, logits: int, expected: int) -> None:
    assert outputs_for(kind, classes, logits) == expected


def test_faults_are_named() -> None:
    with pytest.raises(ValueError, match="'tanh'; known: gelu, relu"):
        Head(4, 1, activation="tanh")
    with pytest.raises(ValueError, match="got -1"):
        Head(4, 1, hidden=-1)
    with pytest.raises(ValueError, match="1 or 2 logits, but got 3"):
        outputs_for("binary", 2, 3)
    with pytest.raises(ValueError, match="'ranking'"):
        outputs_for("ranking", 2)


def test_several_hidden_layers_are_as_many_products() -> None:
    torch.manual_seed(0)
    head = Head(8, 3, hidden=5, layers=3, activation="relu").eval()
    assert head.hidden is not None
    for weights in head.parameters():
        nn.init.normal_(weights)
    x = inner = torch.randn(4, 8)
    for layer in (head.hidden, *head.deeper):
        assert isinstance(layer, nn.Linear)
        inner = (inner @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(head(x), inner @ head.output.weight.T + head.output.bias)
    assert [tuple(layer.weight.shape) for layer in head.deeper] == [(5, 5), (5, 5)]


def test_without_units_there_is_no_layer_however_many_are_asked_for() -> None:
    names = [name for name, _ in Head(8, 3, layers=4).named_parameters()]
    assert names == ["output.weight", "output.bias"]
    with pytest.raises(ValueError, match="1 hidden layer or more, but got 0"):
        Head(8, 3, layers=0)
