from __future__ import annotations

import pytest
import torch
from torch import nn

from model.cpu import swap
from model.cpu.linear import Linear, has_onednn

pytestmark = pytest.mark.skipif(not has_onednn(), reason="this torch was built without oneDNN")


@pytest.fixture(params=[(True, 5), (False, 5), (True, 9)], ids=str)
def both(request: pytest.FixtureRequest) -> tuple[nn.Linear, Linear]:
    bias, outputs = request.param
    plain, ours = nn.Linear(7, outputs, bias=bias), nn.Linear(7, outputs, bias=bias)
    ours.load_state_dict(plain.state_dict())
    swap(nn.Sequential(ours), nn.Linear, Linear)
    assert isinstance(ours, Linear)
    return plain, ours


@pytest.mark.parametrize("shape", [(3, 7), (2, 4, 7), (1, 1, 7), (0, 7), (7,)])
def test_the_product_is_torchs(both: tuple[nn.Linear, Linear], shape: tuple[int, ...]) -> None:
    plain, ours = both
    rows = torch.randn(shape)
    with torch.inference_mode():
        torch.testing.assert_close(ours(rows), plain(rows))


def test_rows_that_are_a_view_of_others(both: tuple[nn.Linear, Linear]) -> None:
    plain, ours = both
    rows = torch.randn(7, 4, 3).transpose(0, 2)
    with torch.no_grad():
        torch.testing.assert_close(ours(rows), plain(rows))


def test_where_gradients_are_wanted_it_is_torchs(both: tuple[nn.Linear, Linear]) -> None:
    plain, ours = both
    rows = torch.randn(3, 7)
    plain(rows).square().sum().backward()
    ours(rows).square().sum().backward()
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_what_it_is_not_for_is_torchs(both: tuple[nn.Linear, Linear]) -> None:
    plain, ours = both
    rows = torch.randn(4, 7)
    with torch.inference_mode():
        assert ours.double()(rows.double()).dtype == torch.float64
        ours.float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert ours(rows).dtype == plain(rows).dtype == torch.bfloat16
