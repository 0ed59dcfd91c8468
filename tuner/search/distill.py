"""The last stage of a search with --distill: the best ensemble teaches one model more.

It answers the training rows, and its answers are soft labels beside the true ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from model.cli.invocation import command
from model.tasks.task_set import TaskSet, load_task_set
from tuner.predict.predictor import load_predictor
from tuner.predict.splits import answer_splits, write_split
from tuner.ray_backend.resources import Resources
from tuner.ray_backend.staging import Localizer, StagedInput
from tuner.runs.folder import TEACHER
from tuner.runs.state import RunState
from tuner.search.finish import attempt
from tuner.search.plan import SearchPlan
from tuner.search.terminal import SearchConsole
from tuner.soup.combinations import VOTE
from tuner.soup.ensemble_file import read_ensemble
from tuner.soup.methods import PREDICTIONS
from tuner.soup.record import SoupRecord

SPLIT = "train"  # what TEACHER answers


def is_due(plan: SearchPlan, state: RunState) -> bool:
    return plan.request.distill and not state.distilled and bool(state.ranked())


def is_lost(run: Path, state: RunState) -> bool:
    """Whether a run is being taught, and the answers are not there any more."""
    taught = any(trial.status == "open" for trial in state.distilled)
    return taught and not answers_file(run).is_file()


def answers_file(run: Path) -> Path:
    return run / TEACHER


def make_teacher(
    plan: SearchPlan, soup: SoupRecord, console: SearchConsole, there: Answerer | None = None
) -> Path | None:
    """The answers of the best ensemble to the training rows; None where that cannot be had.

    `there` answers in place of this process.
    """
    ensembles = [m for m in soup.methods if m.kind == PREDICTIONS and m.models > 1 and m.folder]
    # Shares of votes are coarse: a student learns more from the mean of probabilities.
    found = [method for method in ensembles if not votes(plan.folder / str(method.folder))]
    if not found:
        console.warn(
            "nothing to distill: the search kept one model; --finals 2 or more keep others"
        )
        return None
    best = found[0]  # by the cross-fitted score
    console.log(f"distilling {best.told}: it answers the training rows")
    data = None if plan.data is None else str(plan.data)
    question = (str(plan.folder), best.name, plan.space.task_set.origin, data)
    made = attempt(
        *("teacher", partial(there or answer_training_rows, *question)),
        *(command("search", "--resume --distill"), console),
    )
    return answers_file(plan.folder) if made else None


def votes(ensemble: Path) -> bool:
    return any(part.rule == VOTE for part in read_ensemble(ensemble).parts.values())


Answerer = Callable[[str, str, str, str | None], bool]


def answer_training_rows(run: str, model: str, tasks: str, data: str | None) -> bool:
    task_set: TaskSet = load_task_set(tasks)
    predictor = load_predictor(Path(run), model)
    place = None if data is None else Path(data)
    names = [task.name for task in task_set]
    answers = answer_splits(predictor, task_set, names, [SPLIT], place, lambda line: None)
    out = answers_file(Path(run)).parent
    out.mkdir(exist_ok=True)
    write_split(task_set, SPLIT, answers[SPLIT], out)
    return True


class AnswersThere:
    """The same on a worker that sees the run's folder; the data may have come with `staged`."""

    def __init__(self, staged: Mapping[str, StagedInput]) -> None:
        self.staged = staged

    def __call__(self, run: str, model: str, tasks: str, data: str | None) -> bool:
        here = Localizer(self.staged)
        return answer_training_rows(run, model, here.tasks(tasks), data and here.path(data))


def ask_a_worker(
    resources: Resources, staged: Mapping[str, StagedInput], console: SearchConsole
) -> Answerer:
    """One of the cluster's, where a GPU may be."""
    from tuner.ray_backend.workers import WorkerPool

    def ask(*question: Any) -> bool:
        one = Resources(1, resources.cpus, resources.gpus)
        pool = WorkerPool(partial(AnswersThere, dict(staged)), one, console.warn)
        try:
            return bool(pool.ask(*question))
        finally:
            pool.close()

    return ask
