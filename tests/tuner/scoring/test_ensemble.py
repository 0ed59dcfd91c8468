from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from model.evaluation.predictions import Predictions
from tuner.scoring.ensemble import RULES, blend


def classes(*probabilities: list[float]) -> Predictions:
    found = np.array(probabilities, dtype=np.float32)
    return Predictions(found.argmax(-1).astype(float), found)


def numbers(*values: float) -> Predictions:
    return Predictions(np.array(values), None)


A = classes([0.6, 0.4, 0.0], [0.1, 0.2, 0.7])
B = classes([0.1, 0.9, 0.0], [0.5, 0.1, 0.4])
C = classes([0.5, 0.3, 0.2], [0.2, 0.5, 0.3])


@pytest.mark.parametrize("rule", RULES)
def test_one_alone_is_itself(rule: str) -> None:
    assert blend(rule, [A], [3.0]) is A


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("predictions", [A, numbers(0.3, 4.0)], ids=["classes", "numbers"])
def test_equals_agree_with_themselves(rule: str, predictions: Predictions) -> None:
    same = blend(rule, [predictions] * 3, [1, 2, 0.5])
    assert np.allclose(same.values, predictions.values)


@pytest.mark.parametrize("rule", RULES)
def test_only_the_shares_of_weights_count(rule: str) -> None:
    small, large = (blend(rule, [A, B, C], [w, 2 * w, w]) for w in (0.1, 10))
    assert (small.values == large.values).all()


def test_the_mean_of_probabilities_decides() -> None:
    found = blend("mean", [A, B], [1, 1])
    assert found.probabilities == pytest.approx(np.array([[0.35, 0.65, 0], [0.3, 0.15, 0.55]]))
    assert found.values.tolist() == [1, 2]
    assert blend("mean", [A, B], [5, 1]).values.tolist() == [0, 2]


def test_the_majority_decides_whatever_the_probabilities() -> None:
    found = blend("vote", [A, B, C], [1, 1, 1])
    assert found.values[0] == 0  # two to one, although B is surest
    assert found.probabilities is not None and found.probabilities[0] == pytest.approx(
        [2 / 3, 1 / 3, 0]
    )
    assert blend("vote", [A, B, C], [1, 3, 1]).values[0] == 1


def test_an_even_vote_goes_to_the_higher_mean_probability() -> None:
    found = blend("vote", [A, B, C], [1, 1, 1])
    means = np.mean([A.probabilities[1], B.probabilities[1], C.probabilities[1]], axis=0)  # type: ignore[index]
    assert found.values[1] == means.argmax() == 2  # each has one vote


def test_numbers_have_a_mean_and_a_median() -> None:
    predictions = [numbers(1, 0), numbers(2, 10), numbers(9, 2)]
    assert blend("mean", predictions, [1, 1, 1]).values == pytest.approx([4, 4])
    assert blend("vote", predictions, [1, 1, 1]).values.tolist() == [2, 2]
    assert blend("mean", predictions, [2, 1, 1]).values == pytest.approx([3.25, 3])
    assert blend("vote", predictions, [1, 1, 5]).values.tolist() == [9, 2]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_the_median_is_numpys_where_weights_are_equal(count: int) -> None:
    rng: Any = np.random.default_rng(count)
    values = rng.random((count, 50))
    found = blend("vote", [Predictions(row, None) for row in values], [1.0] * count)
    assert found.values == pytest.approx(np.median(values, axis=0))
