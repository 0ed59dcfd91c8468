"""Reading a search space file: every fault at once, with its line and its remedy.

    about: one sentence
    tasks: cs224n                    # a task set's name, or its file
    base: {schedule.name: annealed}  # settings of every trial, dotted or nested
    parameters:
      smart.weight:    {float: [0.01, 10], log: true}
      encoder.dropout: {float: [0.1, 0.5], step: 0.05}
      smart.steps:     {int: [1, 3]}
      batch.sizes:     {choice: [[16, 16, 10], [8, 16, 8]]}
      smart.variant:   {fixed: ball}
      smart.bregman:   {float: [0.01, 10], log: true, when: {smart.weight: "> 0.1"}}
    start_from:                      # known good points, tried first; they may be partial
      - {smart.weight: 5, batch.sizes: [8, 16, 8]}
    listed: true                     # these points are all that is tried, not even the default

A condition is a value, a list of values, or a comparison in quotes. It does not hold where the
parameter that it names takes no part itself. A parameter that takes no part is as base has it.

No task need be named: `batch.sizes.<task>` stands for every task, `pair.encoding.<pair>` for those
on pairs (tuner/space/placeholders.py). A space that was read has the names in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from model.common.errors import InputError, suggest
from model.common.files import Document, read_yaml
from model.common.untrusted import read_regular
from model.config.parse import flatten
from model.config.values import SETTINGS, Misfit, find_setting, show
from model.tasks.task_set import TaskSet, load_task_set
from model.tasks.yaml_reader import plain_text as word
from tuner.space.conditions import in_domain
from tuner.space.domains import Fixed, Number, Outside, Parameter, value_text
from tuner.space.parameters import SpaceReader, read_parameters
from tuner.space.placeholders import PLACEHOLDER, NoTask, expand
from tuner.space.values import fitted, spread, unknown, unsuited

KEYS = {"about", "tasks", "budget", "base", "parameters", "start_from", "listed"}


@dataclass(frozen=True)
class SpaceDraft:
    """What a space file says, each part right in itself."""

    about: str
    tasks: TaskSet
    budget: int | None
    base: dict[str, Any]
    parameters: tuple[Parameter, ...]
    start_from: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    listed: bool
    reader: SpaceReader


def read_space(path: Path, tasks: str | None, overrides: Mapping[str, Any]) -> SpaceDraft:
    """`tasks` goes before the file's own; `overrides` go over its base and its parameters."""
    document = read_yaml(path)
    data, reader = document.data, SpaceReader(document)
    for key in data:
        if key not in KEYS:
            reader.fault(
                f"'{word(key)}' is no part of a space; {suggest(word(key), KEYS)}", word(key)
            )
    about = data.get("about") or ""
    if not isinstance(about, str):
        reader.fault(f"'about' must be text, but is {show(about)}", "about")
    budget = data.get("budget")
    if budget is not None and (
        not isinstance(budget, int) or isinstance(budget, bool) or budget < 1
    ):
        reader.fault(f"'budget' must be a number of examples, but is {show(budget)}", "budget")
    listed = data.get("listed", False)
    if not isinstance(listed, bool):
        reader.fault(f"'listed' must be true or false, but is {show(listed)}", "listed")
    reader.tasks = _read_tasks(reader, data.get("tasks"), tasks)
    base = _read_settings(reader, data.get("base"), "base")
    given = _read_overrides(reader, overrides)
    held = {key: value for key, value in base.items() if not any(_inside(key, k) for k in given)}
    held |= given
    parameters = read_parameters(reader, data.get("parameters"), held)
    _refuse_both(reader, base, parameters)
    points = _read_points(reader, data.get("start_from"), parameters, base)
    parameters, notes = _settle(reader, parameters, given)
    if reader.faults or reader.tasks is None:
        faults = reader.ordered()
        in_file = not all(fault.startswith("--") for fault in faults)
        raise InputError(str(path) if in_file else "search", faults)
    keys = {parameter.key for parameter in parameters}
    points = [{key: value for key, value in point.items() if key in keys} for point in points]
    return SpaceDraft(
        about=about,
        budget=budget,
        tasks=reader.tasks,
        base=held,
        parameters=parameters,
        start_from=tuple(p for n, p in enumerate(points) if p and p not in points[:n]),
        notes=(*reader.notes, *notes),
        listed=listed is True,
        reader=reader,
    )


