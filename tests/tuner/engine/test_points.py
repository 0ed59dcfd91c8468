"""Points of a space as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.engine.points import MIDDLE, Points
from tuner.space.space import Space, load_space

SPACE = """
tasks: sample
base: {encoder.name: minilm}
parameters:
  optim.learning_rate: {float: [1.0e-5, 1.0e-3], log: true}
  encoder.dropout: {float: [0, 0.4]}
  batch.sizes.sentiment: {choice: [4, 8, 32]}
  smart.variant: {choice: [published, ball, random]}
  smart.weight: {choice: [0, 1]}
  smart.steps: {int: [1, 3], when: {smart.weight: "> 0"}}
  loss.weights: {choice: [[1, 1, 1], [2, 1, 0.5], [4, 1, 0.5]]}
"""


@pytest.fixture
def space(tmp_path: Path) -> Space:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE, encoding="utf-8")
    return load_space(str(path))


def value(points: Points, key: str, **settings: object) -> list[float]:
    (column,) = [c for c in points.columns if c.parameter.key == key]
    given = {name.replace("__", "."): each for name, each in settings.items()}
    return [round(float(x), 6) for x in points.encode(given)[column.places]]


def test_ranges_go_by_their_scale_and_numbers_by_their_order(space: Space) -> None:
    points = Points(space)
    assert value(points, "optim.learning_rate", optim__learning_rate=1e-4) == [0.5]
    assert value(points, "encoder.dropout", encoder__dropout=0.1) == [0.25]
    assert value(points, "batch.sizes.sentiment", batch__sizes__sentiment=8) == [0.5]


def test_different_values_are_one_apart_at_most(space: Space) -> None:
    points, rng = Points(space), np.random.default_rng(0)
    drawn = [points.encode(space.draw(rng)) for _ in range(60)]
    for column in points.columns:
        parts = np.stack([point[column.places] for point in drawn])
        apart = np.linalg.norm(parts[:, None] - parts[None], axis=-1)
        most = 1.0 if not column.parameter.when else 2.0  # and whether it takes part
        assert 0.5 < apart.max() <= most + 1e-9
    words = [value(points, "smart.variant", smart__variant=v) for v in ("ball", "random")]
    assert np.linalg.norm(np.subtract(*words)) == pytest.approx(1.0, abs=1e-6)


def test_what_takes_no_part_is_in_the_middle_and_says_so(space: Space) -> None:
    points = Points(space)
    assert value(points, "smart.steps", smart__weight=0) == [MIDDLE, 0.0]
    assert value(points, "smart.steps", smart__weight=1, smart__steps=3) == [1.0, 1.0]


def test_a_parameter_belongs_to_the_task_in_its_name(space: Space) -> None:
    owners = {column.parameter.key: column.task for column in Points(space).columns}
    assert owners["batch.sizes.sentiment"] == "sentiment"
    assert owners["optim.learning_rate"] is None and owners["loss.weights"] is None


def test_the_default_is_the_nearest_point_of_the_space(space: Space) -> None:
    default = Points(space).default()
    assert default["optim.learning_rate"] == 2e-4  # the encoder's own
    assert default["batch.sizes.sentiment"] == 8  # of 4, 8 and 32 the nearest to 16
    assert default["smart.weight"] == 0 and default["loss.weights"] == [1, 1, 1]


def test_whole_numbers_off_their_steps_go_to_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    lengths = "encoder.max_length: {int: [100, 400], step: 100}"
    file.write_text(f"tasks: sample\nparameters:\n  {lengths}\n")
    points = Points(load_space(str(file)))
    assert points.default() == {"encoder.max_length": 300}  # of 256
    assert points.nearest({"encoder.max_length": 120}) == {"encoder.max_length": 100}
    assert points.space.params(points.default()) == {"encoder.max_length": 300}
