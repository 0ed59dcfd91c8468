"""Does a sampler try a point twice? Searches of 30 trials on every shipped space, three seeds each.

    python benchmarks/repeats.py [--quick] [--sampler tpe task_gp]

The scores are made up: they follow from the point, so that a sampler has favourites.
"""

from __future__ import annotations

import argparse
import random

from tuner.engine.sampling import Suggester
from tuner.runs.ledger import RunState
from tuner.space.space import Space, load_space, shipped_spaces

Point = frozenset[tuple[str, object]]


def new_state(sampler: str, seed: int = 0, count: int = 30) -> RunState:
    state = RunState()
    run = {"version": "1", "name": "x", "objectives": ["overall"], "num_samples": count}
    run |= {"seed": seed, "sampler": sampler, "resumed": False}
    state.apply({"event": "run", "time": 0.0, **run})
    return state


def tried(space: Space, sampler: str, seed: int, count: int) -> list[Point]:
    """The points of one search."""
    state = new_state(sampler, seed, count)
    suggester, points = Suggester(state, space), list[Point]()
    for number in range(count):
        found = suggester.next()
        if found is None:
            break
        name, at = state.next_id, {"time": float(number)}
        made = {"number": found.number, "params": found.params, "settings": found.settings}
        state.apply(
            {"event": "created", "trial": name, "origin": "sampler", "seed": 0, **made, **at}
        )
        score = random.Random(str(sorted(found.params.items()))).random()
        values = {task.name: {"value": score} for task in space.task_set}
        scored = {"trial": name, "examples": 100, "score": score, "tasks": values}
        state.apply({"event": "evaluated", **scored, **at})
        state.apply({"event": "finished", "trial": name, **at})
        points.append(frozenset(found.params.items()))
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sampler", nargs="+", default=["tpe", "task_gp"])
    parser.add_argument("--quick", action="store_true", help="one seed of six trials")
    asked = parser.parse_args()
    seeds, count = (range(1), 6) if asked.quick else (range(3), 30)
    for sampler in asked.sampler:
        searches = [
            tried(load_space(name), sampler, seed, count)
            for name in sorted(shipped_spaces())
            for seed in seeds
        ]
        whole = sum(len(set(points)) == count for points in searches)
        print(f"{sampler}: {count} different points in {whole} of {len(searches)} searches")


if __name__ == "__main__":
    main()
