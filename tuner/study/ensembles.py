"""Ensembles of a study's rows, as the papers made them: of so many models, by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from model.evaluation.predictions import Predictions
from model.evaluation.scores import Array, measure, overall_of
from model.tasks.task_set import Task, TaskSet
from tuner.scoring.ensemble import blend
from tuner.soup.greedy import ranked
from tuner.study.reader import OVERALL, Ensemble


@dataclass(frozen=True)
class StudyMember:
    name: str
    answers: Mapping[str, Predictions]  # of the tasks that it was trained on


@dataclass(frozen=True)
class BuiltEnsemble:
    answers: dict[str, Predictions]  # to every task
    weights: dict[str, dict[str, float]]  # by task, of its members by their names


def ensemble_of(
    how: Ensemble, members: Sequence[StudyMember], tasks: TaskSet, labels: Mapping[str, Array]
) -> BuiltEnsemble | None:
    """None where nobody answers a task.

    Chosen on the very rows that it is scored on, as the papers did: that flatters.
    """
    answers, weights = {}, {}
    for task in tasks:
        able = [m for m in members if task.name in m.answers]
        if how.by == OVERALL:  # only a model for all tasks has an overall score
            able = [m for m in able if all(name in m.answers for name in tasks.names)]
        if not able:
            return None
        scores = [_score(m, task, tasks, labels, how.by) for m in able]
        able = [able[place] for place in ranked(scores)]
        order = [member.answers[task.name] for member in able]
        chosen = _chosen(how, order, task, labels[task.name])
        answers[task.name] = _blend(how, order, chosen)
        counts = _weights(how, chosen, len(order))
        weights[task.name] = {able[n].name: count for n, count in zip(chosen, counts, strict=True)}
    return BuiltEnsemble(answers, weights)


def _score(
    member: StudyMember, task: Task, tasks: TaskSet, labels: Mapping[str, Array], by: str
) -> float:
    def value(of: Task) -> float:
        return measure(of.metric, labels[of.name], member.answers[of.name].values, of.classes)

    if by != OVERALL:
        return value(task)
    weights = [t.weight for t in tasks]
    return overall_of([t.metric for t in tasks], [value(t) for t in tasks], weights)


def _chosen(
    how: Ensemble, order: Sequence[Predictions], task: Task, labels: Array
) -> tuple[int, ...]:
    """Places in the order: the first so many, or those that help the mean.

    By votes none would: of two members with unequal weights the heavier one has all.
    """
    if not how.greedy:
        return tuple(range(min(how.models, len(order))))
    chosen: tuple[int, ...] = ()
    best = float("-inf")
    for place in range(len(order)):
        values = _blend(replace(how, rule="mean"), order, (*chosen, place)).values
        score = measure(task.metric, labels, values, task.classes)
        if score > best:
            chosen, best = (*chosen, place), score
        if len(chosen) == how.models:
            break
    return chosen


def _blend(how: Ensemble, order: Sequence[Predictions], chosen: Sequence[int]) -> Predictions:
    weights = _weights(how, chosen, len(order))
    return blend(how.rule, [order[place] for place in chosen], weights)


def _weights(how: Ensemble, chosen: Sequence[int], models: int) -> list[float]:
    return [float(models - place) if how.prior else 1.0 for place in chosen]
