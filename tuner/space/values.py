"""The values of a space's parameters as a run's settings understand them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.common.errors import InputError
from model.common.typed import Unsuited

# What a run's own parser does with one value, so that a space can never disagree with it.
from model.config.parse import RunConfig, flatten, parse_settings
from model.config.parse import fit_setting as fit_setting
from model.config.parse import unknown_setting as unknown
from model.config.values import SECTIONS, SETTINGS, TASK, Misfit, find_setting, show
from model.tasks.task_set import TaskSet
from tuner.space.placeholders import with_names

__all__ = ["fitted", "matches", "meaning", "to_plain", "unknown", "unsuited"]


def fitted(key: str, value: Any, tasks: TaskSet, *, suited: bool = False) -> Any:
    """The value in plain types, as JSON and YAML hold them; Misfit where it does not fit.

    With `suited` also where it is not for this task, as a loss of classes for a regression. A
    mapping is the value of a section, or of a setting given task by task:
    `pair.encoding: {same: cross, near: cosine}`.
    """
    if isinstance(value, Mapping):
        return _fitted_section(key, value, tasks)
    setting = find_setting(key, tasks)
    if setting is None and key in SECTIONS:
        example = next(name for name in SETTINGS if name.startswith(f"{key}."))
        inner = example.removeprefix(f"{key}.").replace("<task>", tasks.names[0])
        text = f"must be a mapping of its settings, such as {{{inner}: ...}}, but is {show(value)}"
        raise Misfit(text)
    if setting is None:
        raise Misfit("is not a setting")
    value = with_names(value, tasks) if setting.names_tasks else value
    try:
        return to_plain(fit_setting(key, setting, value, tasks))
    except Unsuited:
        if suited:
            raise
        return value


def unsuited(key: str, value: Any, held: Mapping[str, Any], tasks: TaskSet) -> str:
    """Why the setting cannot have the value where the others are as held; '' where it can."""
    others = {name: each for name, each in held.items() if name != key}
    before = _faults(others, tasks)
    # Without the remedy, which is for whoever wrote the value.
    new = [fault.partition(";")[0] for fault in _faults({**others, key: value}, tasks) - before]
    return min(new, default="")


def _faults(settings: Mapping[str, Any], tasks: TaskSet) -> set[str]:
    try:
        parse_settings(settings, tasks)
    except InputError as error:
        return {*error.faults}
    return set()


def _fitted_section(key: str, value: Mapping[Any, Any], tasks: TaskSet) -> dict[str, Any]:
    if key not in SECTIONS:
        setting = find_setting(key, tasks)
        raise Misfit(f"must be {setting.expected if setting else 'a value'}, but is a mapping")
    if not value:
        raise Misfit("offers a mapping with nothing in it; give settings, or remove it")
    try:
        entries = flatten({key: value})
    except InputError as error:
        raise Misfit(f"does not fit: {error.faults[0]}") from None
    result = {}
    for name, each in entries.items():
        setting = find_setting(name, tasks)
        if setting is None:
            raise Misfit(f"does not fit: {unknown(name, tasks)}")
        try:
            result[name.removeprefix(f"{key}.")] = to_plain(fit_setting(name, setting, each, tasks))
        except Misfit as misfit:
            raise Misfit(f"does not fit: '{name}' {misfit}") from None
    return result


def to_plain(value: Any) -> Any:
    return [to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def meaning(config: RunConfig, tasks: TaskSet) -> dict[str, Any]:
    """Every setting by its dotted key, with what tasks can have of their own given for each."""
    known = config.to_flat()
    for number, task in enumerate(tasks):
        known[f"batch.sizes.{task.name}"] = config.batch_sizes(tasks)[number]
        known[f"loss.weights.{task.name}"] = config.loss_weights(tasks)[number]
        known[f"loss.{task.name}"] = config.loss_of(task)
        if task.pair:
            known[f"pair.encoding.{task.name}"] = config.encoding_of(task)
    return known


def matches(key: str, value: Any, known: Mapping[str, Any], tasks: TaskSet) -> bool:
    """Whether the value says what `meaning` gave: 16 is [16, 16, 16]."""
    given = spread(key, value, tasks)
    return all(name in known and known[name] == each for name, each in given.items())


def spread(key: str, value: Any, tasks: TaskSet) -> dict[str, Any]:
    """By dotted keys, task by task where the setting can be given so."""
    if isinstance(value, Mapping):
        parts = [spread(f"{key}.{name}", each, tasks) for name, each in value.items()]
        return {name: each for part in parts for name, each in part.items()}
    if key not in SETTINGS or key + TASK not in SETTINGS:
        return {key: value}
    if key == "pair.encoding":
        return {f"{key}.{task.name}": value for task in tasks if task.pair}
    each = value if isinstance(value, list) else [1.0 if value is None else value] * len(tasks)
    return {f"{key}.{name}": one for name, one in zip(tasks.names, each, strict=True)}
