"""How to repeat a run: the command, the settings, and what it was made with."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from typing import Any

from model.common.files import to_yaml
from tuner.engine.job import EVALUATIONS, training_budget
from tuner.engine.stages import stages_in
from tuner.report.numbers import short_value
from tuner.report.run import ReportedRun
from tuner.runs.request import SearchRequest
from tuner.runs.state import TrialState


@dataclass(frozen=True)
class Repeating:
    search: str  # the command
    best: str  # the command that trains the best configuration alone
    space: str
    settings: list[tuple[str, str]]  # of the best trial, every one that the search decided
    fingerprints: list[tuple[str, str]]
    versions: list[tuple[str, str]]


def collect_repeating(run: ReportedRun) -> Repeating:
    best = run.state.best_trial()
    packages = run.fingerprints.get("packages") or {}
    settings = {**run.space.base, **(best.settings if best else {})}
    settings |= _budget(run, best) if best else {}
    return Repeating(
        search=search_command(run),
        best=train_command(run, settings, best.seed) if best else "",
        space=to_yaml(run.space.to_dict()),
        settings=[(key, short_value(value)) for key, value in sorted(settings.items())],
        fingerprints=[
            (name, str(value)) for name, value in run.fingerprints.items() if name != "packages"
        ],
        versions=[
            ("stockpot", run.version),
            *sorted((name, str(found)) for name, found in packages.items()),
        ],
    )


def search_command(run: ReportedRun) -> str:
    """As it would be typed: what is not the default, in the order of the help."""
    request, parts = run.request, ["python", "-m", "tuner.search"]
    usual = SearchRequest()
    for item in fields(SearchRequest):
        value, name = getattr(request, item.name), "--" + item.name.replace("_", "-")
        if value == getattr(usual, item.name):
            continue
        if item.name == "set":
            for key, each in value.items():
                parts += ["--set", assignment(key, each)]
        elif item.name == "early_stopping":
            parts.append("--no-early-stopping")
        elif item.name == "objectives":
            parts += [name, ",".join(value)]
        elif item.name == "confirm":
            parts += [name, "x".join(map(str, value))]
        else:
            parts += [name, f"{value:g}" if isinstance(value, float) else str(value)]
    if run.name != run.space.name:
        parts += ["--name", run.name]
    return folded_command(parts)


def train_command(run: ReportedRun, settings: dict[str, Any], seed: int) -> str:
    parts = ["python", "-m", "model.train", "--tasks", run.space.tasks]
    if run.request.data:
        parts += ["--data", run.request.data]
    for key, value in {**settings, "seed": seed}.items():
        parts += ["--set", assignment(key, value)]
    return folded_command(parts)


def _budget(run: ReportedRun, trial: TrialState) -> dict[str, Any]:
    """What the search set for the trial, whatever the space says."""
    stages = stages_in(run.state)
    if stages is None:  # a run from before trials had lengths of their own
        most = run.request.max_examples or run.space.examples
        every = run.request.grace_examples or max(1, -(-most // EVALUATIONS))
        return {"budget.examples": most, "budget.epochs": None, "budget.eval_every": every}
    return training_budget(trial, stages, run.space.base, len(run.tasks))


def assignment(key: str, value: Any) -> str:
    import yaml

    written = yaml.safe_dump(value, default_flow_style=True, width=10_000).strip()
    return f"{key}={written.removesuffix('...').strip()}"


def folded_command(parts: list[str]) -> str:
    """To be copied: a flag a line once it is long."""
    if len(whole := shlex.join(parts)) <= 88:
        return whole
    lines: list[list[str]] = [parts[:3]]
    for part in parts[3:]:  # which begins with a flag
        if part.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(part))
    return " \\\n    ".join(" ".join(line) for line in lines)
