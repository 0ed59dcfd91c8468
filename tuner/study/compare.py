"""A study's numbers: ours with their intervals, the paper's beside them, and what is noise.

Two things make a score uncertain: which dev rows there are, and the seed. The first is a bootstrap
over the rows, paired between models. The second is the spread between seeds, taken together over
all rows of the table, as each has few. Both are in every interval; with one seed only the first is.

The paper's differences are judged by what is known of its own runs: its figures and its dev rows.
How far seeds are apart, and how alike two models answer, ours tell only where they were trained as
long as the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.stats import t as student

from model.evaluation.scores import METRICS, Array
from model.tasks.task_set import Task, TaskSet
from tuner.runs.state import OVERALL
from tuner.scoring.dev_rows import DevRows
from tuner.study.collect import Candidate, dev_predictions
from tuner.study.reader import Study

RESAMPLES = 300
WHOLE = 0.99  # of the paper's training: as long as it, but for rounding


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
    ours: float
    half: float
    paper: float | None = None  # the paper's difference
    noise: float | None = None  # what that must exceed, with one run of each: 95 %
    short: bool = False  # ours were not trained as long as the paper's

    @property
    def paper_is_noise(self) -> bool:
        return self.paper is not None and abs(self.paper) <= (self.noise or 0.0)

    @property
    def tie(self) -> bool:
        return abs(self.ours) <= self.half

    @property
    def verdict(self) -> str:
        """What ours says of the paper's; how much that says by itself, its noise tells."""
        if self.paper is None:
            return ""
        if self.tie:
            said = "a tie"
        elif self.paper == 0:
            said = "a tie in the paper only"
        else:
            said = "agrees" if self.paper * self.ours > 0 else "ours says the opposite"
        return f"{said}, of runs this short" if self.short else said


@dataclass(frozen=True)
class Table:
    goals: tuple[str, ...]
    cells: dict[tuple[str, str], ScoreCell]  # by row and goal
    comparisons: list[RowComparison]
    rows: dict[str, int]  # dev rows of each task


def scales(study: Study, found: Sequence[Candidate]) -> set[float]:
    """How long ours were trained, as shares of the paper's."""
    return {
        length / (study.row(one.row).length(task) or study.examples)
        for one in found
        for task, length in one.lengths.items()
    }


def compare(study: Study, tasks: TaskSet, found: Sequence[Candidate], rows: DevRows) -> Table:
    goals = tuple(g for g in (*tasks.names, OVERALL) if any(g in row.paper for row in study.rows))
    goals = goals or (*tasks.names, OVERALL)
    short = min(scales(study, found), default=1.0) < WHOLE
    drawn = {goal: _drawn(goal, tasks, found, rows) for goal in goals}
    cells, comparisons = {}, []
    for goal, of in drawn.items():
        for row in study.rows:
            if row.label in of.by_row:
                cells[row.label, goal] = of.cell(row.label)
    counts = {name: len(of) for name, of in rows.labels.items()}
    of_paper, first = counts | study.dev_rows, study.row(study.against)
    for row in study.rows:
        for goal, of in drawn.items():
            if row is first or not {row.label, first.label} <= of.by_row.keys():
                continue
            one = of.compared(row.label, first.label)
            if goal in row.paper and goal in first.paper:
                known = [variance_of_rows(goal, tasks, row.paper, of_paper)]
                known.append(variance_of_rows(goal, tasks, first.paper, of_paper))
                paper = row.paper[goal] - first.paper[goal]
                noise = of.noise(row.label, first.label, *known, short=short)
                one = replace(one, paper=paper, noise=noise, short=short)
            comparisons.append(one)
    return Table(goals, cells, comparisons, counts)


def variance_of_rows(
    goal: str, tasks: TaskSet, scores: Mapping[str, float], dev_rows: Mapping[str, int]
) -> float:
    """Of a score, by which dev rows there are: of a share of them, or of a correlation.

    Where a paper has the overall score alone, a task's is where it varies most.
    """
    if goal != OVERALL:
        return _variance(tasks[goal].metric, scores[goal], dev_rows[goal])
    parts = [task.weight**2 * _in_units(task, scores, dev_rows) for task in tasks]
    return sum(parts) / sum(task.weight for task in tasks) ** 2


def _in_units(task: Task, scores: Mapping[str, float], dev_rows: Mapping[str, int]) -> float:
    metric = METRICS[task.metric]
    slope = float(np.diff(metric.unit(np.array([0.0, 1.0])))[0])
    score = scores.get(task.name, 0.5 if metric.on_classes else 0.0)
    return slope**2 * _variance(task.metric, score, dev_rows[task.name])


def _variance(metric: str, score: float, rows: int) -> float:
    apart = score * (1 - score) if METRICS[metric].on_classes else (1 - score**2) ** 2
    return apart / rows


@dataclass(frozen=True)
class _Drawn:
    """One score of all candidates that have it: as it is, and in resamples of the dev rows."""

    goal: str
    by_row: dict[str, list[int]]
    values: Array  # [C]
    resampled: Array  # [C, R]

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

    def compared(self, row: str, against: str) -> RowComparison:
        a, b = self.by_row[row], self.by_row[against]
        ours = float(self.values[a].mean() - self.values[b].mean())
        apart = self.resampled[a].mean(0) - self.resampled[b].mean(0)
        seeds = self.between * (1 / len(a) + 1 / len(b))
        half = self.quantile * float(np.sqrt(apart.var() + seeds))
        return RowComparison(row, self.goal, ours, half)

    def noise(self, row: str, against: str, one: float, other: float, *, short: bool) -> float:
        """Half the 95 % interval of a difference of the paper's, whose dev rows give its two scores
        these variances. Short runs tell nothing of its seeds, nor how alike its models answer."""
        if short:
            return 1.96 * float(np.sqrt(one + other))
        alike = 2 * self._alike(row, against) * np.sqrt(one * other)
        return self.quantile * float(np.sqrt(max(0.0, one + other - alike) + 2 * self.between))

    def _alike(self, row: str, against: str) -> float:
        """The correlation of two single runs' scores over resamples of the same rows."""
        centred = self.resampled - self.resampled.mean(1, keepdims=True)
        sizes = np.sqrt((centred**2).sum(1))
        pairs = list(product(self.by_row[row], self.by_row[against]))
        found = [centred[i] @ centred[j] / max(sizes[i] * sizes[j], 1e-12) for i, j in pairs]
        return float(np.mean(found))


def _drawn(
    goal: str,
    tasks: TaskSet,
    found: Sequence[Candidate],
    rows: DevRows,
) -> _Drawn:
    """Candidates that lack a task have no overall score, but one of the tasks that they have."""
    wanted = tasks if goal == OVERALL else _only(tasks, goal)
    able = [one for one in found if all(name in one.answers for name in wanted.names)]
    by_row: dict[str, list[int]] = {}
    for place, one in enumerate(able):
        by_row.setdefault(one.row, []).append(place)
    if not able:
        return _Drawn(goal, {}, np.zeros(0), np.zeros((0, RESAMPLES)))
    predictions = dev_predictions(able, wanted, rows.labels)
    values = predictions.grid(wanted).at(0).by(goal)
    return _Drawn(goal, by_row, values, predictions.resampled(wanted, RESAMPLES, 0).by(goal))


def _only(tasks: TaskSet, name: str) -> TaskSet:
    return TaskSet(tasks.name, tasks.about, (tasks[name],), tasks.origin)
