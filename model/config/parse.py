"""From what the user wrote to a RunConfig: files, presets and assignments, every fault at once.

Nested and dotted keys mean the same: `smart: {weight: 5}` is `smart.weight: 5`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from model.common.errors import InputError, PartlyRead, suggest
from model.common.files import Document, read_yaml
from model.common.typed import Unsuited
from model.config.checks import contradictions
from model.config.settings import RunConfig, key_of
from model.config.values import (
    SECTIONS,
    SETTINGS,
    TASK,
    Misfit,
    Setting,
    find_setting,
    known_keys,
    show,
)
from model.tasks.task_set import LOSSES, TaskSet

__all__ = ["SETTINGS", "Layer", "RunConfig", "describe_settings", "flatten", "load_preset"]
__all__ += [
    "assignment",
    "parse_assignment",
    "parse_assignments",
    "parse_layers",
    "parse_settings",
    "preset_names",
    "read_settings",
]

FRAME = ("about", "tasks", "settings", "data", "stockpot")  # the last two: a run's config.yaml
PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class Layer:
    """Settings from one place: a preset, a file, the command line."""

    settings: Mapping[str, Any]
    where: str = "settings"
    document: Document | None = None
    under: tuple[str, ...] = ()  # the keys of the document above the settings
    about: str = ""
    tasks: str | None = None
    data: str | None = None

    def place(self, path: Sequence[str]) -> str:
        return self.document.at(*self.under, *path) if self.document else ""


def parse_settings(
    settings: Mapping[str, Any],
    tasks: TaskSet,
    *,
    where: str = "settings",
    document: Document | None = None,
) -> RunConfig:
    return parse_layers([Layer(settings, where, document)], tasks)


def parse_layers(layers: Sequence[Layer], tasks: TaskSet) -> RunConfig:
    """Later layers win. A value for all tasks replaces what earlier layers said of one."""
    reading = _Reading(tasks, several=len(layers) > 1)
    for layer in layers:
        reading.add(layer)
    config: RunConfig = _construct(RunConfig, "", reading.resolved())
    reading.compare(config)
    if reading.faults:
        raise InputError(layers[0].where if len(layers) == 1 else "settings", reading.faults)
    return config


def read_settings(path: str | Path) -> Layer:
    """A file of settings, plain or under `settings:` with `about:` and `tasks:` beside it."""
    document = read_yaml(Path(path))
    data = document.data
    if "settings" not in data:
        return Layer(data, str(path), document)
    faults = []
    for key, value in data.items():
        if key not in FRAME:
            fault = f"{show(key)} stands beside 'settings'; move it below"
        elif key == "settings" and not isinstance(value, Mapping | None):
            fault = f"'settings' must be a mapping of keys to values, but is {show(value)}"
        elif key != "settings" and not isinstance(value, str | None):
            fault = f"'{key}' must be text, but is {show(value)}"
        else:
            continue
        faults.append(document.at(str(key)) + fault)
    if faults:
        raise InputError(str(path), faults)
    about, settings = data.get("about") or "", data["settings"] or {}
    frame = (about, data.get("tasks"), data.get("data"))
    return Layer(settings, str(path), document, ("settings",), *frame)


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_preset(name: str) -> Layer:
    if name not in preset_names():
        raise InputError("preset", [f"{show(name)} is not one; {suggest(name, preset_names())}"])
    return read_settings(PRESETS / f"{name}.yaml")


def parse_assignment(text: str) -> tuple[str, Any]:
    """'smart.weight=5' -> ('smart.weight', 5); the value is read as YAML."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not key or not equals:
        raise InputError("--set", [f"{show(text)} is not KEY=VALUE; write smart.weight=5"])
    if not value:
        raise InputError("--set", [f"{show(text)} has no value; write {key}=null for none"])
    try:
        return key, yaml.safe_load(value)
    except Exception as error:  # besides its own errors PyYAML lets Key-, Index- and others pass
        problem = getattr(error, "problem", None) or "not valid YAML"
        remedy = "put the value in quotes, or a list in [brackets]"
        raise InputError("--set", [f"{show(text)}: {problem}; {remedy}"]) from None


def assignment(key: str, value: Any) -> str:
    """Back: 'smart.weight', 5 -> 'smart.weight=5'"""
    written = yaml.safe_dump(value, default_flow_style=True, width=10_000).strip()
    return f"{key}={written.removesuffix('...').strip()}"


