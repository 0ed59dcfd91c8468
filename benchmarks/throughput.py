"""Training speed: ours, a starter project's loop, and Hugging Face's Trainer.

    STOCKPOT_CS224N=folder/with/its/files python benchmarks/throughput.py [--quick]

The three tasks of CS224N (without the folder: the sample corpus), MiniLM, batches of 16, pairs
cross-encoded, two threads. Ours by default takes one step on a batch of every task; the others,
and the line "a step per batch", take one on each. Useful share: the matrix products on real
tokens, as a share of what the machine multiplies in the same time when it does nothing else.
"""

from __future__ import annotations

import statistics

from sides.apart import Apart
from sides.hf_trainer import HfTrainer
from sides.measure import interleave, matmul_rate, options, ratios, spread
from sides.ours import Ours, Work
from sides.starter import Starter

from model.tasks.task_set import load_task_set

GOALS = {  # examples per second of ours, over theirs
    "starter loop": 2.5,
    "Trainer": 2.0,
    "Trainer, by length": 1.0,
}


def main() -> None:
    asked = options(__doc__.splitlines()[0], steps=4)
    tasks = load_task_set(asked.tasks)
    steps = 2 * asked.steps  # ours are the quickest
    ours = Apart(Ours, tasks, asked.data, {}, even=steps)
    cycle = {"schedule.name": "max_size_cycle"}
    single = Apart(Ours, tasks, asked.data, cycle, even=asked.steps)
    starter = Apart(Starter, tasks, asked.data)
    trainer = Apart(HfTrainer, tasks, asked.data, grouped=False)
    grouped = Apart(HfTrainer, tasks, asked.data, grouped=True)
    batches = len(tasks.names) * asked.steps
    works: list[Work] = []

    def step_ours() -> float:
        works.append(ours.call("steps", steps))
        return works[-1].examples / works[-1].seconds

    found = interleave(
        {
            "ours": step_ours,
            "matmul": matmul_rate,
            "ours, a step per batch": lambda: single.call("rate", batches),
            "starter loop": lambda: starter.call("rate", batches),
            "Trainer": lambda: trainer.call("rate", asked.steps),
            "Trainer, by length": lambda: grouped.call("rate", asked.steps),
        },
        asked.repeats,
    )
    print("\nexamples per second")
    for name, values in found.items():
        if name != "matmul":
            print(f"  {name:24}{spread(values)}")
    print("\nours is faster by")
    for name, goal in GOALS.items():
        print(f"  {name:24}{spread(ratios(found['ours'], found[name]), 2)}  goal: {goal}")
    rate = statistics.median(found["matmul"])
    shares = [w.flops / w.seconds / m for w, m in zip(works, found["matmul"], strict=True)]
    padding = 1 - sum(w.tokens for w in works) / sum(w.places for w in works)
    print(f"\nmatrix products alone {rate / 1e9:.0f} GFLOP/s; padding {padding:.1%} of all tokens")
    print(f"  {'useful share':24}{spread(shares, 2)}  goal: 0.5")


if __name__ == "__main__":
    main()
