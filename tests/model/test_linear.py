from __future__ import annotations

import pytest
import torch
from torch import nn

from model.encoder import load_encoder
from model.linear import Linear, quicken_linear, weights_held

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="this torch was built without oneDNN",
)


@pytest.fixture(params=[(True, 5), (False, 5), (True, 9), (True, 7)], ids=str)
def both(request: pytest.FixtureRequest) -> tuple[nn.Linear, nn.Linear]:
    bias, outputs = request.param
    plain = nn.Linear(7, outputs, bias=bias)
    holder = nn.Sequential(plain)
    quicken_linear(holder)
    ours = holder[0]
    assert type(ours) is Linear and ours.weight is plain.weight and ours.bias is plain.bias
    return plain, ours


@pytest.mark.parametrize("shape", [(3, 7), (2, 4, 7), (1, 1, 7), (0, 7)])
def test_the_product_is_torchs(both: tuple[nn.Linear, nn.Linear], shape: tuple[int, ...]) -> None:
    plain, ours = both
    rows = torch.randn(shape)
    with torch.inference_mode():
        torch.testing.assert_close(ours(rows), plain(rows))


def assert_gradients_alike(
    plain: nn.Linear, ours: nn.Linear, rows: torch.Tensor, direction: torch.Tensor
) -> None:
    wanted = [rows.requires_grad_(), *plain.parameters()]
    theirs = torch.autograd.grad(plain(rows), wanted, direction)
    found = torch.autograd.grad(ours(rows), wanted, direction)
    for one, other in zip(found, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("shape", [(3,), (2, 4), (0,)])
def test_gradients_are_torchs(both: tuple[nn.Linear, nn.Linear], shape: tuple[int, ...]) -> None:
    direction = torch.randn(*shape, both[0].out_features)
    assert_gradients_alike(*both, torch.randn(*shape, 7), direction)


def test_rows_and_gradients_that_are_views_of_others(both: tuple[nn.Linear, nn.Linear]) -> None:
    direction = torch.randn(both[0].out_features).expand(3, 4, -1)
    assert_gradients_alike(*both, torch.randn(7, 4, 3).transpose(0, 2), direction)


def test_what_comes_out_may_be_changed_in_place(both: tuple[nn.Linear, nn.Linear]) -> None:
    plain, ours = both
    rows = torch.randn(2, 4, 7)
    result = ours(rows)
    result /= 2
    result.sum().backward()
    torch.testing.assert_close(ours.weight.grad, rows.sum((0, 1)).expand_as(plain.weight) / 2)


def test_what_is_frozen_gets_no_gradient(both: tuple[nn.Linear, nn.Linear]) -> None:
    plain, ours = both
    ours.requires_grad_(False)
    assert not ours(torch.randn(3, 7)).requires_grad
    rows = torch.randn(3, 7, requires_grad=True)
    ours(rows).sum().backward()
    torch.testing.assert_close(rows.grad, plain.weight.sum(0).expand(3, 7))
    assert all(parameter.grad is None for parameter in ours.parameters())


def test_held_weights_get_no_gradient_and_inputs_do(both: tuple[nn.Linear, nn.Linear]) -> None:
    plain, ours = both
    rows = torch.randn(3, 7, requires_grad=True)
    with weights_held():
        held = ours(rows)
    held.sum().backward()
    torch.testing.assert_close(held, plain(rows))
    torch.testing.assert_close(rows.grad, plain.weight.sum(0).expand(3, 7))
    assert all(parameter.grad is None for parameter in ours.parameters())
    ours(rows).sum().backward()  # only what was made within is without
    assert all(parameter.grad is not None for parameter in ours.parameters())


def test_one_row_without_a_batch_is_torchs(both: tuple[nn.Linear, nn.Linear]) -> None:
    plain, ours = both
    assert torch.equal(ours(torch.ones(7)), plain(torch.ones(7)))


def test_what_it_is_not_for_is_torchs(both: tuple[nn.Linear, nn.Linear]) -> None:
    plain, ours = both
    rows = torch.randn(4, 7)
    with torch.inference_mode():
        doubled = ours.double()(rows.double())
        assert doubled.dtype == torch.float64
        ours.float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert ours(rows).dtype == plain(rows).dtype == torch.bfloat16


def test_an_encoder_has_them_and_its_tensors_keep_their_names() -> None:
    encoder = load_encoder("tiny")
    assert all(type(part) is Linear for part in encoder.modules() if isinstance(part, nn.Linear))
    assert "encoder.layer.0.attention.self.query.weight" in encoder.state_dict()
