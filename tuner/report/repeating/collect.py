"""How to repeat a run: the command, the settings, and what it was made with."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Any

from model.cli.flags import flags_of
from model.cli.invocation import command_words
from model.common.files import to_yaml
from model.config.parse import assignment
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
    given = dict(vars(run.request))
    if run.state.planned and (stages := stages_in(run.state)):  # as much as the clock allowed
        given["budget_examples"] = replace(stages, distill=run.request.distill).cost()
        given |= {"finals": given["finals"] or stages.finals or None, "grace_examples": None}
    words = [
        word
        for name, flag in flags_of(SearchRequest).items()
        if given[name] != flag.default
        for word in flag.arguments(given[name])
    ]
    if run.name != run.space.name:
        words += ["--name", run.name]
    return folded_command(command_words("search"), words)


def train_command(run: ReportedRun, settings: dict[str, Any], seed: int) -> str:
    words = ["--tasks", run.space.tasks]
    if run.request.data:
        words += ["--data", run.request.data]
    for key, value in {**settings, "seed": seed}.items():
        words += ["--set", assignment(key, value)]
    return folded_command(command_words("train"), words)


def _budget(run: ReportedRun, trial: TrialState) -> dict[str, Any]:
    """What the search set for the trial, whatever the space says."""
    stages = stages_in(run.state)
    if stages is None:  # a run from before trials had lengths of their own
        most = run.request.max_examples or run.space.examples
        every = run.request.grace_examples or max(1, -(-most // EVALUATIONS))
        return {"budget.examples": most, "budget.epochs": None, "budget.eval_every": every}
    evaluations = run.request.evaluations
    return training_budget(trial, stages, run.space.base, len(run.tasks), evaluations)


def folded_command(start: list[str], words: list[str]) -> str:
    """To be copied: a flag a line once it is long."""
    if len(whole := shlex.join([*start, *words])) <= 88:
        return whole
    lines = [start]
    for word in words:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return " \\\n    ".join(map(shlex.join, lines))
