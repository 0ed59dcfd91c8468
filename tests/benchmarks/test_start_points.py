"""Start points from recorded runs, of one that is made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from benchmarks.start_points import placed, start_points
from tests.tuner.engine.test_task_gp import POINTS, Made, draw
from tuner.space.space import load_space, shipped_spaces


def recorded() -> Any:
    """Three configurations and the default; two were trained in full, the better one shortly."""
    made = Made()
    made.score(made.create({}, "default", length=200), 200, sentiment=0.2)
    names = [made.create(draw(seed), length=200) for seed in range(3)]
    for name, value in zip(names, (0.3, 0.9, 0.4), strict=True):
        made.score(name, 200, sentiment=value)
    for name, value in zip((names[0], names[2], "t0000"), (0.5, 0.6, 0.7), strict=True):
        settings = made.state.trials[name].settings
        made.score(
            made.create(settings, "promoted", 2, of=name, length=5400), 5400, sentiment=value
        )
    return SimpleNamespace(name="x", state=made.state, tasks=POINTS.space.task_set)


def test_they_are_the_best_of_those_trained_in_full_without_the_default() -> None:
    found = list(start_points(recorded(), 5))
    assert [where.split(" of ")[0] for where, _ in found] == ["t0005", "t0004"]
    assert found[0][0] == "t0005 of x: 0.533 on sample after 5,400 examples"
    rates = [point["optim.learning_rate"] for _, point in found]
    assert rates == [draw(seed)["optim.learning_rate"] for seed in (2, 0)]
    assert len(list(start_points(recorded(), 1))) == 1


def test_they_are_start_points_of_the_same_space_and_of_one_for_other_tasks(tmp_path: Path) -> None:
    points = [point for _, point in start_points(recorded(), 2)]
    written = yaml.safe_load(shipped_spaces()["default"].read_text(encoding="utf-8"))
    (tmp_path / "made.yaml").write_text(
        yaml.safe_dump({**written, "start_from": points}), encoding="utf-8"
    )
    same = load_space(tmp_path / "made.yaml")
    assert [dict(each) for each in same.start_from] == [draw(2), draw(0)]
    other = load_space(tmp_path / "made.yaml", "cs224n")
    assert other.start_from[0]["batch.sizes.sst"] == draw(2)["batch.sizes.sentiment"]


def test_of_two_tasks_of_a_kind_each_goes_by_its_name() -> None:
    tasks = POINTS.space.task_set
    twin = replace(tasks.tasks[0], name="twin")
    both = replace(tasks, tasks=(*tasks.tasks, twin))
    assert placed("batch.sizes.sentiment", both) == "batch.sizes.sentiment"
    assert placed("batch.sizes.sentiment", tasks) == "batch.sizes.<classes single>"
    assert placed("optim.learning_rate", tasks) == "optim.learning_rate"
