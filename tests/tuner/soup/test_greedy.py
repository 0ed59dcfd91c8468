from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.soup.greedy import chosen_by, greedy, ranked


def reference(values: list[float], score: dict[frozenset[int], float]) -> list[int]:
    """The published description, written out: sort by score, add, keep if it got better."""
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    soup: list[int] = []
    for i in order:
        if not soup or score[frozenset([*soup, i])] > score[frozenset(soup)]:
            soup = [*soup, i]
    return soup


@given(st.integers(1, 6), st.integers(0, 10_000), st.booleans())
def test_greedy_equals_a_reference_on_every_subset_of_toy_scores(
    count: int, seed: int, coarse: bool
) -> None:
    rng = np.random.default_rng(seed)
    subsets = [frozenset(i for i in range(count) if mask >> i & 1) for mask in range(1, 2**count)]
    drawn = rng.random(len(subsets))
    if coarse:  # so that there are ties everywhere
        drawn = np.round(drawn * 3) / 3
    score = dict(zip(subsets, drawn.tolist(), strict=True))
    alone = [score[frozenset([i])] for i in range(count)]
    steps = greedy(ranked(alone), lambda some: score[frozenset(some)])
    assert list(chosen_by(steps)) == reference(alone, score)
    assert max(step.score for step in steps if step.accepted) == score[frozenset(chosen_by(steps))]


def test_on_toy_vectors_it_averages_towards_the_target() -> None:
    target = np.array([1.0, 1.0])
    points = np.array([[1.0, 0.6], [1.2, 1.4], [5.0, 5.0], [0.9, 1.0]])

    def score(some: tuple[int, ...]) -> float:
        return -float(np.linalg.norm(points[list(some)].mean(0) - target))

    steps = greedy(ranked([score((i,)) for i in range(4)]), score)
    assert [step.candidate for step in steps] == [3, 0, 1, 2]
    assert chosen_by(steps) == (3,)  # each further point leads away from it
    assert steps[0].best is None and steps[1].best == steps[0].score


def test_of_equals_the_first_comes_first_and_none_joins_it() -> None:
    assert ranked([0.5, 0.7, 0.7, 0.5]) == [1, 2, 0, 3]
    steps = greedy(ranked([0.7, 0.7, 0.7]), lambda some: 0.7)
    assert chosen_by(steps) == (0,)  # not worse is not better


def test_one_score_per_candidate_and_never_below_the_first() -> None:
    asked: list[tuple[int, ...]] = []

    def score(some: tuple[int, ...]) -> float:
        asked.append(some)
        return [0.8, 0.9, 0.1, 0.95][len(asked) - 1]

    steps = greedy([4, 2, 7, 1], score)
    assert asked == [(4,), (4, 2), (4, 2, 7), (4, 2, 1)]
    assert chosen_by(steps) == (4, 2, 1)


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_score_that_is_no_number_never_joins(bad: float) -> None:
    assert chosen_by(greedy([0, 1], lambda some: 0.1 if some == (0,) else bad)) == (0,)
