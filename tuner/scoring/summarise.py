"""A search's summary, from the ledger's state and the dev predictions in the run's folder alone.

So it can be made again at any time, and of a search that is still going on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from model.common.errors import InputError
from model.evaluation.scores import LEVEL
from model.tasks.task_set import TaskSet
from tuner.runs.folder import JOURNAL, model_folder
from tuner.runs.state import DEFAULT, INFRASTRUCTURE, RunState, TrialState, objective_value
from tuner.scoring.crossfit import CrossFit, Difference, cross_fit, paired_differences
from tuner.scoring.dev_predictions import DevPredictions
from tuner.scoring.summary import Expected, Failures, Gain, Repeated, Spent, Summary, TrialRow

SHOWN = 8  # best trials in the table
# Evaluations that the choice is repeated among: the best of them. Enough for all of most searches,
# and few enough to be read and halved in seconds.
CANDIDATES = 400
Evaluation = Mapping[str, Any]


def summarise(
    state: RunState,
    folder: Path,
    tasks: TaskSet,
    *,
    seconds: float | None = None,
    expected: Expected | None = None,
    next_steps: Sequence[str] = (),
) -> Summary:
    """`seconds` is the wall time, where the caller knows it better than the ledger's clock."""
    ranked = state.ranked()
    default = default_of(state)
    lost = [trial for trial in state.trials.values() if trial.kind == INFRASTRUCTURE]
    lead, lead_at = _lead(state, folder, tasks)
    fitted, notes = _fitted(state, folder, tasks)
    gain = _gain(state, folder, tasks, fitted)
    return Summary(
        name=state.name,
        tasks=tasks.name,
        goal=state.goal,
        num_samples=state.num_samples,
        counts=state.outcomes(),
        trials=len(state.trials),
        failures=_failures(state.trials.values()),
        lost=[trial.id for trial in lost],
        examples=sum(trial.examples for trial in state.trials.values()),
        spent=_spent(state),
        evaluation_share=_evaluation_share(state),
        seconds=state.seconds if seconds is None else seconds,
        starts=state.starts,
        best=[_row(trial, state) for trial in ranked[:SHOWN]],
        default=None if default is None else _row(default, state),
        lead=lead,
        lead_at=lead_at,
        cross_fit=fitted,
        expected=expected,
        gain=gain,
        repeats=_repeated(state),
        front=_pareto(state, ranked),
        places=_found(state, folder, ranked),
        notes=notes,
        next_steps=list(next_steps),
    )


def choice_of(state: RunState, folder: Path, tasks: TaskSet) -> CrossFit | None:
    """The choice of the best trial, cross-fitted: one number for it, here and in the soup."""
    return _fitted(state, folder, tasks)[0]


def default_of(state: RunState) -> TrialState | None:
    """The longest run of the default configuration that was scored."""
    ranked = next(filter(state.is_default, state.ranked()), None)
    first = next((trial for trial in state.search_trials if trial.origin == DEFAULT), None)
    return ranked or (first if first is not None and first.evaluations else None)


def _chosen(trial: TrialState, state: RunState) -> Evaluation:
    evaluation = trial.chosen(state.objectives)
    assert evaluation is not None  # ranked trials have one
    return evaluation


def _row(trial: TrialState, state: RunState) -> TrialRow:
    evaluation = _chosen(trial, state)
    ends = evaluation.get("interval")
    return TrialRow(
        trial=trial.id,
        overall=float(evaluation["score"]),
        interval=(float(ends[0]), float(ends[1])) if ends else None,
        tasks={name: float(of["value"]) for name, of in evaluation.get("tasks", {}).items()},
        examples=int(evaluation["examples"]),
        origin=trial.origin,
        params=dict(trial.params),
    )


