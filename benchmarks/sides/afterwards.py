"""Whether answers are better for being mended afterwards, on the dev answers that a run has kept.

On one half of dev each model is mended, task by task: classes get the temperature with the lowest
loss, a binary task the threshold with the best score, a regression the monotone map with the least
squares. The method chooses there, too; the other half scores it. With and without, on the same
halves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import isotonic_regression

from model.evaluation.predictions import Predictions
from model.evaluation.scores import Array
from model.tasks.task_set import Task
from tuner.runs.open import open_run
from tuner.scoring.crossfit import halve
from tuner.scoring.dev_predictions import precision_of
from tuner.scoring.dev_rows import DevRows
from tuner.scoring.weighted import WEIGHTED
from tuner.soup.combinations import DevScorer
from tuner.soup.methods import METHODS
from tuner.soup.several import RunModel, SeveralEvaluator, members_of

NAMES = ("best single", "mean", "greedy ensemble", "picked ensemble")
SPLITS = 20
TEMPERATURES = np.geomspace(0.25, 4, 33)
THRESHOLDS = np.linspace(0.2, 0.8, 61)
UNLIKELY = 1e-6

# (task, its answers, all labels, the rows to learn from) -> the answers mended
Mend = Callable[[Task, Predictions, Array, Array], Predictions]


def bench_afterwards(run: Path) -> int:
    opened = open_run(run.absolute(), lambda line: None)
    rows = DevRows(opened.tasks)
    members = members_of(opened, rows, None, [])
    labels = rows.labels
    halves = halve({task: len(of) for task, of in labels.items()}, opened.tasks, SPLITS, 0)
    count = sum(len(of) for of in labels.values())
    print(f"{len(members)} models, {SPLITS} halvings of {count:,} dev rows")

    def scores(mend: Mend, name: str, number: int) -> float:
        here, there = ({t: of[n] for t, of in halves.items()} for n in (number, number ^ 1))

        def mended(member: RunModel) -> RunModel:
            answers = {
                task.name: mend(task, of, labels[task.name], here[task.name] > 0)
                for task in opened.tasks
                if (of := member.answers.get(task.name)) is not None
            }
            return replace(member, answers=answers)

        evaluator = SeveralEvaluator(opened.tasks, list(map(mended, members)), rows)
        chosen = METHODS[name].choose(DevScorer(evaluator, opened.goal, here))
        return DevScorer(evaluator, opened.goal, there).score(chosen)

    def halvings(mend: Mend, name: str) -> Array:
        found = [scores(mend, name, number) for number in range(2 * SPLITS)]
        return np.array(found).reshape(SPLITS, 2).mean(axis=1)

    for name in NAMES:
        plain = halvings(as_is, name)
        print(f"{name:16} {plain.mean():.4f} cross-fitted", end="")
        for told, mend in MENDS.items():
            apart = halvings(mend, name) - plain
            # The spread over halvings of the same rows: no standard error.
            print(f", {told} {apart.mean():+.4f} ({apart.std(ddof=1):.4f})", end="")
        print(flush=True)
    return 0


def as_is(task: Task, of: Predictions, labels: Array, some: Array) -> Predictions:
    return of


def temperature(task: Task, of: Predictions, labels: Array, some: Array) -> Predictions:
    if of.probabilities is None:
        return of
    logits = np.log(np.clip(of.probabilities, UNLIKELY, None))
    truth = labels[some].astype(int)
    losses = [loss(logits[some] / value, truth) for value in TEMPERATURES]
    best = TEMPERATURES[int(np.argmin(losses))]
    return Predictions(of.values, softmax(logits / best))


def threshold(task: Task, of: Predictions, labels: Array, some: Array) -> Predictions:
    """Moved to a half, so that means of models have it too."""
    if of.probabilities is None or of.probabilities.shape[1] != 2:
        return of
    kind = precision_of(task)
    said = (of.probabilities[some, 1] > THRESHOLDS[:, None]).astype(kind)
    whole = np.ones((1, said.shape[1]), kind)
    values = WEIGHTED[task.metric](labels[some].astype(kind), said, whole, whole)[:, 0]
    best = np.flatnonzero(values == values.max())
    at = THRESHOLDS[best[len(best) // 2]]  # the middle of those that are as good
    weighed = of.probabilities * np.array([at, 1 - at])
    likely = weighed / weighed.sum(axis=1, keepdims=True)
    return Predictions(likely.argmax(axis=1).astype(np.float64), likely)


def monotone(task: Task, of: Predictions, labels: Array, some: Array) -> Predictions:
    if of.probabilities is not None:
        return of
    known, place = np.unique(of.values[some], return_inverse=True)
    count = np.bincount(place)
    means = np.bincount(place, labels[some]) / count
    fitted = isotonic_regression(means, weights=count).x
    return Predictions(np.interp(of.values, known, fitted), None)


MENDS: dict[str, Mend] = {
    "temperature": temperature,
    "threshold": threshold,
    "monotone map": monotone,
}


def loss(logits: Array, truth: Array) -> float:
    return float(-np.log(softmax(logits)[np.arange(len(truth)), truth]).mean())


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
