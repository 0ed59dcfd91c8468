"""What `benchmarks/peers.py` and `benchmarks/record_curves.py` do, on problems that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.scripts import run

RECORDED = """
import json, sys
import numpy as np
from pathlib import Path
from peers import *
from record_curves import settings_of as nth, to_parquet

space, full, rng = curves_space(), 1080, np.random.default_rng(0)
names = space.task_set.names

LATE = {"cosine": 0.0, "bi_difference": 0.0, "cross": 0.4}

def values(settings, examples, luck):
    small = settings.get("batch.sizes.sentiment", 16) == 4
    late = LATE[settings.get("pair.encoding.similarity", "cross")]
    made = {"sentiment": 0.4 + 0.3 * small, "paraphrase": 0.7}
    made["similarity"] = 0.5 + late * (examples / full - 0.5)
    seen = {name: value + luck for name, value in made.items()}
    return {
        name: {"value": value, "interval": [value - 0.02, value + 0.02], "loss": 1}
        for name, value in seen.items()
    }

lines = []
for number in range(40):
    settings = nth(space, number)
    for seed in (0, 1):
        luck, points = float(rng.normal(0, 0.01)), []
        for length in [round(full * share) for share in (*RUNGS, 1)]:
            for at in on_the_way(full) if length == full else [length]:
                tasks = values(settings, at, luck)
                points.append({"length": length, "examples": at, "tasks": tasks})
        lines.append({"number": number, "seed": seed, "settings": settings, "scores": points})
place = Path(sys.argv[1]) / "curves.parquet"
to_parquet(lines, place)
found = Recorded(place)
assert found.full == full
start = dict(space.start_from[0])
best, worst = (
    {**start, "batch.sizes.sentiment": size, "pair.encoding.similarity": encoding}
    for size, encoding in ((4, "cross"), (16, "cosine"))
)
assert found.truth(best) > found.truth(worst) + 0.08
same = found.evaluate(best, "a", 360, full)
assert same == found.evaluate(best, "a", 360, full) != found.evaluate(best, "b", 360, full)
end = [found.evaluate(best, str(n), full, full)["score"] for n in range(200)]
assert abs(np.mean(end) - found.truth(best)) < 0.004 and 0.003 < np.std(end) < 0.03
of_similarity = lambda n, at: found.evaluate(best, str(n), at, full)["tasks"]["similarity"]["value"]
early, late = (np.mean([of_similarity(n, at) for n in range(50)]) for at in (40, full))
assert late > early + 0.2

purse = Purse(found, 0, 2 * full)
first = purse.begin(worst)
first.to(360), first.to(full)
short = purse.begin(best)
short.to(360)
assert purse.spent == full + 360 and purse.handed == found.truth(worst)  # the longest trained
short.to(full)
assert purse.handed == found.truth(best) and purse.at(full + 360) == found.truth(worst)
try:
    purse.begin(best).to(1)
except Spent:
    pass
else:
    raise AssertionError("it spent what it has not")
for budget in range(1, 33):
    plan = ladder(budget * full, full)
    assert plan.cost() <= budget * full and plan.final.examples == full
assert ladder(32 * full, full).trials > 60
row = {"way": "x", "starts": False, "seed": 0, "true": {"2": 0.5}}
assert "0.5500 ± 0.0500" in table([row, {**row, "seed": 1, "true": {"2": 0.6}}], [2])
assert list(rows_of(found, ["random"], 1, [1], [{**row, "way": "random"}]))[0]["starts"]
"""


def test_truth_luck_and_costs_are_those_of_the_recorded_curves(tmp_path: Path) -> None:
    run("-c", RECORDED, str(tmp_path))


@pytest.mark.slow
def test_every_way_hands_something_out() -> None:
    lines = run("peers.py", "--quick").splitlines()
    (head,) = [n for n, line in enumerate(lines) if line.split() == ["1", "full", "2", "full"]]
    names = {line.partition(", seed")[0] for line in lines[:head]}
    told = {line.partition(" (1)")[0] for line in lines[head + 1 :]}
    ways = ("ours", "random", "quasi-random", "TPE, ASHA of Ray", "TPE, Hyperband pruner")
    assert names == told >= {*ways, *(f"{way}, start points" for way in ways)}
    assert all(0.5 < float(line.split(")", 1)[1].split()[0]) < 0.75 for line in lines[head + 1 :])


@pytest.mark.slow
def test_curves_are_recorded_line_by_line(tmp_path: Path) -> None:
    out = tmp_path / "curves.parquet"
    flags = ("--quick", "--count", "1", "--processes", "1", "--out", str(out))
    run("record_curves.py", *flags, "--at-most", "1")
    (line,) = (tmp_path / "curves.jsonl").read_text().splitlines()
    assert not out.exists()
    run("record_curves.py", *flags)
    assert (tmp_path / "curves.jsonl").read_text().splitlines()[0] == line
    import pandas

    table = pandas.read_parquet(out)
    assert set(table["seed"]) == {0, 1} and set(table["task"]) == {
        *("sentiment", "paraphrase", "similarity")
    }
    assert sorted(table["length"].unique()) == [12, 36, 108]
    assert len(table[(table["seed"] == 0) & (table["length"] == 36)]) == 3
    assert "is there" in run("record_curves.py", *flags)
