"""Reading the parameters of a space file: their domains, and the order that conditions ask for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

from model.common.errors import suggest
from model.common.files import Document
from model.config.values import SECTIONS, SETTINGS, Misfit, find_setting, show
from model.tasks.task_set import TaskSet
from model.tasks.yaml_reader import as_number, by_line
from model.tasks.yaml_reader import plain_text as word
from tuner.space.conditions import read_condition
from tuner.space.domains import (
    OR,
    Choice,
    Condition,
    Domain,
    Fixed,
    Number,
    Outside,
    Parameter,
    number_text,
    value_text,
)
from tuner.space.placeholders import PLACEHOLDER, NoTask, expand, has_placeholder, keys_of
from tuner.space.values import fitted, to_plain, unknown, unsuited

KINDS = ("float", "int", "choice", "fixed")
WORDS = {*KINDS, "log", "step", "when"}
EXAMPLE = "{float: [low, high]}, {int: [low, high]}, {choice: [...]} or {fixed: value}"
# The search itself decides these in every trial.
TAKEN = re.compile(r"seed|budget\..*")
MOST_STEPS = 1_000_000
MOST_WHOLE = 2**53  # beyond it the samplers' floats skip whole numbers

Fault = Callable[..., None]


class SpaceReader:
    """A space file being read: its lines, its tasks where they are known, and its faults."""

    def __init__(self, document: Document, tasks: TaskSet | None = None) -> None:
        self.document = document
        self.tasks = tasks
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.written: dict[tuple[str, str], str] = {}  # section, key: the key with a placeholder
        self.specs: dict[str, Any] = {}  # of the parameters, by the keys of the tasks
        self.offered: dict[str, Parameter] = {}  # with values, too, that the task cannot have
        self.left_out: dict[str, str] = {}  # parameters, and why

    def fault(self, text: str, *key: str) -> None:
        self.faults.append(f"{self.place(*key)}{text}")

    def ordered(self) -> list[str]:
        """The faults by their lines; those of no line come last."""
        return by_line(dict.fromkeys(self.faults))  # a placeholder's are the same for every task

    def expand(self, section: str, entries: Mapping[Any, Any]) -> dict[str, Any]:
        """The entries by the keys of the tasks."""
        expanded = expand(entries, self.tasks, lambda text, key: self.fault(text, section, key))
        self.written |= {(section, own): key for own, key in expanded.written.items()}
        if self.tasks is not None:
            unused = [f"{key} stands for no task of {self.tasks.name}" for key in expanded.unused]
            self.notes += unused
        return expanded.entries

    def name(self, section: str, key: str) -> str:
        """The key as it is written in the file."""
        return self.written.get((section, key), key)

    def place(self, *key: str) -> str:
        """'line 7: ' of a key, whether it is written dotted or nested."""
        if len(key) > 1:
            key = (key[0], self.name(key[0], key[1]), *key[2:])
        wanted = ".".join(key)
        for path, line in self.document.lines.items():
            if ".".join(path) == wanted:
                return f"line {line}: "
        return self.document.at(*key)

    def fit(self, key: str, value: Any) -> Any:
        """The value as the run holds it; Misfit says why it cannot be."""
        if self.tasks is not None:
            # What a placeholder offers to a task that cannot have it, `_suited` leaves out.
            named = key == self.name("parameters", key)
            return fitted(key, value, self.tasks, suited=named)
        known = key in SETTINGS and not isinstance(value, Mapping)
        return to_plain(SETTINGS[key].fit(value)) if known else value


def read_parameters(
    reader: SpaceReader, written: Any, held: Mapping[str, Any]
) -> tuple[Parameter, ...]:
    """Each after those that its conditions refer to, else in the order of the file.

    `held` are the settings of every trial.
    """
    if not isinstance(written, Mapping) or not written:
        what = f"is {show(written)}" if written else "is missing or empty"
        reader.fault(f"'parameters' {what}; give each as KEY: {EXAMPLE}", "parameters")
        return ()
    reader.specs = reader.expand("parameters", written)
    found: dict[str, Parameter] = {}
    for key, spec in reader.specs.items():
        if (domain := _read_parameter(reader, key, spec)) is not None:
            reader.offered[key] = Parameter(key, domain)
            if (fitting := _suited(reader, key, domain, held)) is not None:
                found[key] = Parameter(key, fitting)
    if found and all(isinstance(each.domain, Fixed) for each in found.values()):
        reader.fault("every parameter is fixed; let at least one vary", "parameters")
    elif not found and not reader.faults and reader.tasks is not None:
        text = f"no parameter is for a task of {reader.tasks.name}"
        reader.fault(f"{text}; add one for all, such as optim.learning_rate", "parameters")
    for key, spec in reader.specs.items():
        if isinstance(spec, Mapping) and "when" in spec:  # of one without a domain too
            when = _read_when(reader, key, spec["when"])
            if key in found:
                found[key] = replace(found[key], when=when)
    return _ordered(reader, found)


def _suited(
    reader: SpaceReader, key: str, domain: Domain, held: Mapping[str, Any]
) -> Domain | None:
    """Without what a placeholder offers to a task that cannot have it: a cosine for classes."""
    if reader.tasks is None or key == reader.name("parameters", key) or isinstance(domain, Number):
        return domain
    reasons = [unsuited(key, value, held, reader.tasks) for value in domain.values]
    kept = tuple(value for value, why in zip(domain.values, reasons, strict=True) if not why)
    if not kept:
        reader.left_out[key] = f"{key} is not searched: {reasons[0]}"
        return None
    if len(kept) == len(domain.values):
        return domain
    for value, why in zip(domain.values, reasons, strict=True):
        reader.notes += [f"{key} is never {value_text(value)}: {why}"] if why else []
    return Fixed(kept[0]) if len(kept) == 1 and "when" not in reader.specs[key] else Choice(kept)


def _read_parameter(reader: SpaceReader, key: str, spec: Any) -> Domain | None:
    def fault(text: str, *inner: str) -> None:
        reader.fault(f"'{reader.name('parameters', key)}' {text}", "parameters", key, *inner)

    if reader.tasks and not find_setting(key, reader.tasks) and key not in SECTIONS:
        reader.fault(unknown(key, reader.tasks), "parameters", key)
    elif TAKEN.fullmatch(key):
        fault("is decided by the search itself; remove it")
    elif not isinstance(spec, Mapping):
        fault(f"must be {EXAMPLE}, but is {show(spec)}")
    elif key in SECTIONS and key not in SETTINGS and not WORDS.intersection(map(word, spec)):
        example = next(name for name in SETTINGS if name.startswith(f"{key}."))
        fault(f"is a section; write dotted keys, such as {example}: {{float: [low, high]}}")
    else:
        for name in map(word, spec):
            if name not in WORDS:
                fault(f"has '{name}', which no domain has; {suggest(name, WORDS)}", name)
        kinds = [kind for kind in KINDS if kind in spec]
        if len(kinds) == 1:
            return _read_domain(reader, key, kinds[0], spec, fault)
        what = f"has {' and '.join(kinds)}; keep one" if kinds else f"has no domain; give {EXAMPLE}"
        fault(what)
    return None


def _read_domain(
    reader: SpaceReader, key: str, kind: str, spec: Mapping[Any, Any], fault: Fault
) -> Domain | None:
    if kind in ("float", "int"):
        return _read_number(partial(reader.fit, key), kind == "int", spec, fault)
    for name in ("log", "step"):
        if name in spec:
            fault(f"has '{name}', which is for float and int; remove it", name)
    if kind == "choice":
        return _read_choice(partial(reader.fit, key), spec["choice"], fault)
    try:
        return Fixed(reader.fit(key, spec["fixed"]))
    except Misfit as misfit:
        fault(str(misfit), "fixed")
        return None


def _read_choice(fit: Callable[[Any], Any], offered: Any, fault: Fault) -> Choice | None:
    if not isinstance(offered, list) or not offered:
        what = "is empty" if offered == [] else f"is {show(offered)}"
        fault(f"has a choice that {what}; give a list of values", "choice")
        return None
    values: list[Any] = []
    sound = True
    for value in offered:
        try:
            fitting = fit(value)
        except NoTask:
            continue
        except Misfit as misfit:
            fault(f"has a choice that {misfit}", "choice")
            sound = False
            continue
        if fitting in values:
            if has_placeholder(value):  # the same names as another's, with these tasks
                continue
            fault(f"offers {show(value)} twice; keep one of them", "choice")
        values.append(fitting)
    if sound and not values:
        fault("offers lists of tasks alone, and there is none of these kinds; add null", "choice")
    return Choice(tuple(values)) if sound and values else None


def _read_number(
    fit: Callable[[Any], Any], whole: bool, spec: Mapping[Any, Any], fault: Fault
) -> Number | None:
    kind = "int" if whole else "float"
    log, step = spec.get("log", False), spec.get("step")
    ends = _read_ends(fit, whole, spec[kind], fault)
    if not isinstance(log, bool):
        fault(f"has log: {show(log)}; write true or false", "log")
        return None
    if ends is None:
        return None
    low, high = ends
    if low >= high:
        first, last = number_text(low), number_text(high)
        fault(f"goes from {first} to {last}; the first must be the smaller", kind)
    elif log and low <= 0:
        fault(f"has log: true and starts at {number_text(low)}; start above 0", kind)
    elif log and step is not None:
        fault("has both log and step; keep one of them", "step")
    elif step is not None and (text := _step_fault(low, high, step, whole)):
        fault(text, "step")
    else:
        step = step if step is None else int(step) if whole else float(step)
        domain = Number(low, high, log=log, step=step, whole=whole)
        try:
            # A setting of whole numbers fits the ends of a float range, and little between.
            fit(low + (step or (1 if whole else min(0.5, (high - low) / 2))))
            return domain
        except Misfit as misfit:
            fault(f"{misfit}; write int: [low, high], or offer a choice", kind)
    return None


def _read_ends(
    fit: Callable[[Any], Any], whole: bool, written: Any, fault: Fault
) -> tuple[float, float] | None:
    kind = "int" if whole else "float"
    if not isinstance(written, list) or len(written) != 2:
        fault(f"must have {kind}: [low, high], but has {show(written)}", kind)
        return None
    ends: list[float] = []
    for end in written:
        try:
            number = as_number(fit(end))
        except Misfit as misfit:
            fault(str(misfit), kind)
            continue
        if number is None:
            fault(f"has the end {show(end)}, which is not a number; offer it as a choice", kind)
        elif whole and (number != int(number) or abs(number) > MOST_WHOLE):
            fault(f"has the end {show(end)}, which is not a whole number, or too large", kind)
        else:
            ends.append(int(number) if whole else number)
    return (ends[0], ends[1]) if len(ends) == 2 else None


def _step_fault(low: float, high: float, step: Any, whole: bool) -> str | None:
    size = as_number(step)
    if size is None or size <= 0:
        return f"has step {show(step)}; it must be a number above 0"
    if whole and size != int(size):
        return f"has step {show(step)} between whole numbers; take a whole one"
    span = f"{number_text(low)} .. {number_text(high)}"
    if size > high - low:
        return f"has step {show(step)}, which is longer than {span}"
    if (high - low) / size > MOST_STEPS:
        return f"has step {show(step)}, which is too fine for {span}; leave it out"
    first, last, each = (Decimal(str(number)) for number in (low, high, size))
    if over := (last - first) % each:
        read = f"[{number_text(low)}, {number_text(float(last - over))}]"
        return f"has step {show(step)}, which does not divide {span}: it reaches {read}; write that"
    return None


def _read_when(reader: SpaceReader, key: str, written: Any) -> tuple[Condition, ...]:
    def fault(text: str, *inner: str) -> None:
        text = f"'{reader.name('parameters', key)}' {text}"
        reader.fault(text, "parameters", key, "when", *inner)

    conditions = []
    if key in reader.offered and isinstance(reader.offered[key].domain, Fixed):
        fault("is fixed and has 'when'; remove it, or offer a choice of that one value")
    elif not isinstance(written, Mapping) or not written:
        fault(f"has when: {show(written)}; write {{other.parameter: value}}")
    else:
        for other, value in written.items():
            name = word(other)
            try:
                keys = _keys_of_condition(reader, key, name)
                each = [_read_condition(reader, key, own, name, value) for own in keys]
            except Misfit as misfit:
                fault(str(misfit), name)
                continue
            if not keys and reader.tasks is not None:
                why = f"depends on {name}, which stands for no task of {reader.tasks.name}"
                reader.left_out[key] = f"{key} {why}, and is not searched"
            found = [condition for condition in each if condition is not None]
            if any((one.sign, one.values) != (found[0].sign, found[0].values) for one in found):
                fault(f"depends on '{name}', whose values differ in form; name one of them", name)
            elif found:
                all_keys = tuple(key for one in found for key in one.keys)
                conditions.append(replace(found[0], keys=all_keys))
    return tuple(conditions)


def _keys_of_condition(reader: SpaceReader, key: str, name: str) -> list[str]:
    """The parameters that it names, of which one has to meet it.

    The placeholder of the parameter's own key is the same task there.
    """
    task, placeholder = (each.rpartition(".")[2] for each in (key, reader.name("parameters", key)))
    keys = []
    for part in name.split(OR):
        stem, _, last = part.rpartition(".")
        same = task != placeholder == last
        try:
            keys += [f"{stem}.{task}"] if same else keys_of(part, reader.tasks)
        except Misfit as misfit:
            raise Misfit(f"depends on '{part}', which {misfit}") from None
    return keys


def _read_condition(
    reader: SpaceReader, key: str, other: str, name: str, value: Any
) -> Condition | None:
    """`name` is how the file has the other; None where that one has a fault itself."""
    if other == key:
        raise Misfit("depends on itself; remove that condition")
    if other not in reader.specs:
        if reader.tasks is None and PLACEHOLDER.search(other):
            return None
        names = {reader.name("parameters", each) for each in reader.specs}
        which = "which" if other == name else f"and '{other}'"
        raise Misfit(f"depends on '{name}', {which} is no parameter; {suggest(other, names)}")
    if other not in reader.offered or reader.tasks is None:
        return None
    try:
        return read_condition(reader.offered[other], value, reader.tasks)
    except (Misfit, Outside) as problem:
        raise Misfit(f"depends on '{name}' {problem}") from None


def _ordered(reader: SpaceReader, found: Mapping[str, Parameter]) -> tuple[Parameter, ...]:
    needs = {key: {k for c in p.when for k in c.keys if k in found} for key, p in found.items()}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        reader.fault(
            f"the conditions go round in a circle: {circle}", "parameters", error.args[1][0]
        )
        return tuple(found.values())
    order: dict[str, Parameter] = {}
    left = dict(found)
    while left:
        ready = next(key for key in left if needs[key] <= order.keys())
        order[ready] = left.pop(ready)
    return tuple(order.values())
