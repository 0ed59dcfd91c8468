from __future__ import annotations

import pytest
import torch

from model.objectives.uncertainty import Uncertainty


@pytest.mark.parametrize(("kind", "part"), [("classes", 1.0), ("binary", 1.0), ("regression", 0.5)])
def test_it_is_kendalls_objective(kind: str, part: float) -> None:
    weights = Uncertainty({"mood": kind}, torch.device("cpu"))
    s, loss = weights.log_variances["mood"], torch.tensor(0.7)
    with torch.no_grad():
        s.fill_(0.4)
    objective = part * torch.exp(-s) * loss + s / 2
    (expected,) = torch.autograd.grad(objective, s)
    torch.testing.assert_close(weights.gradient("mood", loss), expected)
    assert weights.factor("mood").item() == pytest.approx(part * torch.exp(-s).item())
    assert not weights.factor("mood").requires_grad


def test_it_comes_to_rest_where_the_variance_is_the_loss() -> None:
    weights = Uncertainty({"near": "regression"}, torch.device("cpu"))
    s = weights.log_variances["near"]
    optimizer = torch.optim.SGD([s], lr=0.5)
    for _ in range(200):
        s.grad = weights.gradient("near", torch.tensor(2.5))
        optimizer.step()
    assert s.exp().item() == pytest.approx(2.5, rel=1e-3)
