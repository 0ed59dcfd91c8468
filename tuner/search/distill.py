"""The last stage of a search with --distill: the best ensemble teaches one model more.

It answers the training rows, and its answers are soft labels beside the true ones.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from model.common.untrusted import inside
from tuner.predict.predictor import AnswerModels, load_predictor
from tuner.predict.splits import answer_splits, write_split
from tuner.predict.texts import answer_file
from tuner.runs.folder import TEACHER, TEACHER_TEXTS
from tuner.runs.state import ANSWERS, RunState
from tuner.search.finish import attempt
from tuner.search.next_steps import resume_command
from tuner.search.plan import SearchPlan
from tuner.search.terminal import SearchConsole
from tuner.soup.combinations import VOTE
from tuner.soup.ensemble_file import read_ensemble
from tuner.soup.methods import PREDICTIONS
from tuner.soup.record import SoupRecord

SPLIT = "train"  # what TEACHER answers
TEACHER_KEY, TEXT_KEY = ANSWERS


def is_due(plan: SearchPlan, state: RunState) -> bool:
    return plan.request.distill and not state.distilled and bool(state.ranked())


def is_lost(run: Path, state: RunState) -> bool:
    """Whether a run is being taught, and the answers are not there any more."""
    taught = [trial.settings for trial in state.distilled if trial.status == "open"]
    files = [inside(run, each[key]) for each in taught for key in ANSWERS if key in each]
    return not all(file.is_file() for file in files)


def answer_files(run: Path) -> list[str]:
    return [str(run / name) for name in (TEACHER, TEACHER_TEXTS)]


def make_teacher(
    plan: SearchPlan, soup: SoupRecord, console: SearchConsole, models: AnswerModels | None = None
) -> dict[str, str] | None:
    """What the best ensemble's student is told: files of its answers, from the run's folder.

    None where that cannot be had.

    `models` answer in place of those of this process.
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
    return attempt(
        *("teacher", partial(write_answers, plan, best.name, models)),
        *(resume_command(plan.folder, plan.options), console),
    )


def votes(ensemble: Path) -> bool:
    return any(part.rule == VOTE for part in read_ensemble(ensemble).parts.values())


def write_answers(plan: SearchPlan, model: str, models: AnswerModels | None) -> dict[str, str]:
    """To the training rows, and to texts without labels where some are given."""
    tasks, predictor = plan.space.task_set, load_predictor(plan.folder, model)
    names = [task.name for task in tasks]
    said = (plan.data, lambda line: None)  # of damaged rows the trials have told
    answers = answer_splits(predictor, tasks, names, [SPLIT], *said, models)
    out = (plan.folder / TEACHER).parent
    out.mkdir(exist_ok=True)
    write_split(tasks, SPLIT, answers[SPLIT], out)
    told = {TEACHER_KEY: TEACHER}
    if plan.request.distill_text is not None:
        answer_file(predictor, Path(plan.request.distill_text), None, out, models)
        told[TEXT_KEY] = TEACHER_TEXTS
    return told
