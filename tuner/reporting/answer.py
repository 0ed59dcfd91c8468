"""The answer: who is best, how sure that is, and against what."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from model.suits import caution
from tuner.crossfit import Difference
from tuner.dev_predictions import OVERALL
from tuner.reporting.published import Published, published_for
from tuner.reporting.run import Run
from tuner.reporting.soup_file import Method, Score
from tuner.run_state import TrialState
from tuner.summary import DEFAULT

SINGLE, OTHER = "single", "other"
RUNNERS_UP = 5  # next best trials in the picture


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way of answering: a trial, a soup, an ensemble."""

    name: str
    kind: str  # single, weights, predictions or default
    about: str = ""
    score: Score  # by the goal
    overall: Score | None
    tasks: dict[str, Score]
    difference: Difference | None = None  # to the best single, on the same examples
    cross_fitted: Score | None = None
    gap: float | None = None
    models: int = 1
    folder: str | None = None
    recommended: bool = False

    def by(self, name: str) -> Score | None:
        """Its score in a task, or overall."""
        return self.tasks.get(name, self.overall if name == OVERALL else None)


@dataclass(frozen=True)
class Answer:
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


def collect_answer(run: Run) -> Answer:
    ranked = run.state.ranked()
    best = _of_trial(run, ranked[0], SINGLE) if ranked else None
    contenders = _singles_and_soups(run, best)
    default = next((trial for trial in ranked if trial.origin == DEFAULT), None)
    if default is not None and default is not ranked[0]:
        contenders.append(_of_trial(run, default, DEFAULT))
    others = [trial for trial in ranked[1:] if trial is not default][:RUNNERS_UP]
    encoder = run.space.config(run.space.default_point()).encoder.name
    told = [caution(encoder, run.tasks), *(run.soup.cautions if run.soup else [])]
    return Answer(
        best=best,
        contenders=contenders,
        goal=run.goal,
        metrics={task.name: task.metric for task in run.tasks},
        published=published_for(run.tasks.name),
        runners_up=[_of_trial(run, trial, OTHER) for trial in others],
        cautions=list(dict.fromkeys(line for line in told if line)),
    )


def _singles_and_soups(run: Run, best: Contender | None) -> list[Contender]:
    soup = run.soup
    if soup is None or not soup.methods:
        return [best] if best else []
    found = [_of_method(method, run.goal, soup.recommended) for method in soup.methods]
    if best is not None and not any(each.kind == SINGLE for each in found):
        found.append(best)
    return found


def _of_trial(run: Run, trial: TrialState, kind: str) -> Contender:
    entry = trial.chosen(run.state.objectives)
    assert entry is not None  # it is ranked
    overall = Score(float(entry["score"]), *(entry.get("interval") or (None, None)))
    tasks = {
        name: Score(float(of["value"]), *(of.get("interval") or (None, None)))
        for name, of in entry.get("tasks", {}).items()
    }
    difference, fitted, gap = None, None, None
    lead, cross = run.summary.lead, run.summary.cross_fit
    if kind == DEFAULT and lead is not None:  # which is the best's over the default
        difference = Difference(-lead.value, -lead.high, -lead.low)
    if kind == SINGLE and cross is not None:
        fitted, gap = Score(cross.cross_fitted, cross.low, cross.high), cross.gap
    place = Path("trials") / trial.id / "checkpoints" / str(entry.get("checkpoint")) / "model"
    return Contender(
        name=NAMES[kind].format(trial.id),
        kind=kind,
        about=("the default configuration, " if kind == SINGLE and trial.origin == DEFAULT else "")
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


def _of_method(method: Method, goal: str, recommended: str | None) -> Contender:
    return Contender(
        name=method.name,
        kind=method.kind,
        about=method.about,
        score=method.score,
        overall=method.score if goal == OVERALL else method.overall,
        tasks=method.tasks,
        difference=method.difference,
        cross_fitted=method.cross_fitted,
        gap=method.gap,
        models=method.models,
        folder=method.folder,
        recommended=method.name == recommended,
    )
