"""Keys that stand for several tasks: `pair.encoding.<pair>` is the encoding of every task on pairs.

The words between the brackets say what kind of task; all of them must hold. <task> is every task,
<binary pair> every one on pairs with two classes. Where several keys stand for the same setting,
the closest counts: the task's own name, then more words, then fewer.

In a list of tasks' names a placeholder is the names: `smart.tasks: [<classes>, <binary>]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model.common.errors import suggest
from model.config.values import SETTINGS, TASK, Misfit
from model.tasks.task_set import Task, TaskSet
from model.tasks.yaml_reader import plain_text as word

PLACEHOLDER = re.compile(r"<([^<>]*)>")
KINDS: dict[str, Callable[[Task], bool]] = {
    "task": lambda task: True,
    "classes": lambda task: task.kind == "classes",
    "binary": lambda task: task.kind == "binary",
    "regression": lambda task: task.kind == "regression",
    "single": lambda task: not task.pair,
    "pair": lambda task: task.pair,
}
NAMED = len(KINDS) + 1  # closer than any number of words


class NoTask(Misfit):
    """A list of tasks that has none in it, as its placeholders stand for none."""


@dataclass(frozen=True)
class Expanded:
    entries: dict[str, Any]  # with each task's own keys
    written: dict[str, str]  # of those that a placeholder stands for: the key as written
    unused: tuple[str, ...]  # keys as written whose placeholder stands for no task


def expand(
    entries: Mapping[Any, Any], tasks: TaskSet | None, fault: Callable[[str, str], None]
) -> Expanded:
    """Each key with a placeholder as the keys it stands for; as it is where no tasks are known."""
    values = {word(key): value for key, value in entries.items()}
    closest: dict[str, str] = {}  # by each task's own key: the one that counts
    unused = []
    for key in values:
        try:
            keys = keys_of(key, tasks)
        except Misfit as misfit:
            fault(f"'{key}' {misfit}", key)
            continue
        unused += [] if keys else [key]
        for own in keys:
            other = closest.setdefault(own, key)
            if _rank(key) > _rank(other):
                closest[own] = key
            elif key != other and _rank(key) == _rank(other):
                text = f"'{key}' and '{other}' both stand for '{own}'"
                fault(f"{text}; give '{own}' itself, or name kinds that no task shares", key)
    return Expanded(
        entries={own: values[key] for own, key in closest.items()},
        written={own: key for own, key in closest.items() if own != key},
        unused=tuple(unused),
    )


def keys_of(key: str, tasks: TaskSet | None) -> list[str]:
    """The keys that this one stands for: itself, or that of each task of the kind."""
    if tasks is None or not PLACEHOLDER.search(key):
        return [key]
    stem, _, last = key.rpartition(".")
    match = PLACEHOLDER.fullmatch(last)
    if match is None or stem + TASK not in SETTINGS:
        known = [name for name in SETTINGS if name.endswith(TASK)]
        raise Misfit(f"is not a setting that each task has; {suggest(stem + TASK, known)}")
    keys = [f"{stem}.{name}" for name in _names(match[1], tasks)]
    return [own for own in keys if own not in SETTINGS]  # `loss.weights`, of a task of that name


def with_names(value: Any, tasks: TaskSet) -> Any:
    """A list of tasks with the names for each placeholder in it; any other value as it is."""
    if not has_placeholder(value):
        return value
    names: list[Any] = []
    for item in value:
        match = PLACEHOLDER.fullmatch(item) if isinstance(item, str) else None
        own = _names(match[1], tasks) if match else [item]
        names += [name for name in own if name not in names]
    if not names:
        raise NoTask(f"names {' and '.join(value)}, and no task of {tasks.name} is that")
    return names


def has_placeholder(value: Any) -> bool:
    items = value if isinstance(value, list) else []
    return any(isinstance(item, str) and PLACEHOLDER.fullmatch(item) for item in items)


def _names(words: str, tasks: TaskSet) -> list[str]:
    for each in words.split() or [words]:
        if each not in KINDS:
            remedy = suggest(each, KINDS)
            raise Misfit(f"has <{words}>, and '{each}' is not a kind of task; {remedy}")
    return [task.name for task in tasks if all(KINDS[each](task) for each in words.split())]


def _rank(key: str) -> int:
    match = PLACEHOLDER.search(key)
    return len({*match[1].split()} - {"task"}) if match else NAMED
