from __future__ import annotations

import pytest
import torch
from torch import nn

from model.encoder import load_encoder
from model.linear import Linear, quicken_linear

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="this torch was built without oneDNN",
)


@pytest.fixture(params=[True, False], ids=["bias", "no bias"])
def both(request: pytest.FixtureRequest) -> tuple[nn.Linear, nn.Linear]:
    plain = nn.Linear(7, 5, bias=request.param)
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


def test_training_is_torchs_to_the_bit(both: tuple[nn.Linear, nn.Linear]) -> None:
    plain, ours = both
    rows = torch.randn(4, 7)
    assert torch.equal(ours(rows), plain(rows))
    with torch.no_grad():  # the momentum copy's pass belongs to a training step
        assert torch.equal(ours(rows), plain(rows))
    assert ours(rows).requires_grad


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
