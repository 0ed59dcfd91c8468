"""TensorBoard on a made-up search of 200 trials: time to write, size, time until all are shown.

    python benchmarks/board.py [--trials 200] [--evaluations 50]

The events are those of a search on the default space; each goes through the board as in a search.
Nothing is trained, so there are no pictures; one trial's pictures are timed apart.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))  # for the tests' own way to start TensorBoard

import numpy as np

from model.common.files import to_yaml
from tests.tuner.boards import record, tensorboard_on, write_answers
from tuner.export.tensorboard.board import Board
from tuner.export.tensorboard.event_files import files_in
from tuner.export.tensorboard.pictures import pictures_of
from tuner.space.space import Space, load_space


def events_of(space: Space, trials: int, evaluations: int) -> list[dict[str, Any]]:
    """A third finish, the others stop early after their first half."""
    rng = np.random.default_rng(0)
    run = {"name": "made-up", "objectives": ["overall"], "num_samples": trials, "seed": 0}
    found: list[dict[str, Any]] = [
        {"event": "run", "version": "1", "sampler": "tpe", "resumed": False, **run}
    ]
    for number in range(trials):
        about = {"number": number, "params": {}, "origin": "sampler", "of": None, "seed": 0}
        name = f"t{number:04d}"
        found.append({"event": "created", "trial": name, "settings": space.draw(rng), **about})
        top = rng.uniform(0.5, 0.9)
        for count in range(1, evaluations + 1):
            score = float(top * (1 - 0.9**count))
            entry = record(space.task_set, 100 * count, score)
            found.append({"event": "evaluated", "trial": name, **entry})
        if number % 3:
            why = {"examples": 100 * evaluations, "rung": 100, "reason": "among the lower half"}
            found.append({"event": "stopped", "trial": name, **why})
        else:
            found.append({"event": "finished", "trial": name})
    return [{"time": 1763271021.0 + place, **event} for place, event in enumerate(found)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--evaluations", type=int, default=50)
    given = parser.parse_args()
    space = load_space("default", None, {"encoder.name": "tiny"})
    events = events_of(space, given.trials, given.evaluations)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "space.yaml").write_text(to_yaml(space.to_dict()))
        began = time.perf_counter()
        Board(folder, space).replay(events)
        wrote = time.perf_counter() - began
        files = [file for trial in (folder / "trials").iterdir() for file in files_in(trial)]
        size = sum(file.stat().st_size for file in files)
        print(f"{given.trials} trials, {given.evaluations} evaluations each")
        print(f"writing      {wrote:.2f} s in all, {1000 * wrote / len(events):.2f} ms an event")
        print(f"size         {size / 1e6:.2f} MB in {len(files)} files")
        began = time.perf_counter()
        with tensorboard_on(folder) as board:
            up = time.perf_counter() - began
            board.wait_for(lambda: len(board.trials()) == given.trials)
            shown = time.perf_counter() - began
            last = f"t{given.trials - 1:04d}"
            complete = {"step": 100 * given.evaluations}
            board.wait_for(lambda: _steps(board.trials()[last]) == complete)
            whole = time.perf_counter() - began
        print(
            f"TensorBoard  {up:.2f} s until it answers, {shown:.2f} s until it lists every trial,"
        )
        print(f"             {whole:.2f} s until the last has its last value")
        answers = folder / "answers.parquet"
        write_answers(answers, space.task_set, rows=400)
        pictures_of(answers, space.task_set, "warm")
        began = time.perf_counter()
        drawn = pictures_of(answers, space.task_set, "t0001 after 5,000 examples")
        seconds, kilobytes = (
            time.perf_counter() - began,
            sum(len(p.png) for p in drawn.values()) / 1e3,
        )
        print(
            f"pictures     {seconds:.2f} s and {kilobytes:.0f} kB for the {len(drawn)} of a trial"
        )


def _steps(row: Any) -> dict[str, int]:
    found = {m["name"]["tag"]: m["trainingStep"] for m in row["metricValues"]}
    return {"step": found.get("best/overall", -1)}


if __name__ == "__main__":
    main()
