"""What the fields of a ledger's events may be, when they are written and when they are read.

`EVENTS` in `tuner.runs.state` says which fields an event must have. A field of one name is the same
in all events. Fields and events that are not known, as of a newer version, are plain values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from model.common.errors import suggest
from model.common.typed import show
from model.common.untrusted import unfit
from tuner.runs.state import EVENTS

TRIAL = re.compile(r"t[0-9]{4,12}")
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
MOST = 1 << 53  # of what is counted
SAMPLERS = ("task_gp", "tpe", "random", "gp", "cmaes", "nsga2")
LATEST = 1e11  # unix seconds; there is a calendar up to there
Check = Callable[[Any], bool]


def text(value: Any) -> bool:
    return isinstance(value, str)


def count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def positive(value: Any) -> bool:
    return count(value) and value > 0


def whole(value: Any) -> bool:
    """Of a seed or a process, which samplers and systems choose freely."""
    return type(value) is int


def number(value: Any) -> bool:
    return type(value) is not bool and isinstance(value, (int, float)) and math.isfinite(value)


def moment(value: Any) -> bool:
    return number(value) and 0 <= value < LATEST


def trial(value: Any) -> bool:
    return isinstance(value, str) and TRIAL.fullmatch(value) is not None


def name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def path(value: Any) -> bool:
    return isinstance(value, str) and all(map(name, value.split("/")))


def label(value: Any) -> bool:
    """What a sampler takes for a value: Optuna keeps lists under their labels."""
    return value is None or isinstance(value, (str, bool)) or number(value)


def mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def pair(of: Check) -> Check:
    return lambda value: (
        isinstance(value, (list, tuple)) and len(value) == 2 and all(map(of, value))
    )


def several(of: Check) -> Check:
    return lambda value: isinstance(value, (list, tuple)) and all(map(of, value))


def optional(of: Check) -> Check:
    return lambda value: value is None or of(value)


def by_name(of: Check) -> Check:
    return lambda value: isinstance(value, Mapping) and all(map(of, value.values()))


def score(value: Any) -> bool:
    """A task's part of an evaluation."""
    return (
        isinstance(value, Mapping)
        and number(value.get("value"))
        and optional(pair(number))(value.get("interval"))
        and optional(text)(value.get("metric"))
    )


def result(value: Any) -> bool:
    """What an earlier run scored somewhere."""
    return (
        isinstance(value, Mapping)
        and mapping(value.get("settings"))
        and number(value.get("share"))
        and 0 < value["share"] <= 1
        and all(by_name(number)(value.get(key)) for key in ("values", "variances"))
    )


FIELDS: dict[str, tuple[Check, str]] = {
    "time": (moment, "seconds since 1970"),
    "trial": (trial, "'t' and a number, as t0001"),
    "of": (optional(trial), "'t' and a number, as t0001, or null"),
    "settings": (mapping, "values by their names"),
    "params": (by_name(label), "numbers and labels by their names"),
    "sampler": (lambda value: value in SAMPLERS, f"one of {', '.join(SAMPLERS)}"),
    **dict.fromkeys(
        ("version", "name", "origin", "kind", "reason", "traceback", "node", "address"),
        (text, "text"),
    ),
    "promotion": (lambda value: value in ("restart", "continue"), "restart or continue"),
    "objectives": (lambda value: several(text)(value) and len(value) > 0, "a list of names"),
    "rungs": (several(pair(positive)), "a list of pairs of whole numbers above 0"),
    "race": (pair(count), "two whole numbers"),
    **dict.fromkeys(
        ("examples", "step", "num_samples", "attempt", "level", "epoch", "line", "rows"),
        (count, "a whole number, 0 or more"),
    ),
    **dict.fromkeys(("number", "length", "rung"), (optional(count), "a whole number or null")),
    **dict.fromkeys(("seed",), (whole, "a whole number")),
    "pid": (optional(whole), "a whole number or null"),
    "resumed": (flag, "true or false"),
    "gpus": (several(text), "a list of names"),
    "score": (number, "a number"),
    "interval": (optional(pair(number)), "two numbers or null"),
    "values": (by_name(number), "numbers by their names"),
    "tasks": (by_name(score), "a value and an interval for each task"),
    **dict.fromkeys(
        (
            *("seconds", "evaluation_seconds", "examples_per_second", "data_share", "progress"),
            *("gradient_norm", "smart", "simcse_loss", "pace", "speed"),
        ),
        (optional(number), "a number or null"),
    ),
    "learning_rates": (optional(pair(number)), "two numbers or null"),
    "best": (several(text), "a list of names"),
    "checkpoint": (name, "the name of a folder"),
    "checkpoints": (several(name), "a list of names of folders"),
    "predictions": (optional(path), "a path in the trial's folder"),
    "driver": (name, "a name"),
    "from_tasks": (by_name(text), "names of tasks by names of tasks"),
    "starts": (several(mapping), "a list of settings"),
    "results": (several(result), "a list of settings with their scores"),
}


def faults_of(event: str, fields: Mapping[str, Any]) -> list[str]:
    """Why this cannot be written; empty if it can. Numbers must be finite, as JSON's are."""
    if event not in EVENTS:
        return [f"is not an event; {suggest(event, EVENTS)}"]
    faults = [f"'{key}' is not for the caller" for key in ("event", "crc") if key in fields]
    return faults + _faults(event, fields) + list(unfit(fields))


def misfit(event: Mapping[str, Any]) -> str | None:
    """Why a line that was read is no event of a search; None if it is one. Its values are plain
    and finite. An event that only a newer version knows is one."""
    kind = event.get("event")
    if not isinstance(kind, str):
        return "'event' must be text"
    if not moment(event.get("time")):
        return f"'time' must be {FIELDS['time'][1]}, but is {show(event.get('time'))}"
    if kind not in EVENTS:
        return None
    return next(iter(_faults(kind, event)), None)


def _faults(event: str, fields: Mapping[str, Any]) -> list[str]:
    faults = [f"'{key}' is missing" for key in EVENTS[event] if key not in fields]
    return faults + field_faults(fields)


def field_faults(fields: Mapping[str, Any]) -> list[str]:
    """Of those fields that are known, wherever they stand."""
    faults = []
    for key, value in fields.items():
        known = FIELDS.get(key)
        if known is not None and not known[0](value):
            faults.append(f"'{key}' must be {known[1]}, but is {show(value)}")
    return faults
