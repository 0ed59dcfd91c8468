"""Whether a temperature before averaging helps an ensemble, on the dev answers that a run has kept.

On one half of dev each model gets the temperature with the lowest loss, task by task; the ensemble
is chosen there; the other half scores it. With and without, on the same halves.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from model.evaluation.predictions import Predictions
from model.evaluation.scores import Array
from tuner.runs.open import open_run
from tuner.scoring.crossfit import halve
from tuner.scoring.dev_rows import DevRows
from tuner.soup.combinations import DevScorer
from tuner.soup.methods import METHODS
from tuner.soup.several import RunModel, SeveralEvaluator, members_of

NAMES = ("mean", "greedy ensemble", "picked ensemble")
SPLITS = 20
TEMPERATURES = np.geomspace(0.25, 4, 33)
UNLIKELY = 1e-6


def bench_temperature(run: Path) -> int:
    opened = open_run(run.absolute(), lambda line: None)
    rows = DevRows(opened.tasks)
    members = members_of(opened, rows, None, [])
    sizes = {task: len(labels) for task, labels in rows.labels.items()}
    halves = halve(sizes, opened.tasks, SPLITS, 0)
    print(f"{len(members)} models, {SPLITS} halvings of {sum(sizes.values()):,} dev rows")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    warmth = []
    for number in range(2 * SPLITS):
        here, there = ({t: of[n] for t, of in halves.items()} for n in (number, number ^ 1))
        warmed = [tempered(member, rows.labels, here) for member in members]
        warmth += [value for _, values in warmed for value in values]
        plain = SeveralEvaluator(opened.tasks, members, rows)
        other = SeveralEvaluator(opened.tasks, [member for member, _ in warmed], rows)
        for name in NAMES:
            scores = []
            for evaluator in (plain, other):
                chosen = METHODS[name].choose(DevScorer(evaluator, opened.goal, here))
                scores.append(DevScorer(evaluator, opened.goal, there).score(chosen))
            found[name].append((scores[0], scores[1]))
    print(f"temperatures: {np.min(warmth):.2f} to {np.max(warmth):.2f}, mean {np.mean(warmth):.2f}")
    for name, pairs in found.items():
        without, with_it = np.array(pairs).reshape(SPLITS, 2, 2).mean(axis=1).T
        apart = with_it - without
        spread = apart.std(ddof=1)  # of halvings of the same rows: no standard error
        print(f"{name:16} {without.mean():.4f} cross-fitted, {apart.mean():+.4f} ({spread:.4f})")
    return 0


def tempered(
    member: RunModel, labels: dict[str, Array], rows: dict[str, Array]
) -> tuple[RunModel, list[float]]:
    answers, chosen = dict(member.answers), []
    for task, of in member.answers.items():
        if of.probabilities is not None:
            logits = np.log(np.clip(of.probabilities, UNLIKELY, None))
            some = rows[task] > 0
            truth = labels[task][some].astype(int)
            losses = [loss(logits[some] / value, truth) for value in TEMPERATURES]
            best = float(TEMPERATURES[int(np.argmin(losses))])
            answers[task] = Predictions(of.values, softmax(logits / best))
            chosen.append(best)
    return replace(member, answers=answers), chosen


def loss(logits: Array, truth: Array) -> float:
    return float(-np.log(softmax(logits)[np.arange(len(truth)), truth]).mean())


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
