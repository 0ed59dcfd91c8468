"""The mean of the last weights, against plain arithmetic."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from model.training.averaging import Averaged


def means(share: float, steps: int) -> list[float]:
    """The averaged value after each step of a weight that is 1, 2, 3, ..."""
    model = nn.Linear(1, 1, bias=False)
    follower = Averaged(model, share)
    found = []
    for step in range(1, steps + 1):
        with torch.no_grad():
            model.weight.fill_(float(step))
        follower.update(model)
        found.append(follower.model.weight.item())
    return found


def test_all_of_the_steps_give_their_plain_mean() -> None:
    assert means(1.0, 6) == pytest.approx([1, 1.5, 2, 2.5, 3, 3.5])


def test_a_share_of_the_steps_forgets_the_first_ones() -> None:
    mean = 0.0
    for step, found in enumerate(means(0.25, 40), start=1):
        mean += (step - mean) / max(1.0, 0.25 * step)
        assert found == pytest.approx(mean, rel=1e-5)
    assert 32 < found < 34  # a fifth of the steps behind


def test_the_window_grows_with_the_run() -> None:
    lag = [step - found for step, found in enumerate(means(0.2, 400), start=1)]
    assert lag[399] == pytest.approx(4 * lag[99], rel=0.05)


def test_the_model_itself_is_left_alone() -> None:
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    Averaged(model, 0.5).update(model)
    assert torch.equal(model.weight, before)
