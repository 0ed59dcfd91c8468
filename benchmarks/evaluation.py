"""A pass over the dev rows: ours, with metrics and intervals, and a starter project's.

    STOCKPOT_CS224N=folder/with/its/files python benchmarks/evaluation.py [--quick]

The same rows of every task on both sides. Ours has them tokenised, as in every evaluation of a
run but the first; starter code tokenises them each time.
"""

from __future__ import annotations

import time
from pathlib import Path

from sides.apart import Apart
from sides.measure import Options, interleave, options, ratios, spread
from sides.ours import Ours
from sides.starter import Collate, StarterModel, Texts, evaluate_rows, texts_of
from transformers import AutoTokenizer

from model.data.sources import load_split
from model.evaluation.evaluate import evaluate
from model.modules.encoder import minilm_folder
from model.tasks.task_set import TaskSet, load_task_set

ROWS = 400  # of each task


def same_rows(tasks: TaskSet, data: Path | None, ids: dict[str, list[str]]) -> list[Texts]:
    """The texts of the rows that ours evaluates."""
    found = []
    for of in texts_of(tasks, data, "dev"):
        names = load_split(of.task, "dev", data).table["id"].to_pylist()
        wanted = set(ids[of.task.name])
        rows = [row for name, row in zip(names, of.rows, strict=True) if name in wanted]
        found.append(Texts(of.task, rows))
    return found


class OurPass:
    def __init__(self, tasks: TaskSet, data: Path | None, rows: int) -> None:
        self.run = Ours(tasks, data, {"budget.eval_rows": rows}).run
        self.rate()

    def ids(self) -> dict[str, list[str]]:
        return {name: list(rows.ids) for name, rows in self.run.prepared.dev.items()}

    def rate(self) -> float:
        began = time.perf_counter()
        found = evaluate(self.run.model, self.run.prepared.dev, self.run.prepared.assembler)
        return len(found.predictions) / (time.perf_counter() - began)


class StarterPass:
    def __init__(self, tasks: TaskSet, data: Path | None, ids: dict[str, list[str]]) -> None:
        self.texts = same_rows(tasks, data, ids)
        self.model = StarterModel(tasks)
        self.collate = Collate(AutoTokenizer.from_pretrained(str(minilm_folder())))

    def rate(self) -> float:
        began = time.perf_counter()
        count = evaluate_rows(self.model, self.texts, self.collate)
        return count / (time.perf_counter() - began)


def measure(asked: Options) -> dict[str, list[float]]:
    tasks = load_task_set(asked.tasks)
    ours = Apart(OurPass, tasks, asked.data, asked.steps)
    starter = Apart(StarterPass, tasks, asked.data, ours.call("ids"))
    sides = {"ours": lambda: ours.call("rate"), "starter": lambda: starter.call("rate")}
    return interleave(sides, asked.repeats)


def main() -> None:
    found = measure(options(__doc__.splitlines()[0], steps=ROWS))
    print("\nrows per second")
    for name, values in found.items():
        print(f"  {name:22}{spread(values)}")
    print(
        f"  {'ours is faster by':22}{spread(ratios(found['ours'], found['starter']), 2)}  goal: 2"
    )


if __name__ == "__main__":
    main()
