"""What earlier runs know of a new one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from model.common.errors import InputError
from tests.tuner.engine.test_task_gp import STAGES, Made
from tuner.engine.earlier import (
    alike,
    from_earlier,
    knowledge_of,
    known_point,
    starts_of,
    translated,
)
from tuner.engine.points import Points
from tuner.engine.promotion import Promotion
from tuner.engine.task_gp import model_of, propose
from tuner.runs.state import EARLIER, START
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


def test_only_a_task_of_its_kind_and_metric_speaks_for_another() -> None:
    sample = OLD.space.task_set
    first, second, _ = sample
    namesake = replace(second, name=first.name)
    other = replace(sample, tasks=(namesake, replace(first, name="another")))
    assert getattr(alike(first, other), "name", None) == "another"
    assert alike(replace(first, metric="f1_macro"), sample) is None


def test_names_of_tasks_within_values_are_those_of_the_tasks_here() -> None:
    full, theirs = Points(load_space("full", "cs224n")), load_space("full")
    assert ["sst"] in next(
        c for c in full.columns if c.parameter.key == "smart.tasks"
    ).parameter.domain.values  # type: ignore[union-attr]
    tasks = {"sst": "sentiment", "para": "paraphrase", "sts": "similarity"}
    for named, ours in ((["sentiment"], ["sst"]), (["sentiment", "paraphrase"], ["sst", "para"])):
        found = translated({"smart.weight": 1, "smart.tasks": named}, tasks, theirs.task_set, 1)
        assert found["smart.tasks"] == ours == full.nearest(found)["smart.tasks"]


@pytest.mark.parametrize(
    ("own", "runs", "count", "origins"),
    [
        (3, 1, 5, "own earlier own sampler"),
        (3, 2, 9, "own earlier own own earlier sampler sampler sampler"),
        (1, 2, 9, "own earlier sampler sampler earlier sampler sampler sampler"),
        (0, 2, 9, "earlier sampler sampler earlier sampler sampler earlier sampler"),
        (3, 1, 3, "own earlier"),
        (3, 0, 5, "own own own sampler"),
        (4, 0, 5, "own own own own"),
    ],
)
def test_earlier_runs_have_a_third_of_the_places_and_the_sampler_one(
    own: int, runs: int, count: int, origins: str
) -> None:
    made = Made()
    made.state.num_samples = count
    for number in range(runs):
        starts = [{"of": number, "rank": rank} for rank in range(2)]
        made.add("earlier", name=str(number), from_tasks={}, starts=starts, results=[])
    made.create({}, "default")
    names, found = {START: "own", EARLIER: "earlier"}, []
    given = []
    while made.state.missing:
        point, origin = known_point(
            made.state, [{"own": place} for place in range(own)], made.state.next_number
        )
        found.append("sampler" if point is None else names[origin])
        given.append(point)
        made.create({"number": len(given)})
    assert " ".join(found) == origins
    assert [each for each in given if each and "own" in each] == [
        {"own": place} for place in range(found.count("own"))
    ]
    best_first = [{"of": of, "rank": rank} for rank in range(2) for of in range(runs)]
    theirs = [each for each in given if each and "of" in each]
    assert theirs == best_first[: len(theirs)] and len(theirs) <= count / 3


def test_a_point_of_an_earlier_run_has_no_privileges() -> None:
    made = Made()
    default = made.create({}, "default")
    own = made.create({"encoder.dropout": 0.0}, START)
    theirs = made.create({"encoder.dropout": 0.3}, EARLIER)
    ladder = Promotion(made.state, STAGES, 3).ladder
    assert (ladder.default, ladder.start) == (default, own)
    without = Made()
    without.create({}, "default")
    without.create({"encoder.dropout": 0.3}, EARLIER)
    assert Promotion(without.state, STAGES, 3).ladder.start is None
    assert theirs not in (own, default)


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
