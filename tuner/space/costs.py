"""Which values make a run expensive, in memory first and then in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from model.objectives.schedules import JOINT
from tuner.space.domains import Number, Parameter

# Settings that are not here cost about the same whatever they are.
COSTS: dict[str, Callable[[Any], float]] = {
    # Each task's batch goes through by itself, so the largest one decides about memory.
    "batch.sizes": lambda value: max(_items(value)) + sum(_items(value)) / 1e6,
    "batch.accumulate": lambda value: -value,
    "encoder.max_length": lambda value: value,
    "encoder.frozen": lambda value: not value,
    "encoder.train_layers": lambda value: _number(value),
    "encoder.adapter": lambda value: value != "none",
    "encoder.adapter_size": lambda value: value,
    "head.hidden": lambda value: 1e9 if value == "width" else value,
    "head.binary_logits": lambda value: value,
    "pair.encoding": lambda value: value in ("cross", "concat"),  # one long sequence, not two
    "schedule.name": lambda value: value in JOINT,
    "surgery": lambda value: value != "none",  # holds a gradient for each task
    "smart.weight": lambda value: value,
    "smart.variant": lambda value: value != "random",
    "smart.steps": lambda value: value,
    "smart.tasks": lambda value: _number(value),
    "smart.every": lambda value: -value,
    "smart.bregman": lambda value: value,  # holds a second model
    "pretrain.simcse.epochs": lambda value: value,
    "pretrain.simcse.batch_size": lambda value: value,
    "precision": lambda value: ("float16", "bfloat16", "auto", "float32").index(value),
}


def most_expensive(parameter: Parameter) -> Any:
    """The parameter's value that costs most; the first of equals."""
    domain = parameter.domain
    ends = [domain.low, domain.high] if isinstance(domain, Number) else list(domain.values)
    value = max(ends, key=lambda end: cost(parameter.key, end))
    return domain.value(value) if isinstance(domain, Number) else value


def expense(settings: Mapping[str, Any]) -> list[float]:
    """What to compare whole points by: what makes a model larger comes first."""
    large = ("smart.bregman", "encoder.adapter", "head.hidden", "surgery", "smart.weight")
    others = [key for key in COSTS if key not in large]
    return [cost(key, settings[key]) if key in settings else 0.0 for key in (*large, *others)]


def cost(key: str, value: Any) -> float:
    if isinstance(value, Mapping):
        return fmean(cost(f"{key}.{name}", each) for name, each in value.items())
    rule = COSTS.get(key)
    if rule is None and value is not None:
        rule = COSTS.get(key.rpartition(".")[0])  # `batch.sizes.<task>`
    return float(rule(value)) if rule else 0.0


def _items(value: Any) -> list[float]:
    return value if isinstance(value, list) else [value]


def _number(value: Any) -> float:
    """Of the layers or tasks in a list, where null means all."""
    return 1e9 if value is None else len(value)
