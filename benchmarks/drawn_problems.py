"""Made-up problems over the default space with CS224N's tasks, each drawn from its seed.

Every task has a best pair encoding, batch size, loss weight and learning rate of its own, curves of
its own slope for each encoding, and effects of two parameters together, also of the other tasks'
loss weights. How large all of it is, is drawn. So nothing can be tuned to one of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from itertools import product
from typing import Any

Settings = Mapping[str, Any]

ENCODINGS = ("cosine", "bi_difference", "cross")
BATCHES = (4, 8, 16)
WEIGHTS = {"sst": (0.5, 1, 2), "para": (0.5, 1, 2), "sts": (0.05, 0.2, 0.5, 1)}
ERRORS = {"sst": 0.5, "para": 0.17, "sts": 0.14}  # about, in full
GRID: dict[str, tuple[Any, ...]] = {
    **{f"pair.encoding.{name}": ENCODINGS for name in ("para", "sts")},
    **{f"batch.sizes.{name}": BATCHES for name in WEIGHTS},
    **{f"loss.weights.{name}": weights for name, weights in WEIGHTS.items()},
    "optim.learning_rate": tuple(5e-5 * 10 ** (step / 12) for step in range(13)),
    "encoder.dropout": (0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
    "loss.smoothing": (0, 0.1),
    "average.share": (0, 0.2),
    "smart.weight": (0.01, 0.1, 1, 10),
    "optim.layer_decay": (0.8, 0.85, 0.9, 0.95, 1),
}


class DrawnTask:
    def __init__(self, name: str, draw: random.Random) -> None:
        self.name = name
        self.encodings = ENCODINGS if name != "sst" else ("any",)
        self.error = ERRORS[name] * draw.uniform(0.8, 1.3)
        self.slope = {each: draw.uniform(0.03, 0.28) for each in self.encodings}
        best = draw.choice(self.encodings)
        self.encoding = {e: 0.0 if e == best else draw.uniform(0.005, 0.07) for e in self.encodings}
        self.batch = _valley(BATCHES, draw)
        self.weight = _valley(WEIGHTS[name], draw)
        self.rate = 2e-4 * 2 ** draw.gauss(0, 0.7)
        self.dropout = draw.uniform(-0.1, 0.2)
        self.smoothing, self.average = draw.uniform(-0.006, 0.006), draw.uniform(-0.006, 0.006)
        self.smart, self.decay = draw.gauss(0, 0.004), draw.gauss(0, 0.03)
        # Two parameters together.
        self.by_encoding = {pair: draw.gauss(0, 0.006) for pair in product(self.encodings, BATCHES)}
        self.by_batch = {pair: draw.gauss(0, 0.006) for pair in product(BATCHES, WEIGHTS[name])}
        self.rate_by_batch = draw.gauss(0, 0.006)
        self.others = {
            f"loss.weights.{other}": {weight: draw.gauss(0, 0.004) for weight in weights}
            for other, weights in WEIGHTS.items()
            if other != name
        }

    def metric(self, given: Settings, share: float) -> float:
        encoding = given.get(f"pair.encoding.{self.name}", "any")
        batch, weight = given[f"batch.sizes.{self.name}"], given[f"loss.weights.{self.name}"]
        rate = math.log2(given["optim.learning_rate"] / self.rate)
        error = self.error + self.encoding[encoding] + self.batch[batch] + self.weight[weight]
        error += 0.007 * rate**2 + self.dropout * given["encoder.dropout"] ** 2
        error += self.smoothing * (given["loss.smoothing"] > 0)
        error += self.average * (given.get("average.share", 0) > 0)
        error += self.smart * math.log10(max(given.get("smart.weight", 0), 0.01))
        error += self.decay * (1 - given.get("optim.layer_decay", 1))
        error += self.by_encoding[encoding, batch] + self.by_batch[batch, weight]
        error += self.rate_by_batch * rate * math.log2(batch / 8)
        error += sum(effects[given[key]] for key, effects in self.others.items())
        return 1 - min(0.95, max(error, 0.02) * share ** -self.slope[encoding])


def drawn_tasks(seed: int) -> list[DrawnTask]:
    draw = random.Random(f"problem {seed}")
    return [DrawnTask(name, draw) for name in WEIGHTS]


def best_point(worth: Any) -> dict[str, Any]:
    """The best of the grid that parameter after parameter finds, from a dozen beginnings."""
    draw, found = random.Random(0), []
    for _ in range(12):
        point = {key: draw.choice(values) for key, values in GRID.items()}
        before = -math.inf
        while worth(point) > before + 1e-9:
            before = worth(point)
            for key, values in GRID.items():
                point[key] = max(values, key=lambda each: worth({**point, key: each}))  # noqa: B023
        found.append(point)
    return max(found, key=worth)


def _valley(values: tuple[Any, ...], draw: random.Random) -> dict[Any, float]:
    """One value is the best, and each step away from it costs as much."""
    best, step = draw.randrange(len(values)), draw.uniform(0.008, 0.03)
    return {value: step * abs(place - best) for place, value in enumerate(values)}
