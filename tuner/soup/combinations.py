"""What can answer a task: a model, an average of models' weights, or a blend of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from model.evaluation.predictions import Predictions
from model.evaluation.scores import Array
from model.tasks.task_set import TaskSet
from tuner.scoring.dev_predictions import Answers, DevPredictions, Grid, precision_of
from tuner.soup.greedy import ranked

WEIGHTS, STOCK, MEAN, VOTE = "weights", "stock", "mean", "vote"
AVERAGES = (WEIGHTS, STOCK)  # of weights, which answer as one model


@dataclass(frozen=True)
class Combination:
    """Ingredients by number, in order, with weights. Made by `combine`, so equals are equal."""

    rule: str  # WEIGHTS are averaged, STOCK also with the start; answers blended by MEAN or VOTE
    members: tuple[int, ...]
    weights: tuple[float, ...]
    head: Combination | None = None  # of the head and PALs on the averaged trunk; None: the same

    @property
    def must_run(self) -> bool:
        """True for an average, whose answers nobody kept."""
        return self.rule in AVERAGES and self.single is None

    @property
    def single(self) -> int | None:
        """The ingredient, if it is one as it is."""
        return self.members[0] if len(self.members) == 1 and self.head is None else None


TaskCombinations = dict[str, Combination]  # what answers each task


def combine(
    rule: str,
    members: Sequence[int],
    weights: Sequence[float] | None = None,
    head: Combination | None = None,
) -> Combination:
    given = [1.0] * len(members) if weights is None else weights
    pairs = sorted(zip(members, given, strict=True))
    if len(members) == 1:
        rule, pairs = WEIGHTS, [(members[0], 1.0)]
    made = Combination(rule, tuple(m for m, _ in pairs), tuple(float(w) for _, w in pairs))
    return made if head in (None, made) else replace(made, head=head)


def single(member: int) -> Combination:
    return combine(WEIGHTS, [member])


class DevEvaluator(Protocol):
    """Gives a combination's answers to a task's dev rows."""

    tasks: TaskSet
    labels: Mapping[str, Array]
    group: Sequence[int]  # ingredients whose weights can be averaged
    members: Sequence[int]  # all ingredients
    singles: Sequence[int]  # of these, what the best single may be
    distilled: int | None  # what they taught, if anything
    trials: Sequence[str]  # whose checkpoint each ingredient is
    at_once: int  # answers that can be asked for side by side
    wanted: set[tuple[str, Combination]]  # averages that had to be run, or would have had to be

    def answer(self, combinations: Mapping[str, Combination]) -> dict[str, Predictions]: ...

    def able(self, task: str) -> Sequence[int]:
        """Of the members, those that have the task."""
        ...

    def cost(self, wanted: set[tuple[str, Combination]]) -> float: ...


class DevScorer:
    """Scores combinations on some of the dev rows: those with weight 1 in `rows`; all if None."""

    def __init__(
        self, evaluator: DevEvaluator, goal: str, rows: Mapping[str, Array] | None = None
    ) -> None:
        self.evaluator, self.goal, self.tasks = evaluator, goal, evaluator.tasks
        self.rows = None if rows is None else {name: of[None] for name, of in rows.items()}
        self._values: dict[tuple[str, Combination], float] = {}

    def alone(self) -> DevScorer:
        """The same for a thread of its own."""
        rows = None if self.rows is None else {name: of[0] for name, of in self.rows.items()}
        return DevScorer(self.evaluator, self.goal, rows)

    def task(self, name: str, of: Combination) -> float:
        """The task's own metric."""
        return self._task_values({name: of})[name]

    def score(self, of: Combination | TaskCombinations) -> float:
        """By the run's goal; one combination may answer all tasks."""
        combinations = of if isinstance(of, dict) else dict.fromkeys(self.tasks.names, of)
        values = {name: np.array(value) for name, value in self._task_values(combinations).items()}
        return float(Grid.of(values, self.tasks).by(self.goal))

    def order(self, members: Sequence[int], task: str | None = None) -> list[int]:
        """Ingredients best first, overall or by a task; of equals the one with the lower number."""
        members = sorted(members)
        alone = [single(member) for member in members]
        scores = [self.task(task, one) if task else self.score(one) for one in alone]
        return [members[place] for place in ranked(scores)]

    def _task_values(self, combinations: Mapping[str, Combination]) -> dict[str, float]:
        # Noted also where the answer is known: it tells what a method would cost on its own.
        self.evaluator.wanted.update(pair for pair in combinations.items() if pair[1].must_run)
        missing = {name: of for name, of in combinations.items() if (name, of) not in self._values}
        if missing:
            for name, predictions in self.evaluator.answer(missing).items():
                task, labels = self.tasks[name], self.evaluator.labels[name]
                kind = precision_of(task)
                answers = Answers(labels.astype(kind), predictions.values[None].astype(kind))
                rows = np.ones((1, len(labels))) if self.rows is None else self.rows[name]
                value = float(answers.values(task, rows)[0, 0])
                self._values[name, missing[name]] = value
        return {name: self._values[name, of] for name, of in combinations.items()}


def predictions_of(
    evaluator: DevEvaluator, choices: Sequence[TaskCombinations], name: str
) -> DevPredictions:
    """What the combinations answer, as candidates of that name to be compared row by row."""
    predictions = [evaluator.answer(combinations) for combinations in choices]
    answers = {}
    for task in evaluator.tasks:
        kind = precision_of(task)
        values = np.stack([each[task.name].values.astype(kind) for each in predictions])
        answers[task.name] = Answers(evaluator.labels[task.name].astype(kind), values)
    return DevPredictions([name] * len(choices), answers)