def _failures(trials: Iterable[TrialState]) -> list[Failures]:
    """Grouped by kind and reason, numbers in it aside; those of lost machines are told apart."""
    groups: dict[tuple[str, str], list[TrialState]] = {}
    for trial in trials:
        if trial.status == "failed" and trial.kind != INFRASTRUCTURE:
            key = (trial.kind or "", re.sub(r"\d+", "0", trial.reason))
            groups.setdefault(key, []).append(trial)
    found = [
        Failures(kind, alike[0].reason, tuple(trial.id for trial in alike))
        for (kind, _), alike in groups.items()
    ]
    return sorted(found, key=lambda failures: -len(failures.trials))


def _spent(state: RunState) -> list[Spent]:
    lengths = sorted({trial.length or trial.examples for trial in state.trials.values()})
    if not any(trial.length for trial in state.trials.values()):
        return []  # a run of before there were lengths
    alike = [[t for t in state.trials.values() if (t.length or t.examples) == n] for n in lengths]
    return [
        Spent(length, len(trials), sum(trial.examples for trial in trials))
        for length, trials in zip(lengths, alike, strict=True)
    ]


def _evaluation_share(state: RunState) -> float | None:
    evaluating = sum(event.get("evaluation_seconds", 0.0) for event in state.reports)
    last = [t.evaluations[-1] for t in state.trials.values() if t.evaluations]
    training = sum(float(entry.get("seconds") or 0.0) for entry in last)
    return evaluating / (evaluating + training) if evaluating and training else None


def _lead(
    state: RunState, folder: Path, tasks: TaskSet
) -> tuple[Difference | None, tuple[int, ...]]:
    """The best configuration against the default, both trained for the same, as long as can be."""
    best, default = state.best_trial(), default_of(state)
    if best is None or default is None or state.is_default(best):
        return None, ()
    pairs: list[tuple[tuple[TrialState, Evaluation], tuple[TrialState, Evaluation]]] = []
    for level in reversed(range(len(state.rungs))):
        if (ours := state.at_rung(best.configuration, level)) and (
            its := state.at_rung(default.configuration, level)
        ):
            pairs.append((ours, its))
    if default.status == "finished" and (not state.rungs or best.length == default.length):
        # From before trials had lengths, or as they are shown: the best of their seeds.
        pairs.insert(0, ((best, _chosen(best, state)), (default, _chosen(default, state))))
    for mine, theirs in pairs:
        both = [(trial.id, entry) for trial, entry in (mine, theirs) if "predictions" in entry]
        try:
            dev = DevPredictions.load(folder, both, tasks)
            lead = paired_differences(dev[0], dev[1], tasks).by(state.goal)
            return lead, (int(mine[1]["examples"]), int(theirs[1]["examples"]))
        except (InputError, IndexError):
            continue
    return None, ()


def _fitted(state: RunState, folder: Path, tasks: TaskSet) -> tuple[CrossFit | None, list[str]]:
    """The choice of the best repeated on halves of dev, and its lead over the default there.

    The choice is among evaluations, not trials: a trial is as good as its best evaluation, and
    that is chosen on dev as well. Only what was trained as long as the best takes part.
    """
    best, goal = state.best_trial(), state.goal
    if best is None:
        return None, []
    rivals = [trial for trial in state.ranked() if trial.length == best.length]
    every: list[tuple[str, Evaluation]] = [
        (trial.id, entry)
        for trial in rivals
        for entry in trial.evaluations
        if "predictions" in entry
    ]
    every.sort(key=lambda pair: -objective_value(pair[1], goal))
    pool, notes = every[:CANDIDATES], []
    if len(pool) < len(every):
        notes.append(f"(the choice is among the best {len(pool)} of {len(every)} evaluations)")
    default, against = next(filter(state.is_default, rivals), None), None
    if default is not None and default is not best:
        rival = (default.id, _chosen(default, state))
        if rival in every:
            pool += [] if rival in pool else [rival]
            against = pool.index(rival)
    if len(pool) < 2:
        return None, notes
    try:
        dev = DevPredictions.load(folder, pool, tasks)
        return cross_fit(dev, None, tasks, goal=goal, against=against), notes
    except InputError as error:
        return None, [*notes, f"no cross-fitted score: {error.faults[0]}"]


