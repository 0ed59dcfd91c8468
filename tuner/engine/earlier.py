"""What earlier runs know of this one: points to start from, and results to learn from.

A run over other tasks speaks of those here that are of the same kind and metric.
Its results are written into the ledger, so a search follows from its ledger alone, whatever
becomes of the earlier runs. How much they count is learned: `tuner.engine.surrogate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from model.common.errors import InputError
from model.modules.encoder_defaults import encoder_defaults
from model.tasks.task_set import Task, TaskSet
from tuner.engine.points import RATE, Points
from tuner.engine.results import Settings, full_length, observations, settings_of
from tuner.engine.surrogate import Observed
from tuner.runs.open import FinishedRun
from tuner.runs.state import EARLIER, START, RunState

STARTS = 2  # of each earlier run: its best configurations
SEVERAL = 5  # configurations, of which one is left to the sampler


def knowledge_of(run: FinishedRun, points: Points) -> dict[str, Any]:
    """The fields of a ledger's event. Raises InputError for a run that knows nothing of use."""
    theirs, full = Points(run.space), full_length(run.state)
    tasks = {ours.name: it.name for ours in points.space.task_set if (it := alike(ours, run.tasks))}
    seen = list(observations(run.state, theirs, full))
    if not seen or not tasks:
        why = "has no results" if not seen else "has no task like one of these"
        raise InputError("--warm-start", [f"{run.folder} {why}; leave it out"])
    faster = rate_of(points) / rate_of(theirs)

    def here(configuration: str) -> Settings:
        settings = settings_of(run.state, theirs, configuration)
        return translated(settings, tasks, run.tasks, faster)

    results = [
        {
            "settings": here(name),
            "share": each.share,
            "values": {ours: each.values[it] for ours, it in tasks.items()},
            "variances": {ours: each.variances[it] for ours, it in tasks.items()},
        }
        for name, each in seen
    ]
    best = list(dict.fromkeys(trial.configuration for trial in run.state.ranked()))
    own = [name for name in best if not run.state.is_default(run.state.trials[name])]
    starts = [points.nearest(here(name)) for name in own[:STARTS]]
    return {"name": run.name, "from_tasks": tasks, "starts": starts, "results": results}


def from_earlier(state: RunState, points: Points) -> list[list[Observed]]:
    """The results of each earlier run that the ledger has."""
    return [
        [
            Observed(
                points.encode(each["settings"]), each["share"], each["values"], each["variances"]
            )
            for each in event["results"]
        ]
        for event in state.earlier
    ]


def starts_of(state: RunState) -> list[Settings]:
    """The best of each run, then the second of each."""
    rounds = zip_longest(*(event["starts"] for event in state.earlier))
    return [dict(point) for each in rounds for point in each if point is not None]


def known_point(
    state: RunState, own: Sequence[Mapping[str, Any]], number: int
) -> tuple[Mapping[str, Any] | None, str]:
    """The start point that comes as this number, and its origin; None: the sampler's turn.

    The space's own first, and of three configurations one at most is of an earlier run: its tasks
    may have been others. Where there are several configurations, the last one is the sampler's.
    """
    if state.earlier and state.num_samples >= SEVERAL and state.missing == 1:
        return None, START
    theirs = starts_of(state)
    turn, place = divmod(number + (not own), 3)
    if place == 1 and turn < len(theirs):
        return theirs[turn], EARLIER
    before = min(len(theirs), (number + 1 + (not own)) // 3)  # of earlier runs
    return (own[number - before] if number - before < len(own) else None), START


def alike(task: Task, others: TaskSet) -> Task | None:
    """The other set's task of the same kind and metric: of the same name, or else the first."""
    form = (task.kind, task.pair, task.metric)
    same = [each for each in others if (each.kind, each.pair, each.metric) == form]
    return min(same, key=lambda each: each.name != task.name, default=None)


def translated(
    settings: Mapping[str, Any], tasks: Mapping[str, str], others: TaskSet, faster: float
) -> Settings:
    """Settings of the other run by the names of the tasks here, at this encoder's rates."""
    found: Settings = {}
    for key, value in settings.items():
        section, _, last = key.rpartition(".")
        if isinstance(value, list) and all(each in others.names for each in value):
            value = [ours for each in value for ours, it in tasks.items() if it == each]
        if last in others.names:
            found |= {f"{section}.{ours}": value for ours, it in tasks.items() if it == last}
        else:
            found[key] = value * faster if key == RATE and value is not None else value
    return found


def rate_of(points: Points) -> float:
    config = points.space.config(points.space.fixed)
    return encoder_defaults(config.encoder.name).learning_rate
