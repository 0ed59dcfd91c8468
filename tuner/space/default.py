"""The default configuration's own values, also where the space could not express them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.common.errors import InputError
from model.common.untrusted import read_json
from model.modules.encoder import ATTENTION_DROPOUT, HIDDEN_DROPOUT, place_of
from model.modules.encoder_defaults import file_of
from model.training.prepare import fill_in
from tuner.space.domains import Number, Parameter, is_number
from tuner.space.space import Space
from tuner.space.values import matches, meaning


def default_values(space: Space) -> dict[str, Any]:
    """What base alone gives for each parameter, also where the space could not express it."""
    try:
        config = fill_in(space.config({}))
    except InputError:  # then the default's trial fails as well, and says why
        return {}
    known = {**meaning(config, space.task_set)}
    for key, value in dropouts_of(config.encoder.name).items():
        known[key] = value if known.get(key) is None else known[key]
    values: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.active(values):
            values[parameter.key] = _default_value(parameter, known, space)
    return values


def dropouts_of(encoder: str) -> dict[str, float]:
    """What 'the encoder's own' dropout means, so far as its configuration says."""
    file = file_of(place_of(encoder), "config.json")
    try:
        config = read_json(file, links=True) if file else {}
    except (OSError, ValueError):
        return {}
    hidden, attention = (
        next((config[names[0]] for names in kinds if names[0] in config), None)
        for kinds in (HIDDEN_DROPOUT, ATTENTION_DROPOUT)
    )
    found: dict[str, Any] = {"encoder.dropout": hidden, "head.dropout": hidden}
    found["encoder.attention_dropout"] = attention
    return {key: value for key, value in found.items() if is_number(value)}


def _default_value(parameter: Parameter, known: Mapping[str, Any], space: Space) -> Any:
    key, domain = parameter.key, parameter.domain
    if not isinstance(domain, Number):
        for value in domain.values:
            if matches(key, value, known, space.task_set):
                return value
    each = [known.get(f"{key}.{task.name}") for task in space.task_set]
    return known.get(key) if None in each else each