def _read_tasks(reader: SpaceReader, written: Any, name_given: str | None) -> TaskSet | None:
    name = written if name_given is None else name_given
    if not isinstance(name, str):
        what = "is missing" if name is None else f"must be text, but is {show(name)}"
        reader.fault(f"'tasks' {what}; name a task set, such as cs224n, or its file", "tasks")
        return None
    try:
        # A space can lie beside its task set, and the two move together.
        beside = reader.document.path.parent / name
        own = name_given is None and name.endswith((".yaml", ".yml")) and beside.is_file()
        return load_task_set(str(beside) if own else name)
    except InputError as error:
        place = reader.place("tasks") if name_given is None else "--tasks: "
        reader.faults += [f"{place}{error.where}: {text}" for text in error.faults]
    except (OSError, ValueError) as error:  # a name that no file system takes
        reader.fault(f"'tasks' {show(name)} cannot be read: {error}", "tasks")
    return None


def _read_settings(reader: SpaceReader, written: Any, section: str) -> dict[str, Any]:
    if not isinstance(written, Mapping | None):
        reader.fault(f"'{section}' must be a mapping of settings, but is {show(written)}", section)
        return {}
    try:
        flat = flatten(written or {})
    except InputError as error:
        reader.faults += [reader.place(section) + fault for fault in error.faults]
        return {}
    settings: dict[str, Any] = {}
    if reader.tasks is None:
        return settings
    for key, value in reader.expand(section, flat).items():
        if find_setting(key, reader.tasks) is None:
            reader.fault(unknown(key, reader.tasks), section, key)
            continue
        try:
            settings[key] = fitted(key, value, reader.tasks)
        except Misfit as misfit:
            reader.fault(f"'{reader.name(section, key)}' {misfit}", section, key)
    for key in [key for key in settings if key != reader.name(section, key)]:
        if reason := unsuited(key, settings[key], settings, reader.tasks):
            reader.notes.append(f"{key} is not set to {value_text(settings.pop(key))}: {reason}")
    return settings


def _read_overrides(reader: SpaceReader, overrides: Mapping[str, Any]) -> dict[str, Any]:
    own = SpaceReader(Document(Path("--set"), {}), reader.tasks)
    settings = _read_settings(own, overrides, "--set")
    reader.faults += [f"--set: {fault}" for fault in own.ordered()]
    reader.notes += own.notes
    return settings


def _refuse_both(
    reader: SpaceReader, base: Mapping[str, Any], parameters: tuple[Parameter, ...]
) -> None:
    """What base says of a parameter would never be used, unless it takes part only sometimes."""
    for parameter in parameters:
        for key in base if not parameter.when else ():
            if _decides(parameter, key):
                _keep_one(reader, key, parameter.key)
    # One whose domain is at fault is a parameter all the same.
    known = {parameter.key for parameter in parameters}
    for key, spec in reader.specs.items():
        always = not isinstance(spec, Mapping) or "when" not in spec
        if key in base and key not in known and always:
            _keep_one(reader, key, key)


def _keep_one(reader: SpaceReader, key: str, parameter: str) -> None:
    name, other = reader.name("base", key), reader.name("parameters", parameter)
    text = f"'{name}' is in base, and '{other}' is a parameter"
    reader.fault(f"{text}; keep one of them", "base", key)


def _read_points(
    reader: SpaceReader, written: Any, parameters: tuple[Parameter, ...], base: Mapping[str, Any]
) -> list[dict[str, Any]]:
    if not isinstance(written, list | None):
        reader.fault(f"'start_from' must be a list of points, but is {show(written)}", "start_from")
        return []
    points = []
    places = _places_of_items(reader.document, "start_from") if written else []
    for number, (point, place) in enumerate(zip(written or [], places, strict=True), 1):
        before = f"{place}start_from {number}"
        if not isinstance(point, Mapping):
            reader.faults.append(f"{before} must be {{KEY: value, ...}}, but is {show(point)}")
            continue
        faults: list[str] = []
        points.append(_read_point(reader, point, parameters, base, faults))
        reader.faults += [f"{before}: {fault}" for fault in faults]
    return points