def parse_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Several of them; the faults of all come at once, and what could be read with them."""
    found: dict[str, Any] = {}
    faults: list[str] = []
    for text in texts:
        try:
            key, value = parse_assignment(text)
        except InputError as error:
            faults += error.faults
            continue
        if key in found and found[key] != value:
            faults.append(_twice(key, found[key], value))
        found[key] = value
    if faults:
        raise PartlyRead("--set", faults, found)
    return found


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by dotted keys. Only known sections are opened: other mappings are values."""
    flat: dict[str, Any] = {}
    for key, _, value in _entries(settings, "", ()):
        if key in flat and flat[key] != value:
            raise InputError("settings", [_twice(key, flat[key], value)])
        flat[key] = value
    return flat


def describe_settings() -> str:
    """Every setting as a Markdown table."""
    lines = ["| setting | value | default | meaning |", "|---|---|---|---|"]
    for setting in SETTINGS.values():
        value = setting.default
        default = show(list(value) if isinstance(value, tuple) else value).strip("'")
        default = "" if setting.key.endswith(TASK) else default
        lines.append(f"| `{setting.key}` | {setting.expected} | {default} | {setting.help} |")
    return "\n".join(lines) + "\n"


class _Reading:
    """Gathers values and faults from layer after layer."""

    def __init__(self, tasks: TaskSet, *, several: bool) -> None:
        self.tasks = tasks
        self.several = several
        self.values: dict[str, Any] = {}
        self.places: dict[str, str] = {}
        self.faults: list[str] = []
        self.faulty: set[str] = set()

    def add(self, layer: Layer) -> None:
        prefix = f"{layer.where}: " if self.several else ""
        if not isinstance(layer.settings, Mapping):
            kind = show(layer.settings)
            self.faults.append(f"{prefix}must be a mapping of keys to values, but is {kind}")
            return
        given: dict[str, Any] = {}
        for key, path, value in _entries(layer.settings, "", ()):
            self.places[key] = prefix + layer.place(path)
            setting = find_setting(key, self.tasks)
            if setting is None:
                self.fault(key, unknown_setting(key, self.tasks))
                continue
            try:
                fitted = fit_setting(key, setting, value, self.tasks)
            except Misfit as misfit:
                self.fault(key, f"'{key}' {misfit}")
                continue
            if key in given and given[key] != fitted:
                self.fault(key, _twice(key, given[key], value))
            given[key] = fitted
        for key in given:
            for name in self.tasks.names if key + TASK in SETTINGS else ():
                self.values.pop(f"{key}.{name}", None)
        if given.get("budget.examples") is not None and "budget.epochs" not in given:
            # Asked for examples on top of a preset: the preset's epochs would end the run
            # elsewhere, or leave a first stage that takes all of it.
            self.values.pop("budget.epochs", None)
        self.values.update(given)

    def fault(self, key: str, text: str) -> None:
        self.faulty.add(key)
        self.faults.append(self.places.get(key, "") + text)

    def resolved(self) -> dict[str, Any]:
        """The values with those of single tasks gathered: a list in task order, or a mapping."""
        values = dict(self.values)
        if values.get("budget.examples") is not None:
            values.setdefault("budget.epochs", None)  # examples alone: no other limit
        for setting in SETTINGS.values():
            stem = setting.key.removesuffix(TASK)
            if stem == setting.key:
                continue
            keys = {name: f"{stem}.{name}" for name in self.tasks.names}
            own = {name: values.get(key) for name, key in keys.items() if key not in SETTINGS}
            own = {name: value for name, value in own.items() if value is not None}
            if stem not in SETTINGS:
                values[stem] = own
            elif own:
                general = values.get(stem, SETTINGS[stem].default)
                values[stem] = _spread(stem, general, own, self.tasks)
        return values

    def compare(self, config: RunConfig) -> None:
        for keys, text in contradictions(config, self.tasks, self.values):
            if self.faulty.isdisjoint(keys):
                place = next((self.places[key] for key in keys if key in self.places), "")
                self.faults.append(place + text)


