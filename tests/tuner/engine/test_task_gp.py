"""The sampler that learns from every task's scores, on results that are made up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tuner.engine.points import Points
from tuner.engine.promotion import NextStep, Promotion
from tuner.engine.results import FAILED, UNSHARED, Settings, observations, weights_of
from tuner.engine.stages import Rung, Stages
from tuner.engine.task_gp import expected_improvement, key_of, model_of, propose
from tuner.runs.state import RunState
from tuner.space.space import load_space

POINTS = Points(load_space("default"))
TASKS = ("sentiment", "paraphrase", "similarity")
STAGES = Stages((Rung(200, 9), Rung(600, 3), Rung(5400, 1)))


class Made:
    """A run whose results are given."""

    def __init__(self, objectives: tuple[str, ...] = ("overall",)) -> None:
        self.state = RunState(warn=print)
        rungs = [[rung.examples, rung.places] for rung in STAGES.rungs]
        run = {"version": "1", "name": "x", "num_samples": 9, "seed": 0, "sampler": "task_gp"}
        self.add("run", **run, resumed=False, rungs=rungs, objectives=list(objectives))

    def add(self, event: str, **fields: Any) -> None:
        self.state.apply({"event": event, "time": 0.0, **fields})

    def create(
        self, settings: Settings, origin: str = "sampler", level: int = 0, **more: Any
    ) -> str:
        name = self.state.next_id
        number = self.state.next_number if origin == "sampler" else None
        point = {"number": number, "params": {}, "settings": settings, "origin": origin}
        self.add("created", trial=name, seed=0, level=level, **point, **more)
        return name

    def score(self, name: str, examples: int, **values: float) -> None:
        self.evaluate(name, examples, **values)
        self.add("finished", trial=name)

    def evaluate(self, name: str, examples: int, **values: float) -> None:
        found = {task: values.get(task, 0.5) for task in TASKS}
        tasks = {
            task: {"value": value, "interval": [value - 0.02, value + 0.02]}
            for task, value in found.items()
        }
        mean = sum(each["value"] for each in tasks.values()) / 3
        self.add("evaluated", trial=name, examples=examples, score=mean, tasks=tasks)


def draw(seed: int, **given: Any) -> Settings:
    fixed = {key.replace("__", "."): value for key, value in given.items()}
    return POINTS.space.draw(np.random.default_rng(seed), fixed)


def test_without_results_it_draws_and_then_it_proposes_the_same_for_the_same_ledger() -> None:
    made = Made()
    rng = lambda: np.random.default_rng(3)  # noqa: E731
    assert propose(made.state, POINTS, rng()) == POINTS.space.draw(rng())
    for seed in range(4):
        made.score(made.create(draw(seed)), 200, sentiment=0.3 + seed / 10)
    first = propose(made.state, POINTS, rng())
    assert first == propose(made.state, POINTS, rng()) != POINTS.space.draw(rng())
    held = propose(made.state, POINTS, rng(), {"encoder.dropout": 0.3})
    assert held["encoder.dropout"] == 0.3


def test_improvement_grows_with_the_lead_and_with_the_doubt() -> None:
    lead, sd = np.array([0.0, 0.1, 0.0, -0.2]), np.array([0.1, 0.1, 0.2, 1e-9])
    found = expected_improvement(lead, sd)
    assert found[1] > found[0] and found[2] > found[0] and found[3] == pytest.approx(0)
    assert found[0] == pytest.approx(0.1 / math.sqrt(2 * math.pi))


@pytest.mark.slow
def test_it_puts_the_best_parts_of_different_trials_together() -> None:
    """Each task has a best encoding or batch of its own, and no trial has them all."""
    made, rng = Made(), np.random.default_rng(0)

    def values(settings: Settings) -> dict[str, float]:
        return {
            "sentiment": 0.6 if settings["batch.sizes.sentiment"] == 8 else 0.45,
            "paraphrase": 0.8 if settings["pair.encoding.paraphrase"] == "cosine" else 0.6,
            "similarity": 0.85 if settings["pair.encoding.similarity"] == "cross" else 0.7,
        }

    def is_best(settings: Settings) -> bool:
        return values(settings) == {"sentiment": 0.6, "paraphrase": 0.8, "similarity": 0.85}

    drawn = (POINTS.space.draw(rng) for _ in range(1000))
    for settings in [each for each in drawn if not is_best(each)][:12]:
        noisy = {task: value + rng.normal(0, 0.02) for task, value in values(settings).items()}
        made.score(made.create(settings), 600, **noisy)
    assert is_best(propose(made.state, POINTS, np.random.default_rng(0)))


@pytest.mark.slow
def test_it_proposes_no_point_that_was_tried_or_is_running() -> None:
    made = Made()
    for seed in range(3):
        made.score(made.create(draw(seed)), 200, sentiment=0.4 + seed / 10)
    seen = set()
    for _ in range(3):
        settings = propose(made.state, POINTS, np.random.default_rng(1))
        seen.add(key_of(POINTS, settings))
        made.create(settings)  # and is running
    assert len(seen) == 3


def test_each_run_counts_once_at_its_length_and_what_diverged_as_the_worst() -> None:
    made = Made()
    first = made.create(draw(0))
    made.add("evaluated", trial=first, examples=100, score=0.3, tasks={})
    made.score(first, 200, sentiment=0.4)
    longer = made.create(draw(0), "promoted", 1, of=first)
    made.score(longer, 600, sentiment=0.6)
    made.add("failed", trial=made.create(draw(1)), kind="diverged", reason="nan")
    made.add("failed", trial=made.create(draw(2)), kind="code", reason="a bug")
    found = list(observations(made.state, POINTS, 5400))
    assert [name for name, _ in found] == [first, first, "t0002"]
    assert [round(each.share * 5400) for _, each in found] == [200, 600, 200]
    assert [each.values["sentiment"] for _, each in found] == [0.4, 0.6, 0.4]
    assert found[0][1].variances["sentiment"] == pytest.approx(UNSHARED * (0.04 / 3.92) ** 2)


def test_tasks_count_as_the_objective_says() -> None:
    weights = weights_of(Made().state, POINTS)
    assert weights == pytest.approx(
        {"sentiment": 1 / 3, "paraphrase": 1 / 3, "similarity": 1 / 6}  # Pearson is halved
    )
    both = Made(("sentiment", "similarity")).state
    assert weights_of(both, POINTS) == {"sentiment": 0.5, "paraphrase": 0.0, "similarity": 0.5}
    mixed = weights_of(both, POINTS, np.random.default_rng(0))
    assert sum(mixed.values()) == pytest.approx(1) and mixed["sentiment"] != 0.5


def test_a_final_goes_to_what_will_lead_where_the_model_is_sure() -> None:
    """By rank the cosine leads; it stands still, and what is read as one sequence climbs."""
    made, rng = Made(), np.random.default_rng(0)
    made.score(made.create({}, "default"), 200, similarity=0.2)
    kinds = {"cosine": (0.80, 0.801), "cross": (0.55, 0.79)}
    for number in range(8):
        encoding = list(kinds)[number % 2]
        settings = draw(number, pair__encoding__similarity=encoding)
        name = made.create(settings)
        early, late = kinds[encoding]
        made.score(name, 200, similarity=early + rng.normal(0, 0.01))
        if number < 4:
            made.score(made.create(settings, "promoted", 1, of=name), 600, similarity=late)
    plain = Promotion(made.state, STAGES, 3.0).finalists()
    by_model = Promotion(made.state, STAGES, 3.0, POINTS).finalists()
    encodings = [
        made.state.trials[order[0]].settings["pair.encoding.similarity"]
        for order in (plain, by_model)
    ]
    assert encodings == ["cosine", "cross"]
    assert sorted(by_model) == sorted({*plain, by_model[0]})
    made.state.trials[plain[0]].origin = "start_from"  # which is known from training in full
    assert Promotion(made.state, STAGES, 3.0, POINTS).finalists()[0] == plain[0]
    made.state.trials[plain[0]].origin = "sampler"
    model = model_of(made.state, POINTS)
    assert model is not None and model.in_full()[by_model[0]][0] > model.in_full()[plain[0]][0]


def test_one_of_several_finals_is_for_what_the_model_expects_most_of() -> None:
    """Each of two configurations has one good part; together nobody has tried them."""
    made = Made()
    made.score(made.create({}, "default"), 200, sentiment=0.3, similarity=0.3)
    for number in range(8):
        parts = {"loss.weights.sentiment": 2 - number % 2, "encoder.dropout": 0.0}
        encoding = "cosine" if number % 4 < 2 else "cross"
        settings = draw(number, pair__encoding__similarity=encoding) | parts
        good = {"sentiment": 0.5 + 0.2 * (number % 2), "similarity": 0.8 - 0.2 * (number % 4 < 2)}
        name = made.create(settings)
        made.score(name, 200, **good)
        if number in (1, 2, 3):
            made.score(made.create(settings, "promoted", 1, of=name), 600, **good)
    several = replace(STAGES, rungs=(*STAGES.rungs[:2], Rung(5400, 3)))
    for stages, points in ((STAGES, POINTS), (several, None)):
        assert Promotion(made.state, stages, 3.0, points).expected_best() is None
    promotion = Promotion(made.state, several, 3.0, POINTS)
    first = promotion.next()
    assert first is not None and first.configuration is not None  # the best as found
    settings = made.state.trials[first.configuration].settings
    final = made.create(settings, "promoted", 2, of=first.configuration)
    promotion.enter(made.state.trials[final])
    assert promotion.next() == NextStep(None, 2)
    best = promotion.expected_best()
    assert best is not None
    tried = {key_of(POINTS, each.settings) for each in made.state.search_trials if each.settings}
    assert key_of(POINTS, best) not in tried
    own = made.create(best, "expected", 2)
    promotion.enter(made.state.trials[own])
    last = promotion.next()
    assert last is not None and last.configuration not in (None, first.configuration, own)
    again = Promotion(made.state, several, 3.0, POINTS)  # the same from the ledger
    assert again.next() == last and again.ladder.is_complete(0) and again.ladder.is_complete(1)


def test_a_final_that_goes_on_counts_when_it_is_done() -> None:
    """Or a search that is resumed meanwhile would decide anew who gets the next one."""
    made = Made()
    made.state.promotion = "continue"
    name = made.create(draw(1), level=2)
    for examples in (208, 608, 1800):
        made.evaluate(name, examples)
    shares = lambda: [each.share for _, each in observations(made.state, POINTS, 5400)]  # noqa: E731
    assert shares() == [208 / 5400, 608 / 5400]
    made.add("finished", trial=name)
    assert shares() == [208 / 5400, 608 / 5400, 1800 / 5400]


def test_beyond_what_a_model_takes_in_the_default_and_the_best_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tuner.engine.results.MOST", 4)
    made = Made()
    made.score(made.create({}, "default"), 600)
    for seed in range(8):
        made.score(made.create(draw(seed)), 600, sentiment=0.9 if seed == 1 else 0.5)
    found = [name for name, _ in observations(made.state, POINTS, 5400)]
    assert found == ["t0000", "t0002", "t0006", "t0007", "t0008"]
    made.state.promotion = "continue"
    stages = replace(STAGES, promotion="continue")
    assert Promotion(made.state, stages, 3.0, POINTS).finalists()


def test_of_very_many_failures_the_model_takes_in_the_latest() -> None:
    made = Made()
    made.score(made.create(draw(0)), 200, sentiment=0.4)
    names = [made.create(draw(seed)) for seed in range(1, 400)]
    for name in names:
        made.add("failed", trial=name, kind="diverged", reason="nan")
    found = [name for name, _ in observations(made.state, POINTS, 5400)]
    assert found == ["t0000", *names[-FAILED:]]
