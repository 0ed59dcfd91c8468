"""Start points for a space file from recorded runs: the best of what they trained in full.

    python benchmarks/start_points.py runs/first runs/second [--count 2]

Prints a `start_from` to paste. Of each run it takes the best configurations among its longest
trainings, by the score on dev, without the default, which a search tries in any case. A setting of
one task goes by the task's kind, so that the points fit other task sets; by its name where the run
had several tasks of that kind. Each point has a comment that says where it is from and what it
scored: one seed, chosen for being high.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from model.common.errors import InputError
from model.tasks.task_set import Task, TaskSet
from tuner.runs.open import FinishedRun, open_run
from tuner.runs.state import TrialState, objective_score


def start_points(run: FinishedRun, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each is from, and its settings as a space file has them."""
    ranked = run.state.ranked()
    longest = [trial for trial in ranked if trial.length == ranked[0].length]
    others = [trial for trial in longest if not run.state.is_default(trial)]
    for name in list(dict.fromkeys(trial.configuration for trial in others))[:count]:
        trial = next(each for each in others if each.configuration == name)
        settings = run.state.trials[name].settings
        yield told(run, trial), {placed(k, run.tasks): v for k, v in settings.items()}


def told(run: FinishedRun, trial: TrialState) -> str:
    entry = trial.chosen(run.state.objectives)
    assert entry is not None  # it is ranked
    score = objective_score(entry, run.state.objectives)
    on = f"{run.tasks.name} after {int(entry['examples']):,} examples"
    return f"{trial.id} of {run.name}: {score:.3f} on {on}"


def placed(key: str, tasks: TaskSet) -> str:
    section, _, last = key.rpartition(".")
    if last not in tasks.names:
        return key
    alike = Counter(map(kind_of, tasks))
    kind = kind_of(tasks[last])
    return f"{section}.<{kind}>" if alike[kind] == 1 else key


def kind_of(task: Task) -> str:
    return f"{task.kind} {'pair' if task.pair else 'single'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=2, help="points of each run")
    arguments = parser.parse_args()
    try:
        runs = [open_run(folder) for folder in arguments.runs]
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print("start_from:")
    for run in runs:
        for where, point in start_points(run, arguments.count):
            first, *rest = yaml.safe_dump(point, sort_keys=False).splitlines()
            print(f"  # {where}\n  - {first}", *(f"    {line}" for line in rest), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