def _entries(
    settings: Mapping[Any, Any], prefix: str, path: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """(dotted key, keys as written, value) of each setting; sections are opened, others not."""
    for name, value in settings.items():
        word = name if isinstance(name, str) else show(name)
        key = prefix + word
        if key in SECTIONS and isinstance(value, Mapping):
            yield from _entries(value, f"{key}.", (*path, word))
        elif key not in SECTIONS or key in SETTINGS or value is not None:
            yield key, (*path, word), value


def fit_setting(key: str, setting: Setting, value: Any, tasks: TaskSet) -> Any:
    """The value as the config holds it, with the names and the number of tasks in it checked."""
    try:
        fitted = setting.fit(value)
    except Misfit as misfit:
        section, _, last = key.rpartition(".")
        if last in tasks.names and key in SETTINGS and section + TASK in SETTINGS:
            note = f"the setting comes before the task '{last}': rename the task"
            raise Misfit(f"{misfit} ({note})") from None
        raise
    order = ", ".join(tasks.names)
    if setting.names_tasks and fitted is not None:
        names = fitted if isinstance(fitted, tuple) else (fitted,)
        if not names:
            raise Misfit(f"is an empty list; name some of {order}, or write null")
        for name in names:
            if name not in tasks.names:
                remedy = suggest(name, tasks.names)
                raise Misfit(f"names {show(name)}, which is not a task of {tasks.name}; {remedy}")
    if setting.key == f"loss{TASK}" and fitted is not None:
        task = tasks[key.removeprefix("loss.")]
        if task.kind not in LOSSES[fitted]:
            known = ", ".join(name for name, kinds in LOSSES.items() if task.kind in kinds)
            kind = f"a task of {task.classes} classes" if task.kind == "classes" else task.kind
            raise Unsuited(f"is {fitted}, which does not fit {kind}; known: {known}")
    if key + TASK in SETTINGS and isinstance(fitted, tuple) and len(fitted) != len(tasks):
        raise Misfit(f"has {len(fitted)} values for {len(tasks)} tasks; give one each for {order}")
    return fitted


def unknown_setting(key: str, tasks: TaskSet) -> str:
    known = known_keys(tasks)
    section, _, last = key.rpartition(".")
    if key in SECTIONS:
        example = next(name for name in known if name.startswith(f"{key}."))
        return f"'{key}' is a section, not a setting; give its settings, such as '{example}'"
    fault = f"{show(key)} is not a setting"
    if section + TASK in SETTINGS:
        fault += f", and {show(last)} is not a task of {tasks.name}"
    top = sorted({name.partition(".")[0] for name in known})
    inside = [name for name in known if section in SECTIONS and name.startswith(f"{section}.")]
    if inside:  # whole keys of one section are alike by the section's name alone
        leaves = {name.removeprefix(f"{section}."): name for name in inside}
        near = [leaves[leaf] for leaf in get_close_matches(last, leaves, n=1)]
    else:
        near = get_close_matches(key, known if section else known + top, n=1)
    if section + TASK not in SETTINGS:
        near += [name for name in known if name.rpartition(".")[2] == last]
    if near:
        return f"{fault}; did you mean '{near[0]}'?"
    return f"{fault}; known: {', '.join(inside or top)}"


def _twice(key: str, first: Any, second: Any) -> str:
    return f"'{key}' is given twice, as {show(first)} and as {show(second)}; keep one of them"


def _spread(key: str, general: Any, own: dict[str, Any], tasks: TaskSet) -> Any:
    """One value per task: its own, else the one for all."""
    if key == "pair.encoding":
        each = {task.name: own.get(task.name, general) for task in tasks if task.pair}
        same = len(set(each.values())) == 1
        return next(iter(each.values())) if same else each or general
    if not isinstance(general, tuple):
        general = (1.0 if general is None else general,) * len(tasks)
    return tuple(own.get(name, value) for name, value in zip(tasks.names, general, strict=True))


def _construct(section: Any, prefix: str, values: Mapping[str, Any]) -> Any:
    given = {}
    for item in fields(section):
        key = key_of(prefix, item.name)
        kind = item.default_factory if callable(item.default_factory) else type(item.default)
        if is_dataclass(kind):
            given[item.name] = _construct(kind, f"{key}.", values)
        elif key in values:
            given[item.name] = values[key]
    return section(**given)


if __name__ == "__main__":
    print("# Settings of a run\n")
    print("Dotted keys, used alike in YAML files, with `--set KEY=VALUE` and in a search space.")
    print("This page is made from the code: `python -m model.config.parse > docs/settings.md`.\n")
    print(describe_settings(), end="")
