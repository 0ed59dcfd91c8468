"""What earlier runs know of a new one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from model.common.errors import InputError
from tests.tuner.engine.test_task_gp import Made
from tuner.engine.earlier import alike, from_earlier, knowledge_of, starts_of
from tuner.engine.points import Points
from tuner.engine.task_gp import model_of, propose
from tuner.space.space import load_space

OLD = Points(load_space("default"))
NEW = Points(load_space("default", "cs224n"))


def earlier_run(count: int = 12) -> Any:
    """A search of the sample tasks that found out about pair encodings and small batches."""
    made, rng = Made(), np.random.default_rng(0)
    made.score(made.create({}, "default"), 600, sentiment=0.3, paraphrase=0.5, similarity=0.5)
    for _ in range(count):
        settings = OLD.space.draw(rng)
        good = settings["pair.encoding.paraphrase"] == "cosine"
        small = settings["batch.sizes.sentiment"] == 4
        values = {"sentiment": 0.4 + 0.2 * small, "paraphrase": 0.6 + 0.2 * good}
        made.score(made.create(settings), 600, similarity=0.7, **values)
    return SimpleNamespace(
        folder=Path("old"), name="old", space=OLD.space, tasks=OLD.space.task_set, state=made.state
    )


def test_a_task_learns_from_its_namesake_or_from_one_of_its_kind() -> None:
    sample, cs224n = OLD.space.task_set, NEW.space.task_set
    found = {task.name: getattr(alike(task, sample), "name", None) for task in cs224n}
    assert found == {"sst": "sentiment", "para": "paraphrase", "sts": "similarity"}
    assert [getattr(alike(task, sample), "name", None) for task in sample] == list(sample.names)


def test_its_best_are_points_of_the_new_space_and_its_scores_come_along() -> None:
    run = earlier_run()
    known = knowledge_of(run, NEW)
    assert len(known["starts"]) == 2 and len(known["results"]) == 13
    first, best = known["starts"][0], run.state.best_trial().settings
    assert first["pair.encoding.para"] == best["pair.encoding.paraphrase"]
    assert first["batch.sizes.sst"] == best["batch.sizes.sentiment"]
    assert NEW.space.params(first) and not NEW.space.missing(first)
    assert known["results"][1]["values"].keys() == {"sst", "para", "sts"}
    assert "batch.sizes.sentiment" not in known["results"][1]["settings"]


def test_rates_are_those_of_the_new_encoder() -> None:
    slow = Points(load_space("default", None, {"encoder.name": "tiny"}))  # 1e-3, not 2e-4
    run = earlier_run()
    rates = [each["settings"]["optim.learning_rate"] for each in knowledge_of(run, slow)["results"]]
    own = [each["settings"]["optim.learning_rate"] for each in knowledge_of(run, OLD)["results"]]
    assert rates == pytest.approx([5 * rate for rate in own])


def test_a_search_proposes_by_what_another_found_out_and_says_how_much_it_took() -> None:
    new = Made()
    for seed in range(4):
        settings = NEW.space.draw(np.random.default_rng(seed))
        good, small = settings["pair.encoding.para"] == "cosine", settings["batch.sizes.sst"] == 4
        values = {"sst": 0.4 + 0.2 * small, "para": 0.6 + 0.2 * good, "sts": 0.7}
        tasks = {n: {"value": v, "interval": [v - 0.02, v + 0.02]} for n, v in values.items()}
        name = new.create(settings)
        new.add("evaluated", trial=name, examples=600, score=0.5, tasks=tasks)
        new.add("finished", trial=name)
    new.add("earlier", **knowledge_of(earlier_run(30), NEW))
    assert len(from_earlier(new.state, NEW)[0]) == 31 and len(starts_of(new.state)) == 2
    points = [propose(new.state, NEW, np.random.default_rng(seed)) for seed in range(3)]
    assert all(each["pair.encoding.para"] == "cosine" for each in points)
    assert all(each["batch.sizes.sst"] == 4 for each in points)
    model = model_of(new.state, NEW)
    assert model is not None
    (taken,) = model.surrogate.taken()
    assert taken["sst"] > 0.5 and taken["para"] > 0.5


def test_a_run_that_knows_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="old has no results; leave it out"):
        empty = earlier_run(0)
        empty.state.trials.clear()
        knowledge_of(empty, NEW)
