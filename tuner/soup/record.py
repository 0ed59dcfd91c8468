"""What is known of a run's soup: `<run>/soup/soup.json`, for who writes it and who reads it.

docs/soup.md says what the keys mean.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from model.cli.invocation import command
from model.common.errors import InputError
from model.common.untrusted import inside, read_json, shown
from model.evaluation.scores import Score
from tuner.scoring.crossfit import Difference

SOUP, SOUPS, SOUP_JSON = "soup", "soups", "soup.json"  # in the run's folder; the last in SOUP
CARD = "README.md"  # of a model's folder
FORMAT = 1


Heads = dict[str, str | dict[str, float]]  # by task an ingredient, or several with their weights


@dataclass(frozen=True)
class TaskScore(Score):
    metric: str


@dataclass(frozen=True)
class CrossFittedScore(Score):
    gap: float
    halvings: int


@dataclass(frozen=True)
class IngredientRecord:
    name: str  # <trial>/<checkpoint>
    trial: str
    checkpoint: str
    examples: int
    score: float  # by the goal
    tasks: dict[str, float]
    sha256: str


@dataclass(frozen=True)
class Skipped:
    name: str
    reason: str


@dataclass(frozen=True)
class StepRecord:
    """Of the greedy soup."""

    ingredient: str
    score: float  # with it
    best: float | None  # the mark it had to beat
    accepted: bool
    distance: float | None  # of the weights from the best's, as a share of their norm


@dataclass(frozen=True, kw_only=True)
class MethodRecord:
    name: str
    kind: str  # single, weights or predictions
    about: str
    members: list[str] | dict[str, list[str]]  # of all tasks, or by task
    weights: list[float] | dict[str, list[float]] | None  # in the same form; None: all the same
    heads: Heads | None  # by task whose head it is; None: as the other weights
    score: Score  # by the goal
    overall: Score
    tasks: dict[str, TaskScore]
    difference: Difference | None  # to the best single
    cross_fitted: CrossFittedScore | None
    models: int  # that have to run
    evaluations: float
    folder: str | None  # in the run's folder, as the next
    predictions: str | None

    @property
    def told(self) -> str:
        return f"the {self.name} ({self.models} model{'s' if self.models != 1 else ''})"


@dataclass(frozen=True, kw_only=True)
class SoupRecord:
    run: str
    tasks: str  # the task set's name
    task_set: str  # as `load_task_set` finds it
    time: float
    data: str  # fingerprint
    goal: str
    candidates: int
    ingredients: list[IngredientRecord]
    skipped: list[Skipped]
    groups: list[list[str]]  # who fits whom; the soup is made of the first
    steps: list[StepRecord]
    methods: list[MethodRecord]  # best first
    cautions: list[str]
    evaluations: float  # of dev, in all
    ran: float  # of these, when it was made last
    recommended: str
    recommendation: str
    seconds: float

    def __repr__(self) -> str:
        count = len(self.ingredients)
        return f"SoupRecord({self.run!r}: {count} ingredients; take the {self.recommended})"

    def method(self, name: str) -> MethodRecord | None:
        return next((each for each in self.methods if each.name == name), None)

    @property
    def single(self) -> str | None:
        """The trial whose model is recommended; None if several models or trials have a part."""
        method = self.method(self.recommended)
        if method is None or method.heads:
            return None
        members = method.members
        each = members.values() if isinstance(members, dict) else [members]
        trials = {name.partition("/")[0] for names in each for name in names}
        return trials.pop() if len(trials) == 1 else None

    @property
    def chosen(self) -> list[str]:
        """The checkpoints in the greedy soup."""
        return [step.ingredient for step in self.steps if step.accepted]

    def to_json(self) -> str:
        data = {"format": FORMAT, **asdict(self)}
        for method in data["methods"]:
            if (apart := method["difference"]) is not None:
                method["difference"] = {**apart._asdict(), "tie": apart.tie}
        return json.dumps(data, indent=1, allow_nan=False) + "\n"


def slug(name: str) -> str:
    """A method's name as that of a file."""
    return re.sub(r"\W+", "-", name).strip("-") or SOUP


def read_soup(run: Path) -> SoupRecord | None:
    """The soup of a run, or None if it has none. Raises InputError for one it cannot read."""
    path = run / SOUP / SOUP_JSON
    try:
        data = read_json(path)
    except FileNotFoundError:
        return None
    remedy = f"make it again with {command('soup')}"
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(str(path), [f"is not of format {FORMAT}; {remedy}"])
    try:
        record: SoupRecord = _typed(SoupRecord, data)
    except (KeyError, TypeError) as error:
        raise InputError(str(path), [f"lacks or garbles {error}; {remedy}"]) from None
    for method in record.methods:
        for place in (method.folder, method.predictions):
            if place is not None:
                inside(run, place)
    return record


def _typed(kind: Any, data: Any) -> Any:
    """JSON's data as a value of that type, key by key; KeyError or TypeError if it is none."""
    if isinstance(kind, UnionType):
        for option in get_args(kind):
            with suppress(KeyError, TypeError):
                return _typed(option, data)
    elif get_origin(kind) is list and isinstance(data, list):
        return [_typed(get_args(kind)[0], each) for each in data]
    elif get_origin(kind) is dict and isinstance(data, dict):
        return {key: _typed(get_args(kind)[1], each) for key, each in data.items()}
    elif kind in (str, int, bool, NoneType) and type(data) is kind:
        return data
    elif kind is float and type(data) in (int, float):
        return float(data)
    elif isinstance(data, dict) and hasattr(kind, "__annotations__"):  # one of the records above
        return kind(**{name: _typed(of, data[name]) for name, of in get_type_hints(kind).items()})
    raise TypeError(f"{shown(str(data))!r}")
