"""What a search says that it is sure of."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tuner.engine.test_task_gp import POINTS, Made
from tuner.engine.conclusions import effects_of, expected_of


def searched(lead: float) -> Made:
    """Small batches help sentiment by so much, and nothing else does anything."""
    made, rng = Made(), np.random.default_rng(0)
    made.score(made.create({}, "default"), 600, sentiment=0.5, paraphrase=0.7, similarity=0.8)
    for _ in range(14):
        settings = POINTS.space.draw(rng)
        small = settings["batch.sizes.sentiment"] == 4
        noise = rng.normal(0, 0.01, 3)
        values = {"sentiment": 0.5 + lead * small + noise[0]}
        values |= {"paraphrase": 0.7 + noise[1], "similarity": 0.8 + noise[2]}
        made.score(made.create(settings), 600, **values)
    return made


def test_a_clear_lead_is_sure_and_none_is_not() -> None:
    found = [expected_of(searched(lead).state, POINTS.space) for lead in (0.25, 0.0)]
    clear, none = found
    assert clear is not None and none is not None
    assert clear.best > clear.default + 0.03 and clear.worse < 0.1
    assert 0.2 < none.worse < 0.8
    assert clear.examples == 5400 and clear.default == pytest.approx(0.7, abs=0.05)  # overall


def test_what_it_expects_most_of_has_what_helps_and_need_not_have_been_tried() -> None:
    made = searched(0.25)
    found = expected_of(made.state, POINTS.space)
    best = made.state.best_trial()
    assert found is not None and best is not None
    after = {key: new for key, (_, new) in found.top_changes.items()}
    top = {**POINTS.space.params(best.settings), **after}
    assert top["batch.sizes.sentiment"] == 4
    assert found.top >= found.best and found.top_sd > 0
    assert found.top_trial is None and all(a != b for a, b in found.top_changes.values())


def test_it_is_of_the_recommended_trial_and_else_of_the_best() -> None:
    made = searched(0.25)
    best, default = made.state.best_trial(), made.state.search_trials[0]
    worst = made.state.ranked()[-1]
    assert best is not None
    of = {
        name: expected_of(made.state, POINTS.space, name)
        for name in (None, best.id, worst.id, default.id)
    }
    told = {name: each and (each.trial, each.recommended) for name, each in of.items()}
    plain = (best.id, False)
    wanted = {None: plain, best.id: (best.id, True), worst.id: (worst.id, True)}
    assert told == {**wanted, default.id: plain}
    assert of[worst.id].worse > of[best.id].worse + 0.1  # type: ignore[union-attr]


def test_with_nothing_to_compare_it_says_nothing() -> None:
    assert expected_of(Made().state, POINTS.space) is None
    only = Made()
    only.score(only.create({}, "default"), 600)
    assert expected_of(only.state, POINTS.space) is None
    assert effects_of(only.state, POINTS.space) == []


def test_the_largest_effect_is_of_what_moves_the_task() -> None:
    effects = effects_of(searched(0.25).state, POINTS.space)
    first = effects[0]
    assert (first.task, first.parameter) == ("sentiment", "batch.sizes.sentiment")
    assert first.values == (4, 8, 16) and first.means[0] == max(first.means)
    assert len(effects) == 3 * len(POINTS.columns)
    assert all(effects[n].size >= effects[n + 1].size for n in range(len(effects) - 1))


def test_a_final_that_has_not_been_scored_is_no_evidence() -> None:
    made = searched(0.05)
    before = expected_of(made.state, POINTS.space)
    best = made.state.best_trial()
    assert best is not None
    made.create(best.settings, "promoted", level=2, of=best.id)
    assert expected_of(made.state, POINTS.space) == before
