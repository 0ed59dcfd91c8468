"""The answer: who is best, how sure that is, and against what."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from model.evaluation.scores import Score
from model.modules.encoder_defaults import caution
from tuner.report.numbers import Estimate
from tuner.report.published import Published, published_for
from tuner.report.run import ReportedRun
from tuner.runs.folder import model_folder
from tuner.runs.state import DEFAULT, OVERALL, TrialState
from tuner.scoring.crossfit import Difference
from tuner.soup.record import MethodRecord

SINGLE, OTHER = "single", "other"
RUNNERS_UP = 5  # next best trials in the picture


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way of answering: a trial, a soup, an ensemble."""

    name: str
    kind: str  # single, weights, predictions or default
    about: str = ""
    score: Estimate  # by the goal
    overall: Estimate
    tasks: dict[str, Estimate]
    difference: Difference | None = None  # to the best single, on the same examples
    cross_fitted: Estimate | None = None
    gap: float | None = None
    models: int = 1
    folder: str | None = None
    recommended: bool = False

    def by(self, name: str) -> Estimate | None:
        """Its score in a task, or overall."""
        return self.tasks.get(name, self.overall if name == OVERALL else None)


@dataclass(frozen=True)
class BestAnswer:
    best: Contender | None  # the best trial
    contenders: list[Contender]  # best first, the default configuration last
    goal: str  # overall, or the task that the search was for
    metrics: dict[str, str]
    published: tuple[Published, ...]
    runners_up: list[Contender] = field(default_factory=list)  # next best trials
    cautions: list[str] = field(default_factory=list)

    @property
    def recommended(self) -> Contender | None:
        return next((each for each in self.contenders if each.recommended), self.best)


def collect_answer(run: ReportedRun) -> BestAnswer:
    ranked = run.state.ranked()
    best = _of_trial(run, ranked[0], SINGLE) if ranked else None
    contenders = _singles_and_soups(run, best)
    default = next(filter(run.state.is_default, ranked), None)
    if default is not None and default is not ranked[0]:
        contenders.append(_of_trial(run, default, DEFAULT))
    others = [trial for trial in ranked[1:] if trial is not default][:RUNNERS_UP]
    encoder = run.space.config(run.space.default_point()).encoder.name
    told = [caution(encoder, run.tasks), *(run.soup.cautions if run.soup else [])]
    return BestAnswer(
        best=best,
        contenders=contenders,
        goal=run.goal,
        metrics={task.name: task.metric for task in run.tasks},
        published=published_for(run.tasks.name),
        runners_up=[_of_trial(run, trial, OTHER) for trial in others],
        cautions=list(dict.fromkeys(line for line in told if line)),
    )


def _singles_and_soups(run: ReportedRun, best: Contender | None) -> list[Contender]:
    soup = run.soup
    if soup is None or not soup.methods:
        return [best] if best else []
    found = [_of_method(method, soup.recommended) for method in soup.methods]
    if best is not None and not any(each.kind == SINGLE for each in found):
        found.append(best)
    return found


def _of_trial(run: ReportedRun, trial: TrialState, kind: str) -> Contender:
    entry = trial.chosen(run.state.objectives)
    assert entry is not None  # it is ranked
    overall = Estimate.of(entry["score"], entry.get("interval"))
    tasks = {
        name: Estimate.of(of["value"], of.get("interval"))
        for name, of in entry.get("tasks", {}).items()
    }
    difference, fitted, gap = None, None, None
    lead, cross = run.summary.lead, run.summary.cross_fit
    best = run.state.best_trial()
    if kind == DEFAULT and lead and best and best.length == trial.length:  # the best's over it
        difference = Difference(-lead.value, -lead.high, -lead.low)
    if kind == SINGLE and cross is not None:
        fitted, gap = Estimate(cross.cross_fitted, cross.low, cross.high), cross.gap
    place = model_folder(Path(), trial.id, str(entry.get("checkpoint")))
    return Contender(
        name=NAMES[kind].format(trial.id),
        kind=kind,
        about=(
            "the default configuration, " if kind == SINGLE and run.state.is_default(trial) else ""
        )
        + f"after {int(entry['examples']):,} examples",
        score=tasks.get(run.goal, overall),
        overall=overall,
        tasks=tasks,
        difference=difference,
        cross_fitted=fitted,
        gap=gap,
        folder=place.as_posix() if (run.folder / place).is_dir() else None,
    )


NAMES = {SINGLE: "best trial ({})", DEFAULT: "default configuration ({})", OTHER: "{}"}


def _of_method(method: MethodRecord, recommended: str) -> Contender:
    fitted = method.cross_fitted
    return Contender(
        name=method.name,
        kind=method.kind,
        about=method.about,
        score=_estimate(method.score),
        overall=_estimate(method.overall),
        tasks={name: _estimate(of) for name, of in method.tasks.items()},
        difference=method.difference,
        cross_fitted=_estimate(fitted) if fitted else None,
        gap=fitted.gap if fitted else None,
        models=method.models,
        folder=method.folder,
        recommended=method.name == recommended,
    )


def _estimate(score: Score) -> Estimate:
    return Estimate(score.value, score.low, score.high)
