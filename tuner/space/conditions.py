"""Reading a condition: what another parameter must be for this one to take part."""

from __future__ import annotations

import re
from typing import Any

import yaml

from model.common.errors import suggest
from model.common.typed import COMPARE
from model.config.values import Misfit, show
from model.tasks.task_set import TaskSet
from model.tasks.yaml_reader import as_number
from tuner.space.domains import Condition, Number, Outside, Parameter, is_number
from tuner.space.values import fitted, spread

COMPARISON = re.compile(r"\s*(>=|<=|!=|==?|>|<)\s*(.+)", re.DOTALL)


def read_condition(other: Parameter, written: Any, tasks: TaskSet) -> Condition:
    domain = other.domain
    sign, value = _split(written)
    if sign in COMPARE:
        if (number := as_number(value)) is None:
            raise Misfit(f"with {show(written)}, which does not compare with a number")
        value = int(number) if number == int(number) else number
        if not isinstance(domain, Number) and not any(map(is_number, domain.values)):
            raise Misfit(f"with {show(written)}, but it is no number; it is {domain}")
        if not domain.can(sign, value):
            raise Misfit(f"with {show(written)}, which can never hold; it is {domain}")
        return Condition((other.key,), sign, (value,))
    if isinstance(domain, Number) and not (domain.whole or domain.step):
        raise Misfit(f'being {show(value)}, which a range hardly ever is; write "> ..." or "< ..."')
    if sign == "!=":
        condition = Condition((other.key,), sign, (_expected(other, value, tasks),))
        if not domain.can(sign, condition.values[0]):
            raise Misfit(f"with {show(written)}, which can never hold; it is {domain}")
        return condition
    if isinstance(value, list) and value and not _is_one(other, value, tasks):
        return Condition((other.key,), "in", tuple(_expected(other, each, tasks) for each in value))
    return Condition((other.key,), "in", (_expected(other, value, tasks),))


def _split(written: Any) -> tuple[str, Any]:
    """The sign of a comparison and its value, read as YAML; "" and the value where it is none."""
    match = COMPARISON.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        return "", written
    try:
        value = yaml.safe_load(match[2])
    except Exception:  # besides its own errors PyYAML lets Key-, Index- and others pass
        raise Misfit(f'with {show(written)}, which cannot be read; write "> 0.1"') from None
    if isinstance(value, str):  # YAML takes 1e-5 for text
        try:
            value = float(value)
        except ValueError:
            pass
    return {"=": "", "==": ""}.get(match[1], match[1]), value


def _is_one(other: Parameter, value: list[Any], tasks: TaskSet) -> bool:
    """Whether a list is one value of a parameter whose values are lists."""
    try:
        in_domain(other, value, tasks)
    except (Misfit, Outside):
        return False
    return True


def _expected(other: Parameter, value: Any, tasks: TaskSet) -> Any:
    try:
        return in_domain(other, value, tasks)
    except (Misfit, Outside) as problem:
        near = ""
        if isinstance(value, str) and not isinstance(other.domain, Number):
            near = "; " + suggest(value, [v for v in other.domain.values if isinstance(v, str)])
        text = f"being {show(value)}, which can never hold: it {problem}"
        raise Misfit(text + near * isinstance(problem, Outside)) from None


def in_domain(parameter: Parameter, value: Any, tasks: TaskSet) -> Any:
    """The value in the form in which the domain holds it: 16 can stand for [16, 16, 16]."""
    domain = parameter.domain
    value = fitted(parameter.key, value, tasks)
    if isinstance(domain, Number):
        return domain.value(domain.label(value))
    if value not in domain.values:
        wanted = spread(parameter.key, value, tasks)
        for each in domain.values:
            if spread(parameter.key, each, tasks) == wanted:
                return each
    domain.label(value)  # tells what is wrong
    return value
