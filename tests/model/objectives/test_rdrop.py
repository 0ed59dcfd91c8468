from __future__ import annotations

import math

import pytest
import torch

from model.objectives.rdrop import rdrop_term


def test_classes_have_the_mean_of_the_kls_both_ways() -> None:
    first, second = [[0.2, -1.0, 0.7], [1.0, 0.0, 0.0]], [[0.0, 0.4, 0.1], [2.0, -1.0, 0.5]]
    expected = 0.0
    for a, b in zip(first, second, strict=True):
        p = [math.exp(z) / sum(map(math.exp, a)) for z in a]
        q = [math.exp(z) / sum(map(math.exp, b)) for z in b]
        forth = sum(x * math.log(x / y) for x, y in zip(p, q, strict=True))
        back = sum(y * math.log(y / x) for x, y in zip(p, q, strict=True))
        expected += (forth + back) / 2 / 2  # the mean of both, the mean of the rows
    found = rdrop_term("classes", torch.tensor(first), torch.tensor(second))
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_one_logit_is_two_classes() -> None:
    first, second = torch.tensor([[0.3], [-1.0]]), torch.tensor([[1.0], [0.5]])
    two = [torch.cat([torch.zeros_like(z), z], dim=-1) for z in (first, second)]
    torch.testing.assert_close(rdrop_term("binary", first, second), rdrop_term("classes", *two))


def test_values_have_the_squared_difference() -> None:
    found = rdrop_term("regression", torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [2.5]]))
    assert found.item() == pytest.approx((4 + 0.25) / 2)
