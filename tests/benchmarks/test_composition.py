"""The made-up problem of `benchmarks/composition.py` is what it says, and the benchmark runs."""

from __future__ import annotations

import pytest

from tests.benchmarks.scripts import run

SAYS = """
from composition import *
cosine = {"pair.encoding.sts": "cosine"}
early = [true_scores(each, 1 / 27)["sts"] for each in (cosine, {})]
late = [true_scores(each)["sts"] for each in (cosine, {})]
assert early[0] > early[1] + 0.1 and late[1] > late[0] + 0.1
assert lacks(BEST) == 0 and abs(lacks({}) - 0.043) < 5e-4
drawn = random.Random(0)
for _ in range(200):
    made = {key: drawn.choice(values) for key, values in {
        **{f"batch.sizes.{name}": list(made.batch) for name, made in TASKS.items()},
        **{f"loss.weights.{name}": list(made.weight) for name, made in TASKS.items()},
        **{f"pair.encoding.{name}": list(TASKS[name].encoding) for name in ("para", "sts")},
    }.items()}
    assert lacks(made) >= 0
space = made_up_space()
assert space.start_from == () and all(column.task is None for column in overall_only(space).columns)
assert [task.name for task in overall_only(space).space.task_set] == ["overall"]
"""


def test_its_best_parts_are_the_best_and_its_curves_cross() -> None:
    run("-c", SAYS)


DRAWN = """
from composition import *
one, same, other = Drawn(3), Drawn(3), Drawn(4)
space, draw = made_up_space(), __import__("numpy").random.default_rng(0)
points = [space.draw(draw) for _ in range(100)]
assert [one.worth(each) for each in points] == [same.worth(each) for each in points]
assert all(one.worth(each) != other.worth(each) for each in points)
assert min(one.lacks(each) for each in points) > -0.005  # the grid has the rate in steps
assert all(0 < value < 1 for each in points for value in one.true_scores(each, 1 / 27).values())
"""


def test_a_drawn_problem_follows_from_its_seed_and_nothing_is_better_than_its_best_point() -> None:
    run("-c", DRAWN)


@pytest.mark.slow
def test_it_compares_a_sampler_that_sees_every_task_with_others() -> None:
    lines = run("composition.py", "--quick").splitlines()
    assert [line.split("  ")[0] for line in lines] == ["every task", "overall only", "random"]
    assert all("of 1" in line for line in lines)
