"""What a soup left behind in `<run>/soup/soup.json`, for those who only read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.errors import InputError
from tuner.crossfit import Difference

FILE = Path("soup") / "soup.json"
FORMAT = 1


@dataclass(frozen=True)
class Score:
    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Score:
        low, high = data.get("low"), data.get("high")
        if low is None or high is None:
            return cls(float(data["value"]))
        return cls(float(data["value"]), float(low), float(high))


@dataclass(frozen=True)
class Step:
    ingredient: str
    score: float
    best: float | None  # the mark it had to beat
    accepted: bool
    distance: float | None  # of the weights from the best's, as a share of their norm


@dataclass(frozen=True)
class Method:
    name: str
    kind: str  # single, weights or predictions
    about: str
    members: Any
    score: Score  # by the goal
    overall: Score | None
    tasks: dict[str, Score]
    difference: Difference | None  # to the best single
    cross_fitted: Score | None
    gap: float | None
    models: int
    folder: str | None
    predictions: str | None


@dataclass(frozen=True)
class Soup:
    candidates: int
    ingredients: list[dict[str, Any]]
    skipped: list[dict[str, Any]]
    groups: list[list[str]]
    steps: list[Step]
    methods: list[Method]
    recommended: str | None
    recommendation: str
    cautions: list[str] = field(default_factory=list)
    evaluations: float | None = None
    ran: float | None = None  # of these, when it was cooked last
    seconds: float | None = None

    @property
    def choice(self) -> Method | None:
        return next((each for each in self.methods if each.name == self.recommended), None)


def read_soup(folder: Path) -> Soup | None:
    """The soup of a run, or None if none was cooked. Raises InputError for one it cannot read."""
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(str(path), [f"cannot be read as JSON: {error}"]) from None
    remedy = "cook it again with python -m tuner.soup"
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(str(path), [f"is not of format {FORMAT}; {remedy}"])
    try:
        return _soup(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        fault = f"lacks or garbles {error}; {remedy}"
        raise InputError(str(path), [fault]) from None


def _soup(data: Mapping[str, Any]) -> Soup:
    steps = [
        Step(
            str(step["ingredient"]),
            float(step["score"]),
            _number(step.get("best")),
            bool(step["accepted"]),
            _number(step.get("distance")),
        )
        for step in data.get("steps") or []
    ]
    return Soup(
        candidates=int(data.get("candidates") or 0),
        ingredients=[dict(each) for each in data.get("ingredients") or []],
        skipped=[dict(each) for each in data.get("skipped") or []],
        groups=[list(each) for each in data.get("groups") or []],
        steps=steps,
        methods=[_method(each) for each in data.get("methods") or []],
        recommended=data.get("recommended"),
        recommendation=str(data.get("recommendation") or ""),
        cautions=[str(each) for each in data.get("cautions") or []],
        evaluations=_number(data.get("evaluations")),
        ran=_number(data.get("ran")),
        seconds=_number(data.get("seconds")),
    )


def _method(data: Mapping[str, Any]) -> Method:
    apart, fitted = data.get("difference"), data.get("cross_fitted")
    return Method(
        name=str(data["name"]),
        kind=str(data["kind"]),
        about=str(data.get("about") or ""),
        members=data.get("members") or [],
        score=Score.of(data["score"]),
        overall=Score.of(data["overall"]) if data.get("overall") else None,
        tasks={str(name): Score.of(each) for name, each in (data.get("tasks") or {}).items()},
        difference=None
        if not apart
        else Difference(float(apart["value"]), float(apart["low"]), float(apart["high"])),
        cross_fitted=Score.of(fitted) if fitted else None,
        gap=_number(fitted.get("gap")) if fitted else None,
        models=int(data.get("models") or 1),
        folder=data.get("folder"),
        predictions=data.get("predictions"),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