def _gain(state: RunState, folder: Path, tasks: TaskSet, fitted: CrossFit | None) -> Gain | None:
    """Among all that were trained as long as the default was, the longest of its runs first."""
    default = default_of(state)
    if default is None:
        return None
    if not state.rungs:  # from before trials had lengths: all of them were trained alike
        lead, ranked = fitted.lead if fitted else None, state.ranked()
        trained = tuple(int(_chosen(trial, state)["examples"]) for trial in ranked)
        return Gain(lead, len(ranked), trained) if lead else None
    for level in reversed(range(len(state.rungs))):
        found = {
            trial.id: (at[0].id, at[1])
            for trial in state.search_trials
            if (at := state.at_rung(trial.id, level)) and "predictions" in at[1]
        }
        if len(found) < 2 or default.configuration not in found:
            continue
        rival = found.pop(default.configuration)
        others = sorted(found.values(), key=lambda pair: -objective_value(pair[1], state.goal))
        pool = [rival, *others[: CANDIDATES - 1]]
        try:
            dev = DevPredictions.load(folder, pool, tasks)
        except InputError:
            continue
        lead = cross_fit(dev, None, tasks, goal=state.goal, against=0).lead
        trained = tuple(int(entry["examples"]) for _, entry in pool)
        return Gain(lead, len(found) + 1, trained) if lead else None
    return None


def _repeated(state: RunState) -> list[Repeated]:
    """Repeated trials, best first, and whether they differ from the first by more than noise.

    The run of the search is left out of the mean: it was chosen for its score, so its seed was
    a lucky one more often than not. Two or three seeds say little about the spread of one
    trial, but trials of one search spread alike, so it is pooled over all of them; a difference
    of two means is a tie if it is within its 95 % interval by Student's t. Pairing by seed
    would leave a single degree of freedom, for seeds that have little in common across settings.
    """
    goal = state.goal
    scores: dict[str, list[float]] = {}
    for repeat in state.repeats:
        if repeat.of is not None and repeat.status == "finished" and repeat.evaluations:
            value = objective_value(_chosen(repeat, state), goal)
            scores.setdefault(repeat.of, []).append(value)
    found = [
        Repeated(of, objective_value(_chosen(state.trials[of], state), goal), tuple(values))
        for of, values in scores.items()
        if of in state.trials and state.trials[of].evaluations
    ]
    found.sort(key=lambda repeated: -repeated.mean)
    freedom = sum(len(each.scores) - 1 for each in found)
    if freedom == 0:
        return found
    squares = sum((value - each.mean) ** 2 for each in found for value in each.scores)
    unit = float(student.ppf((1 + LEVEL) / 2, freedom)) * (squares / freedom) ** 0.5

    def ties(other: Repeated) -> bool:
        noise = unit * (1 / len(found[0].scores) + 1 / len(other.scores)) ** 0.5
        return bool(found[0].mean - other.mean <= noise)

    return found[:1] + [Repeated(r.trial, r.search, r.scores, ties(r)) for r in found[1:]]


def _pareto(state: RunState, ranked: Sequence[TrialState]) -> list[tuple[str, dict[str, float]]]:
    if len(state.objectives) < 2:
        return []
    values = {
        trial.id: [objective_value(_chosen(trial, state), goal) for goal in state.objectives]
        for trial in ranked
    }

    def beaten(mine: list[float]) -> bool:
        return any(
            other != mine and all(a >= b for a, b in zip(other, mine, strict=True))
            for other in values.values()
        )

    front = [(name, mine) for name, mine in values.items() if not beaten(mine)]
    front.sort(key=lambda pair: -pair[1][0])
    return [(name, dict(zip(state.objectives, mine, strict=True))) for name, mine in front]


def _found(state: RunState, folder: Path, ranked: Sequence[TrialState]) -> dict[str, Path]:
    """Where things are; only what is there."""
    places = {"run": folder}
    if ranked and "checkpoint" in (entry := _chosen(ranked[0], state)):
        places["best model"] = model_folder(folder, ranked[0].id, entry["checkpoint"])
    places["study"] = folder / JOURNAL
    return {what: path for what, path in places.items() if what == "run" or path.exists()}