def _read_point(
    reader: SpaceReader,
    point: Mapping[Any, Any],
    parameters: tuple[Parameter, ...],
    base: Mapping[str, Any],
    faults: list[str],
) -> dict[str, Any]:
    known = {parameter.key: parameter for parameter in parameters}
    expanded = expand(point, reader.tasks, lambda text, _: faults.append(text))
    values: dict[str, Any] = {}
    for key, value in expanded.entries.items():
        name = expanded.written.get(key, key)
        if key in reader.offered and reader.tasks is not None:
            try:
                values[key] = in_domain(reader.offered[key], value, reader.tasks)
            except NoTask:
                continue
            except Outside as outside:
                faults.append(f"'{name}' {show(value)} {outside}")
            except Misfit as misfit:
                faults.append(f"'{name}' {misfit}")
        elif key not in reader.specs and not (reader.tasks is None and PLACEHOLDER.search(key)):
            # Those that are there and not offered have faults of their own.
            why = "is decided by base" if key in base else "is not a parameter"
            text = f"'{name}' {why}" if name == key else f"'{name}' stands for '{key}', which {why}"
            names = {reader.name("parameters", each) for each in reader.specs}
            faults.append(f"{text}; {suggest(name, names)}")
    # What a placeholder offers in vain, a point may offer too.
    values = {k: v for k, v in values.items() if k in known and known[k].can_be(v)}
    for parameter in parameters:
        for condition in parameter.when if parameter.key in values else ():
            if values.keys() >= {*condition.keys} and not condition.holds(values):
                text = f"'{parameter.key}' is given, but takes part only when {condition}"
                faults.append(f"{text}; remove it")
    return values


def _places_of_items(document: Document, key: str) -> list[str]:
    """'line 7: ' of each item of a list; a document notes the lines of keys alone."""
    node = yaml.compose(read_regular(document.path, links=True), Loader=yaml.SafeLoader)
    # The last of the name, as the data has it: a merged mapping (<<) can hold it too.
    found = [value for name, value in node.value if name.value == key]
    items = found[-1].value if found else document.data[key]
    marks = [getattr(item, "start_mark", None) for item in items]
    return [f"line {mark.line + 1}: " if mark else document.at(key) for mark in marks]


def _settle(
    reader: SpaceReader, parameters: tuple[Parameter, ...], given: Mapping[str, Any]
) -> tuple[tuple[Parameter, ...], tuple[str, ...]]:
    """The parameters that are left to search once some settings are given, and why others not."""
    if reader.tasks is None:
        return parameters, ()
    known = {
        key: value for k, v in given.items() for key, value in spread(k, v, reader.tasks).items()
    }
    known |= given
    kept: dict[str, Parameter] = {}
    gone = dict(reader.left_out)
    for parameter in parameters:
        key = parameter.key
        if key in gone:
            continue
        if within := [name for name in given if name != key and _decides(parameter, name)]:
            text = f"'{within[0]}' is part of '{key}', which is searched as a whole"
            reader.faults.append(f"--set: {text}; set '{key}'")
        if key in known:
            gone[key] = f"{key} is set to {value_text(known[key])} and not searched"
            continue
        left = []
        for condition in parameter.when:
            if condition.holds(known):
                continue
            keys = tuple(k for k in condition.keys if k in kept and kept[k].can_meet(condition))
            if not keys:
                gone[key] = f"{key} takes part only when {condition}, and is not searched"
            left.append(replace(condition, keys=keys))
        if key not in gone:
            kept[key] = replace(parameter, when=tuple(left))
    if gone and all(isinstance(parameter.domain, Fixed) for parameter in kept.values()):
        if given:
            reader.faults.append("--set: decides every parameter; leave one to the search")
        elif not reader.faults:
            reader.fault("no parameter is left for these tasks; add one for all", "parameters")
    return tuple(kept.values()), tuple(gone.values())


def _decides(parameter: Parameter, key: str) -> bool:
    """Whether the parameter has a say in this setting: its own, a task's, one of its section."""
    if parameter.key in SETTINGS or isinstance(parameter.domain, Number):
        return _inside(key, parameter.key)
    # A section says no more than its choices do.
    mappings = [value for value in parameter.domain.values if isinstance(value, Mapping)]
    return key in {
        parameter.key,
        *(f"{parameter.key}.{name}" for each in mappings for name in each),
    }


def _inside(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")
