"""The table of settings and what fits each, from the annotations in `model.config.settings`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import reduce
from operator import or_
from typing import Any, get_args, get_origin, get_type_hints

from model.common.typed import Bound, Typed, options_of
from model.common.typed import Misfit as Misfit
from model.common.typed import show as show
from model.config.settings import NAMES_TASKS, PerTask, RunConfig, key_of
from model.tasks.task_set import TaskSet

TASK = ".<task>"  # ends the key of a setting that every task has


@dataclass(frozen=True)
class Setting(Typed):
    """What is known of one dotted key; `<task>` at its end stands for the name of any task."""

    key: str
    kind: Any
    default: Any
    bounds: tuple[Bound, ...]
    help: str
    names_tasks: bool

    @property
    def expected(self) -> str:
        words = super().expected
        return words.replace("text", "the name of a task") if self.names_tasks else words

    def fit(self, value: Any) -> Any:
        if value is None and self.key.endswith(TASK):
            return None  # takes back what was said of this task
        return super().fit(value)


def find_setting(key: str, tasks: TaskSet) -> Setting | None:
    """The setting of this key, where `loss.<task>` and its like stand for each task's own."""
    section, _, last = key.rpartition(".")
    if last in tasks.names and key not in SETTINGS:
        key = section + TASK
    elif key.endswith(TASK):
        return None  # the name of no task
    return SETTINGS.get(key)


def known_keys(tasks: TaskSet) -> list[str]:
    """Every key that can be set in a run of these tasks."""
    keys: dict[str, None] = {}
    for key in SETTINGS:
        stem = key.removesuffix(TASK)
        keys.update(dict.fromkeys([key] if stem == key else [f"{stem}.{n}" for n in tasks.names]))
    return list(keys)


def _settings(section: type, prefix: str) -> Iterator[Setting]:
    hints = get_type_hints(section, include_extras=True)
    for item in fields(section):
        key = key_of(prefix, item.name)
        if is_dataclass(hints[item.name]):
            yield from _settings(hints[item.name], f"{key}.")
            continue
        kind, *notes = get_args(hints[item.name])
        bounds = tuple(note for note in notes if isinstance(note, Bound))
        text = next(note for note in notes if isinstance(note, str))
        # A mapping is given task by task, never as one value.
        own = [get_args(option)[1] for option in options_of(kind) if get_origin(option) is Mapping]
        own += [note.kind for note in notes if isinstance(note, PerTask)]
        rest = tuple(option for option in options_of(kind) if get_origin(option) is not Mapping)
        if rest:
            default = None if item.default is MISSING else item.default
            yield Setting(key, reduce(or_, rest), default, bounds, text, NAMES_TASKS in notes)
        for each in own:
            about = "the same, for this task alone" if rest else text
            yield Setting(f"{key}{TASK}", each, None, bounds, about, False)


SETTINGS: dict[str, Setting] = {setting.key: setting for setting in _settings(RunConfig, "")}
SECTIONS: frozenset[str] = frozenset(
    ".".join(parts[:depth])
    for parts in (key.split(".") for key in SETTINGS)
    for depth in range(1, len(parts))
)
