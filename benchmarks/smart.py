"""What SMART, the Bregman term and PCGrad cost, in plain steps of ours; and against smart-pytorch.

    STOCKPOT_CS224N=folder/with/its/files python benchmarks/smart.py [--quick]

The factors are of steps on the same batch, the first task's of median length; PCGrad's are of
steps on such a batch of every task. The last ratio is of examples per second in ordinary
training, against a starter project's loop with the package smart-pytorch. Both perturb the output
of the embedding layer.
"""

from __future__ import annotations

from typing import Any

from sides.apart import Apart
from sides.measure import interleave, options, ratios, spread
from sides.ours import Ours
from sides.starter import Starter

from model.tasks.task_set import load_task_set
from model.training.prepare import ProcessCache

ALONE, JOINT = {"schedule.name": "sequential"}, {"schedule.name": "batch_round_robin"}
PLAIN, PLAIN_JOINT = "plain", "plain, all tasks"
KINDS: dict[str, tuple[dict[str, Any], float | None]] = {
    # what is set, and the factor asked for
    PLAIN: (ALONE, None),
    "published": ({**ALONE, "smart.weight": 1}, 2.7),
    "ball": ({**ALONE, "smart.weight": 1, "smart.variant": "ball"}, 2.7),
    "random": ({**ALONE, "smart.weight": 1, "smart.variant": "random"}, 2.05),
    "published, every 2": ({**ALONE, "smart.weight": 1, "smart.every": 2}, 1.9),
    "published, every 4": ({**ALONE, "smart.weight": 1, "smart.every": 4}, 1.45),
    "Bregman": ({**ALONE, "smart.bregman": 1}, None),
    PLAIN_JOINT: (JOINT, None),
    "PCGrad": ({**JOINT, "surgery": "pcgrad"}, None),
}


def main() -> None:
    asked = options(__doc__.splitlines()[0], steps=8)
    tasks, cache = load_task_set(asked.tasks), ProcessCache()
    sides = {
        name: Ours(tasks, asked.data, settings, cache=cache, typical=True)
        for name, (settings, _) in KINDS.items()
    }
    real = Apart(Ours, tasks, asked.data, {"smart.weight": 1}, even=asked.steps)
    starter = Apart(Starter, tasks, asked.data, smart=True)

    def factor(name: str) -> float:
        """Over plain steps between its own: the machine's speed drifts within seconds."""
        plain = sides[PLAIN_JOINT if name == "PCGrad" else PLAIN]
        cycle = int(KINDS[name][0].get("smart.every", 1))
        turns = [
            (sides[name].steps(cycle).seconds, plain.steps(cycle).seconds)
            for _ in range(-(-asked.steps // cycle))
        ]
        return sum(own for own, _ in turns) / sum(other for _, other in turns)

    compared = [name for name in KINDS if name not in (PLAIN, PLAIN_JOINT)]
    found = interleave(
        {
            **{name: lambda name=name: factor(name) for name in compared},  # type: ignore[misc]
            "ours": lambda: real.call("rate", asked.steps),
            "smart-pytorch": lambda: starter.call("rate", 3 * asked.steps // 2),
        },
        asked.repeats,
    )
    print("\nfactor over a plain step")
    for name in compared:
        goal = KINDS[name][1]
        wanted = f"  goal: at most {goal}" if goal else ""
        print(f"  {name:22}{spread(found[name], 2)}{wanted}")
    print("\nexamples per second, SMART in every step")
    for name in ("ours", "smart-pytorch"):
        print(f"  {name:22}{spread(found[name])}")
    faster = spread(ratios(found["ours"], found["smart-pytorch"]), 2)
    print(f"  {'ours is faster by':22}{faster}  goal: 2.3")


if __name__ == "__main__":
    main()
