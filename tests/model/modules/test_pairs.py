from __future__ import annotations

import math

import pytest
import torch

from model.modules.pairs import (
    COMBINE,
    LAYOUTS,
    WIDTHS,
    CosineHead,
    concatenation,
    features,
    layout_of,
    width_factor,
)


def test_each_encoding_has_a_layout_and_a_width() -> None:
    assert set(WIDTHS) == set(LAYOUTS)
    assert {name for name in WIDTHS if layout_of(name) == "bi"} == set(COMBINE)


@pytest.mark.parametrize("encoding", COMBINE)
def test_the_features_are_as_wide_as_promised(encoding: str) -> None:
    u, v = torch.randn(2, 3, 8)
    assert features(encoding, u, v).shape == (3, 8 * width_factor(encoding))


def test_features_by_hand() -> None:
    u, v = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 5.0]])
    assert features("bi_concat", u, v).tolist() == [[1, -2, 3, 5]]
    assert features("bi_difference", u, v).tolist() == [[1, -2, 3, 5, 2, 7]]


def cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def test_cosine_regression_is_a_learned_line_over_the_label_range() -> None:
    head = CosineHead(4, "regression", low=1.0, high=5.0)
    u, v = torch.randn(2, 6, 4)
    expected = [5 * cosine(a, b) for a, b in zip(u.tolist(), v.tolist(), strict=True)]
    found = head(concatenation(u, v)).squeeze(-1)
    assert found.tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)  # 1 + 4 (1.25 cos - .25)
    assert head(concatenation(u, 7 * u)).squeeze(-1).tolist() == pytest.approx([5.0] * 6)
    found.sum().backward()
    assert head.gain.grad and head.offset.grad


def test_a_cosine_that_was_saved_without_its_line_answers_as_it_did() -> None:
    head = CosineHead(4, "regression", low=1.0, high=5.0)
    before = {k: v for k, v in head.state_dict().items() if k.startswith("projection")}
    head.load_state_dict(before)
    u, v = torch.randn(2, 6, 4)
    expected = [3 + 2 * cosine(a, b) for a, b in zip(u.tolist(), v.tolist(), strict=True)]
    assert head(concatenation(u, v)).squeeze(-1).tolist() == pytest.approx(expected, rel=1e-5)


def test_a_cosine_that_is_not_among_what_is_loaded_keeps_its_line() -> None:
    heads = torch.nn.ModuleDict({"one": CosineHead(4, "regression", low=0.0, high=1.0)})
    heads.load_state_dict({}, strict=False)
    assert heads.state_dict()["one.gain"] == 1.25


def test_cosine_projects_both_embeddings_alike() -> None:
    head = CosineHead(4, "regression", low=0.0, high=1.0)
    torch.nn.init.normal_(head.projection.weight)
    torch.nn.init.normal_(head.projection.bias)
    u, v = torch.randn(2, 6, 4)
    weight, bias = head.projection.weight, head.projection.bias
    a, b = (u @ weight.T + bias).tolist(), (v @ weight.T + bias).tolist()
    expected = [1.25 * cosine(x, y) - 0.25 for x, y in zip(a, b, strict=True)]
    found = head(concatenation(u, v))
    assert found.squeeze(-1).tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    torch.testing.assert_close(found, head(concatenation(v, u)))


def test_a_binary_cosine_can_be_confident_and_learns_how_much() -> None:
    head = CosineHead(4, "binary")
    u = torch.eye(4)
    same = head(concatenation(u, u)).sigmoid()
    unlike = head(concatenation(u, u.roll(1, dims=0))).sigmoid()
    assert same.shape == (4, 1) and same.min() > 0.85 and unlike.max() < 0.01
    expected = [
        10 * (cosine(a, b) - 0.8) for a, b in zip(u.tolist(), (u + 0.3).tolist(), strict=True)
    ]
    assert head(concatenation(u, u + 0.3)).squeeze(-1).tolist() == pytest.approx(expected, rel=1e-4)
    head(concatenation(u, u + 0.1)).sum().backward()
    assert head.log_scale.grad is not None and head.threshold.grad is not None


@pytest.mark.parametrize(("kind", "logits"), [("classes", 1), ("binary", 2)])
def test_cosine_refuses_tasks_that_need_more_than_one_number(kind: str, logits: int) -> None:
    with pytest.raises(ValueError, match="cosine encoding gives one"):
        CosineHead(4, kind, binary_logits=logits)
