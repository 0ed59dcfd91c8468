"""A search space: what is tried, as Optuna sees it (params) and as a run does (settings).

`params` are flat, with labels for values that Optuna cannot hold; `settings` are what a run is
configured with, by dotted keys, and only what the space decides. `load_space` checks a file
whole before anything starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution

from model.common.errors import InputError, suggest
from model.config.parse import Layer, RunConfig, parse_layers
from model.config.values import Misfit
from model.tasks.task_set import TaskSet
from tuner.space.conditions import in_domain
from tuner.space.costs import expense, most_expensive
from tuner.space.domains import Fixed, Label, Number, Outside, Parameter, value_text
from tuner.space.reader import read_space
from tuner.space.values import matches, meaning

__all__ = ["Space", "load_space", "shipped_spaces"]

# Beside the package in a checkout, inside it when installed.
FOLDERS = (
    Path(__file__).parents[1] / "search_spaces",
    Path(__file__).parents[2] / "search_spaces",
)
LEFT_OUT = object()
DRAWS = 200
MOST_CONTRADICTIONS = 5


@dataclass(frozen=True)
class Space:
    name: str
    about: str
    tasks: str  # what `load_task_set` finds it by
    base: dict[str, Any]  # settings of every trial, by dotted keys
    parameters: tuple[Parameter, ...]  # each after those that its conditions name
    start_from: tuple[dict[str, Any], ...]  # settings, maybe partial
    task_set: TaskSet = field(repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False)  # what is not searched, and why
    budget: int | None = None  # examples of a whole search, unless another is asked for
    listed: bool = False  # nothing but the points of start_from is tried, nor is it the default

    def suggest(self, trial: optuna.Trial) -> dict[str, Any]:
        """Settings for a trial: Optuna is asked for every parameter that takes part."""
        return self._walk(lambda parameter: parameter.domain.suggest(trial, parameter.key))

    def draw(
        self, rng: np.random.Generator, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Settings drawn at random without Optuna; those given stay as they are."""

        def choose(parameter: Parameter) -> Any:
            drawn = parameter.domain.draw(rng)
            return (given or {}).get(parameter.key, drawn)

        return self._walk(choose)

    def every(
        self, rng: np.random.Generator, given: Mapping[str, Any] | None = None
    ) -> Iterator[dict[str, Any]]:
        """All points of the space, each once, in a random order; there may be no last one."""

        def beyond(place: int, point: dict[str, Any]) -> Iterator[dict[str, Any]]:
            if place == len(self.parameters):
                yield point
                return
            parameter = self.parameters[place]
            if not parameter.active(point):
                yield from beyond(place + 1, point)
                return
            held = given is not None and parameter.key in given
            values = [(given or {})[parameter.key]] if held else parameter.domain.every(rng)
            for value in values:
                yield from beyond(place + 1, {**point, parameter.key: value})

        return beyond(0, {})

    def settings(self, params: Mapping[str, Label]) -> dict[str, Any]:
        """Optuna's params as settings, the fixed ones with them."""
        known = {parameter.key for parameter in self.parameters}
        faults = [
            f"'{key}' is not one; {suggest(key, known)}" for key in params if key not in known
        ]
        result: dict[str, Any] = {}
        for parameter in self.parameters:
            if isinstance(parameter.domain, Fixed):
                result[parameter.key] = parameter.domain.only
            elif parameter.key in params:
                try:
                    result[parameter.key] = parameter.domain.value(params[parameter.key])
                except ValueError as problem:
                    faults.append(f"'{parameter.key}' {params[parameter.key]!r} {problem}")
        if faults:
            raise InputError(f"parameters of {self.name}", faults)
        return result

    def params(self, settings: Mapping[str, Any]) -> dict[str, Label]:
        """Settings as Optuna's params, for `enqueue_trial` and `create_trial`."""
        known = {parameter.key: parameter for parameter in self.parameters}
        result: dict[str, Label] = {}
        faults = []
        for key, value in settings.items():
            if key not in known:
                faults.append(f"'{key}' is not one; {suggest(key, known)}")
                continue
            try:
                label = known[key].domain.label(in_domain(known[key], value, self.task_set))
            except (Misfit, Outside) as problem:
                faults.append(f"'{key}' {value_text(value)} {problem}")
                continue
            if not isinstance(known[key].domain, Fixed):
                result[key] = label
        if faults:
            raise InputError(f"parameters of {self.name}", faults)
        return result

    def distributions(self, params: Mapping[str, Label]) -> dict[str, BaseDistribution]:
        """Of these params, for `optuna.trial.create_trial`."""
        return {
            parameter.key: parameter.domain.distribution()
            for parameter in self.parameters
            if parameter.key in params and not isinstance(parameter.domain, Fixed)
        }

    def missing(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """The parameters that take part at this point and are not in it."""
        return tuple(
            parameter.key
            for parameter in self.parameters
            if parameter.key not in settings and parameter.active(settings)
        )

    def config(
        self,
        settings: Mapping[str, Any],
        tasks: TaskSet | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> RunConfig:
        """The run of these settings; `extra` goes over all (budget, seed)."""
        # Where encoders are searched, the first is what the default configuration has.
        names = self._searched_encoders
        first = {"encoder.name": names[0]} if names else {}
        layers = [Layer(first), Layer(self.base, "base"), Layer(settings, "parameters")]
        layers.append(Layer(extra or {}))
        return parse_layers(layers, tasks or self.task_set)

    def default_point(self) -> dict[str, Any]:
        """What base alone gives, so far as the space can express it.

        A value outside its domain (smart.weight 0 where the range starts at 0.01) is left out,
        and `config` then takes it from base or the defaults. Of listed points it is the first.
        """
        if self.listed and self.start_from:
            return dict(self.start_from[0])
        known = meaning(self.config(self.fixed), self.task_set)

        def choose(parameter: Parameter) -> Any:
            domain = parameter.domain
            if isinstance(domain, Number):
                try:
                    return domain.value(domain.label(known.get(parameter.key)))
                except Outside:
                    return LEFT_OUT
            fits = [v for v in domain.values if matches(parameter.key, v, known, self.task_set)]
            return fits[0] if fits else LEFT_OUT

        return self._walk(choose)

    def default_params(self) -> tuple[dict[str, Label], dict[str, Any]]:
        """The default as Optuna's params, and those of its values that lie outside the space."""
        point = self.default_point()
        known = meaning(self.config(self.fixed), self.task_set)
        outside = {key: known[key] for key in self.missing(point) if key in known}
        return self.params(point), outside

    def start_params(self) -> list[dict[str, Label]]:
        """Points to begin with, for `study.enqueue_trial`: the default, if the space holds all of
        it, and the start points of the file. What these leave open, the sampler decides."""
        default = self.default_point()
        points = ([] if self.missing(default) else [default]) + list(self.start_from)
        found = [self.params(point) for point in points]
        return [each for n, each in enumerate(found) if each and each not in found[:n]]

    @property
    def encoders(self) -> tuple[str, ...]:
        """The one of all trials, or those that the search chooses from."""
        return self._searched_encoders or (self.config(self.default_point()).encoder.name,)

    @property
    def _searched_encoders(self) -> tuple[str, ...]:
        for parameter in self.parameters:
            if parameter.key == "encoder.name":
                return tuple(getattr(parameter.domain, "values", ()))
        return ()

    @property
    def examples(self) -> int:
        """A trial's whole training: what base says; else three passes over a middling task set."""
        return self.config(self.default_point()).budget.examples or 30_000

    def most_expensive(self) -> dict[str, Any]:
        """The point that costs most memory, and most time where memory is the same."""
        if self.listed and self.start_from:
            return dict(max(self.start_from, key=lambda point: expense({**self.base, **point})))
        return self._walk(most_expensive)

    def table(self) -> str:
        """The space for a person to read, a line for each parameter."""
        rows = [("parameter", "values", "scale", "takes part when", "starts from")]
        for parameter in self.parameters:
            starts = [point[parameter.key] for point in self.start_from if parameter.key in point]
            texts = dict.fromkeys(map(value_text, starts))
            when = " and ".join(map(str, parameter.when))
            domain = parameter.domain
            rows.append((parameter.key, str(domain), domain.scale, when, ", ".join(texts)))
        widths = [min(60, max(len(row[column]) for row in rows)) for column in range(5)]
        lines = []
        for row in rows:
            cells = [text if len(text) <= 60 else f"{text[:57]}..." for text in row]
            line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            lines.append(line.rstrip())
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As a space file has it: written out and loaded again it is the same space."""
        return {
            "about": self.about,
            "tasks": self.tasks,
            **({"budget": self.budget} if self.budget else {}),
            **({"listed": True} if self.listed else {}),
            "base": dict(self.base),
            "parameters": {parameter.key: parameter.written for parameter in self.parameters},
            "start_from": [dict(point) for point in self.start_from],
        }

    @property
    def fixed(self) -> dict[str, Any]:
        return {p.key: p.domain.only for p in self.parameters if isinstance(p.domain, Fixed)}

    def _walk(self, choose: Callable[[Parameter], Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.active(values) and (value := choose(parameter)) is not LEFT_OUT:
                values[parameter.key] = value
        return values


def shipped_spaces() -> dict[str, Path]:
    return {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))}


def load_space(
    name_or_path: str | Path,
    tasks: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Space:
    """A space by its shipped name, or from a YAML file, checked whole.

    `tasks` is a task set to take instead of the file's own. `overrides` are settings that hold
    in every trial: parameters of the same name are not searched any more (see `notes`).

    >>> settings = load_space("default").suggest(trial)  # in an objective of Optuna's
    """
    name_or_path, shipped = str(name_or_path), shipped_spaces()
    if name_or_path in shipped:
        path = shipped[name_or_path]
    elif re.search(r"\.ya?ml$|[/\\]", name_or_path):
        path = Path(name_or_path)
    else:
        fault = f"'{name_or_path}' is neither a .yaml file nor a space that comes with the package"
        raise InputError("search space", [f"{fault}; {suggest(name_or_path, shipped)}"])
    try:
        draft = read_space(path, None if tasks is None else str(tasks), overrides or {})
    except RecursionError:
        raise InputError(str(path), ["is nested too deeply; is an alias part of itself?"]) from None
    space = Space(
        name=path.stem,
        about=draft.about,
        tasks=draft.tasks.origin,
        base=draft.base,
        parameters=draft.parameters,
        start_from=draft.start_from,
        task_set=draft.tasks,
        notes=draft.notes,
        budget=draft.budget,
        listed=draft.listed,
    )
    if faults := contradictions(space, draft.reader.place):
        raise InputError(str(path), faults)
    return space


def contradictions(space: Space, place: Callable[..., str]) -> list[str]:
    """Settings that do not go together, found at random points, the start and the default."""
    rng = np.random.default_rng(0)
    points = [(space.draw(rng, p), f"start_from {n}") for n, p in enumerate(space.start_from, 1)]
    if not (space.listed and points):
        points = [(space.fixed, "the default"), *points]
        points += [(space.draw(rng), "") for _ in range(DRAWS)]
    found: dict[frozenset[str], str] = {}
    for point, name in points:
        for fault in _faults(space, point):
            cause = {
                key: value
                for key, value in point.items()
                if fault not in _faults(space, {k: v for k, v in point.items() if k != key})
            }
            if frozenset(cause) not in found:
                values = " and ".join(f"{key} {value_text(value)}" for key, value in cause.items())
                where = place("parameters", *list(cause)[-1:]) if cause else place("base")
                before = f"{values or name or 'base'} cannot be"
                remedy = "; 'when' can keep them apart" if len(cause) > 1 else ""
                found[frozenset(cause)] = f"{where}{before}: {fault}{remedy}"
            if len(found) == MOST_CONTRADICTIONS:
                return list(found.values())
    return list(found.values())


def _faults(space: Space, point: Mapping[str, Any]) -> list[str]:
    try:
        space.config(point)
    except InputError as error:
        return [re.sub(r"^(base|parameters|settings): ", "", fault) for fault in error.faults]
    return []
