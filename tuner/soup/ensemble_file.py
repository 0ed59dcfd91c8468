"""A set of models or an ensemble as a folder: `ensemble.json` says who answers which task.

{"format": 1, "method": "weighted mean", "tasks": "sample", "answers": {"sentiment":
    {"rule": "mean", "members": [{"model": "../../trials/...", "weight": 2}, ...]}, ...}}

Models are named by their way from the file's own folder, so a run can be moved as a whole.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.common.errors import InputError
from model.common.untrusted import inside, read_json
from model.evaluation.model_folder import SPEC
from tuner.runs.folder import LEDGER
from tuner.scoring.ensemble import RULES

ENSEMBLE = "ensemble.json"


@dataclass(frozen=True)
class EnsembleMember:
    """What answers one task: models with their weights, and how their answers become one."""

    rule: str
    models: tuple[Path, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class EnsembleSpec:
    method: str
    tasks: str  # the task set, as `load_task_set` finds it
    parts: dict[str, EnsembleMember]
    data: str | None = None  # where the tasks' files were, if the task set does not say it

    def write(self, folder: Path, place: Path) -> None:
        """Into `folder`, which will be at `place`."""
        answers = {
            task: {
                "rule": part.rule,
                "members": [
                    {"model": Path(os.path.relpath(model, place)).as_posix(), "weight": weight}
                    for model, weight in zip(part.models, part.weights, strict=True)
                ],
            }
            for task, part in self.parts.items()
        }
        data = {"format": 1, "method": self.method, "tasks": self.tasks, "answers": answers}
        if self.data is not None:
            data["data"] = self.data
        (folder / ENSEMBLE).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def read_ensemble(folder: Path) -> EnsembleSpec:
    path = folder / ENSEMBLE
    try:
        data = read_json(path)
    except FileNotFoundError:
        raise InputError(str(path), ["cannot be read as JSON: no such file"]) from None
    answers = data.get("answers") if isinstance(data, dict) else None
    if not isinstance(answers, dict) or not answers or data.get("format") != 1:
        raise InputError(
            str(path), ["is not an ensemble that this version knows; make the soup again"]
        )
    faults: list[str] = []
    parts = {str(task): _part(folder, str(task), part, faults) for task, part in answers.items()}
    if faults:
        raise InputError(str(path), faults)
    return EnsembleSpec(str(data.get("method", "")), str(data.get("tasks", "")), parts)


def place_of(folder: Path, model: str) -> Path:
    """Where a model is. A file of a run names places in the run only. One outside of any run was
    named by a person, who may have models anywhere; nothing but a model is read from there."""
    parents = folder.absolute().parents[:2]
    run = next((place for place in parents if (place / LEDGER).is_file()), None)
    return folder / model if run is None else inside(run, model, start=folder)


def _part(folder: Path, task: str, data: Any, faults: list[str]) -> EnsembleMember:
    data = data if isinstance(data, dict) else {}
    rule, members = data.get("rule"), data.get("members")
    if rule not in RULES:
        faults.append(f"{task}: rule is {rule!r}; known: {', '.join(RULES)}")
    if not isinstance(members, list) or not members:
        faults.append(f"{task}: has no members")
        members = []
    models, weights = [], []
    for member in members:
        member = member if isinstance(member, dict) else {}
        weight: Any = member.get("weight")
        try:
            model = place_of(folder, str(member.get("model")))
        except InputError as error:
            faults += [f"{task}: {fault}" for fault in error.faults]
            continue
        if not (model / SPEC).is_file():
            remedy = "the search may have removed it since; make the soup again"
            faults.append(f"{task}: no model in {member.get('model')}; {remedy}")
        numeric = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not numeric or not math.isfinite(weight) or weight <= 0:
            faults.append(f"{task}: weight is {weight!r}; it must be a number above 0")
            weight = 1.0
        models.append(model)
        weights.append(float(weight))
    return EnsembleMember(str(rule), tuple(models), tuple(weights))
