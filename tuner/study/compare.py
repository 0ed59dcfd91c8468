"""A study's numbers: ours with their intervals, the paper's beside them, and what is noise.

Two things make a score uncertain: which dev rows there are, and the seed. The first is a bootstrap
over the rows, paired between models. The second is the spread between seeds, taken together over
all rows of the table, as each has few. Both are in every interval; with one seed only the first is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from model.evaluation.scores import METRICS, Array
from model.tasks.task_set import TaskSet
from tuner.runs.state import OVERALL
from tuner.scoring.dev_rows import DevRows
from tuner.study.collect import Candidate, dev_predictions
from tuner.study.reader import Study

RESAMPLES = 300


@dataclass(frozen=True)
class ScoreCell:
    value: float  # the mean over the seeds
    half: float  # half its 95 % interval
    seeds: int


@dataclass(frozen=True)
class RowComparison:
    """A row against the row that the study compares with, by one score."""

    row: str
    goal: str
    paper: float | None  # the paper's difference
    noise: float  # what a difference of two single runs must exceed: 95 %
    ours: float
    half: float

    @property
    def paper_is_noise(self) -> bool:
        return self.paper is not None and abs(self.paper) <= self.noise

    @property
    def tie(self) -> bool:
        return abs(self.ours) <= self.half

    @property
    def verdict(self) -> str:
        if self.paper is None:
            return ""
        if self.paper_is_noise:
            return "the paper's is inside the noise"
        if self.tie:
            return "not seen here: a tie"
        return "agrees" if (self.paper > 0) == (self.ours > 0) else "the other way round"


@dataclass(frozen=True)
class Table:
    goals: tuple[str, ...]
    cells: dict[tuple[str, str], ScoreCell]  # by row and goal
    comparisons: list[RowComparison]
    seeds: int  # of the row that has most
    rows: dict[str, int]  # dev rows of each task


def compare(study: Study, tasks: TaskSet, found: Sequence[Candidate], rows: DevRows) -> Table:
    goals = tuple(g for g in (*tasks.names, OVERALL) if any(g in row.paper for row in study.rows))
    goals = goals or (*tasks.names, OVERALL)
    drawn = {goal: _drawn(goal, tasks, found, rows, study.dev_rows) for goal in goals}
    cells, comparisons = {}, []
    for goal, of in drawn.items():
        for row in study.rows:
            if row.label in of.by_row:
                cells[row.label, goal] = of.cell(row.label)
    first = study.against
    for row in study.rows:
        for goal, of in drawn.items():
            if row.label == first or not {row.label, first} <= of.by_row.keys():
                continue
            own, other = row.paper.get(goal), study.row(first).paper.get(goal)
            paper = None if own is None or other is None else own - other
            comparisons.append(of.compared(row.label, first, paper))
    seeds = max((cell.seeds for cell in cells.values()), default=0)
    counts = {name: len(of) for name, of in rows.labels.items()}
    return Table(goals, cells, comparisons, seeds, counts)


@dataclass(frozen=True)
class _Drawn:
    """One score of all candidates that have it: as it is, and in resamples of the dev rows."""

    goal: str
    by_row: dict[str, list[int]]
    values: Array  # [C]
    resampled: Array  # [C, R]
    shrink: float  # of the variance over rows, from so many rows as ours to the paper's

    @property
    def freedom(self) -> int:
        return sum(len(places) - 1 for places in self.by_row.values())

    @property
    def between(self) -> float:
        """The variance between seeds, of all rows together."""
        if not self.freedom:
            return 0.0
        apart = [((v := self.values[places]) - v.mean()) @ (v - v.mean()) for places in self._all]
        return float(sum(apart)) / self.freedom

    @property
    def _all(self) -> list[list[int]]:
        return list(self.by_row.values())

    @property
    def quantile(self) -> float:
        return float(student.ppf(0.975, self.freedom)) if self.freedom else 1.96

    def cell(self, row: str) -> ScoreCell:
        places = self.by_row[row]
        over_rows = float(self.resampled[places].mean(0).var())
        half = self.quantile * np.sqrt(over_rows + self.between / len(places))
        return ScoreCell(float(self.values[places].mean()), float(half), len(places))

    def compared(self, row: str, against: str, paper: float | None) -> RowComparison:
        a, b = self.by_row[row], self.by_row[against]
        ours = float(self.values[a].mean() - self.values[b].mean())
        apart = self.resampled[a].mean(0) - self.resampled[b].mean(0)
        seeds = self.between * (1 / len(a) + 1 / len(b))
        half = self.quantile * float(np.sqrt(apart.var() + seeds))
        pairs = [(self.resampled[i] - self.resampled[j]).var() for i in a for j in b]
        alone = float(np.mean(pairs)) * self.shrink + 2 * self.between
        return RowComparison(
            row, self.goal, paper, self.quantile * float(np.sqrt(alone)), ours, half
        )


def _drawn(
    goal: str,
    tasks: TaskSet,
    found: Sequence[Candidate],
    rows: DevRows,
    paper_rows: Mapping[str, int],
) -> _Drawn:
    """Candidates that lack a task have no overall score, but one of the tasks that they have."""
    wanted = tasks if goal == OVERALL else _only(tasks, goal)
    able = [one for one in found if all(name in one.answers for name in wanted.names)]
    by_row: dict[str, list[int]] = {}
    for place, one in enumerate(able):
        by_row.setdefault(one.row, []).append(place)
    if not able:
        return _Drawn(goal, {}, np.zeros(0), np.zeros((0, RESAMPLES)), 1.0)
    predictions = dev_predictions(able, wanted, rows.labels)
    values = predictions.grid(wanted).at(0).by(goal)
    resampled = predictions.resampled(wanted, RESAMPLES, 0)
    shrink = _shrink(wanted, resampled.tasks, rows.labels, paper_rows)
    return _Drawn(goal, by_row, values, resampled.by(goal), shrink)


def _only(tasks: TaskSet, name: str) -> TaskSet:
    return TaskSet(tasks.name, tasks.about, (tasks[name],), tasks.origin)


def _shrink(
    tasks: TaskSet,
    drawn: Mapping[str, Array],
    labels: Mapping[str, Array],
    paper_rows: Mapping[str, int],
) -> float:
    """Fewer dev rows than the paper's make more noise than it had: by how much, over all tasks."""
    before = after = 0.0
    for task in tasks:
        slope = float(np.diff(METRICS[task.metric].unit(np.array([0.0, 1.0])))[0])
        variance = float(drawn[task.name].var(axis=1).mean()) * (slope * task.weight) ** 2
        before += variance
        after += variance * min(1.0, len(labels[task.name]) / paper_rows.get(task.name, 1))
    return after / before if before else 1.0
