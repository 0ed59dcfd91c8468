"""Ensembles over several runs: each model answers the tasks that it has.

The runs may have other encoders and other tasks, single ones among them. Where two have a task in
common it must be the same task with the same dev set. Weights are averaged within a run only, so
here there are ensembles, and the best model for each task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from model.cli.invocation import command
from model.cli.text import short, shown_path
from model.common.errors import Gathered, InputError
from model.common.files import atomic_folder
from model.evaluation.predictions import Predictions, write_predictions
from model.evaluation.scores import Array
from model.tasks.task_set import TaskSet, describe_task, load_task_set, split_origin, task_changes
from model.training.inputs import Warn
from tuner.runs.open import FinishedRun, has_begun, open_run
from tuner.runs.state import OVERALL
from tuner.scoring.dev_rows import DevRows
from tuner.scoring.ensemble import blend
from tuner.scoring.tables import WIDTH, cut, difference_text, plus, table
from tuner.soup.combinations import MEAN, WEIGHTS, Combination
from tuner.soup.ensemble_file import EnsembleMember, EnsembleSpec
from tuner.soup.ingredients import Ingredient, collect
from tuner.soup.methods import BEST, METHODS, PREDICTIONS
from tuner.soup.record import slug
from tuner.soup.scores import MethodResult, recommend, score_methods

PER_TASK = "best per task"
NAMES = [PER_TASK, *(name for name, method in METHODS.items() if method.kind == PREDICTIONS)]


@dataclass(frozen=True)
class RunModel:
    name: str  # <run>/<trial>/<checkpoint>
    model: Path
    answers: Mapping[str, Predictions]  # by task, of those that it has
    finished: bool = True  # its trial, which was not stopped early


@dataclass(frozen=True)
class Ensembles:
    """What came of several runs."""

    tasks: TaskSet
    results: list[MethodResult]  # best first
    recommended: str
    sentence: str
    against: str  # what all are compared with
    members: list[RunModel]
    skipped: list[str]
    folder: Path


class SeveralEvaluator:
    """Kept answers of models that may lack tasks; nothing is ever run."""

    at_once = 1

    def __init__(self, tasks: TaskSet, members: Sequence[RunModel], rows: DevRows) -> None:
        self.tasks, self.rows, self._members = tasks, rows, members
        self.labels: Mapping[str, Array] = rows.labels
        self.members: Sequence[int] = range(len(members))
        whole = [n for n in self.members if set(members[n].answers) == set(tasks.names)]
        # As within a run, where the early score of a stopped trial makes it no best one.
        self.singles: Sequence[int] = [n for n in whole if members[n].finished] or whole
        self.group: Sequence[int] = []
        self.distilled: int | None = None
        self.trials: Sequence[str] = [member.name.rpartition("/")[0] for member in members]
        self.wanted: set[tuple[str, Combination]] = set()

    def able(self, task: str) -> Sequence[int]:
        return [n for n in self.members if task in self._members[n].answers]

    def answer(self, combinations: Mapping[str, Combination]) -> dict[str, Predictions]:
        return {
            task: blend(of.rule, [self._members[m].answers[task] for m in of.members], of.weights)
            for task, of in combinations.items()
        }

    def cost(self, wanted: set[tuple[str, Combination]]) -> float:
        return 0.0


def ensembles_of(
    folders: Sequence[Path],
    out: Path,
    *,
    keep: int | None = None,
    methods: Sequence[str] | None = None,
    data: Path | None = None,
    log: Warn = print,
    warn: Warn = print,
) -> Ensembles:
    """Compare the ensembles of several runs' models and write them into `out`."""
    gathered = Gathered("soup")
    runs: list[FinishedRun] = []
    with gathered:
        check(keep, methods)
    with gathered:
        check_folders(folders, out)
    for folder in folders:
        with gathered:
            runs.append(open_run(Path(folder).absolute(), warn, data=data and data.absolute()))
    gathered.tell()
    tasks = union_of(runs)
    rows = DevRows(tasks)
    members: list[RunModel] = []
    skipped: list[str] = []
    for run in runs:
        others: list[str] = []
        if not (own := members_of(run, rows, keep, others)):
            fault = f"{run.name} has no model that can be compared"
            raise InputError("soup", [fault, *others[:5]])
        members, skipped = members + own, skipped + others
    evaluator = SeveralEvaluator(tasks, members, rows)
    against = BEST if evaluator.singles else PER_TASK
    wanted = set(NAMES if methods is None else methods) | {PER_TASK, against}
    names = [name for name in METHODS if name in wanted & {BEST, *NAMES}]
    log(f"ensembles of {len(members)} models of {len(runs)} runs on {', '.join(tasks.names)}")
    results = score_methods(evaluator, names, goal_of(runs), halvings=1, against=against)
    taken, sentence = recommend(results, against)
    place = next((str(run.data) for run in runs if run.data), None)
    for result in results:
        write_ensemble(evaluator, result, out / slug(result.name), place)
    write_ensemble(evaluator, taken, out / "recommended", place)
    return Ensembles(tasks, results, taken.name, sentence, against, members, skipped, out)


def check(keep: int | None, methods: Sequence[str] | None) -> None:
    known = [BEST, *NAMES]
    faults = [
        f"'{name}' is made within one run; over several there are {', '.join(known)}"
        for name in methods or ()
        if name not in known
    ]
    if keep is not None and keep < 1:
        faults.append(f"--keep is {keep}; it must be 1 or more")
    if faults:
        raise InputError("soup", faults)


def check_folders(folders: Sequence[Path], out: Path) -> None:
    """Each run once, and in none of them what is made: files of a run name no place outside it."""
    places = [Path(folder).resolve() for folder in folders]
    twice = dict.fromkeys(place for place in places if places.count(place) > 1)
    faults = [f"{place} is named twice; name each run once" for place in twice]
    if out.exists():
        faults.append(f"{out} is there already; name another folder with --out")
    if run := next((place for place in out.resolve().parents if has_begun(place)), None):
        faults.append(f"{out} is inside the run {run}; name a folder beside it with --out")
    if faults:
        raise InputError("soup", faults)


def goal_of(runs: Sequence[FinishedRun]) -> str:
    """The goal that all runs have in common, or overall."""
    goals = {run.goal for run in runs}
    return goals.pop() if len(goals) == 1 else OVERALL


def members_of(
    run: FinishedRun, rows: DevRows, keep: int | None, skipped: list[str]
) -> list[RunModel]:
    own: dict[str, dict[str, Predictions]] = {}

    def read(ingredient: Ingredient) -> None:
        own[ingredient.name] = rows.read_some(
            f"{run.name}/{ingredient.name}", ingredient.predictions, run.tasks
        )

    count = run.request.keep if keep is None else keep
    found = collect(run.state, run.folder, run.space, keep=count, goal=run.goal, read=read)
    skipped += [
        f"{run.name}/{each.name}: {each.reason}" for each in found.skipped if each.name not in own
    ]
    return [
        RunModel(f"{run.name}/{each.name}", each.model, own[each.name], each.finished)
        for each in found.ingredients
        if not each.distilled  # it has learned from the others, and would count them twice
    ]


def union_of(runs: Sequence[FinishedRun]) -> TaskSet:
    """All tasks of the runs, if those that they share are the same; raises what is not."""
    faults: list[str] = []
    known: dict[str, tuple[str, dict[str, object]]] = {}
    for run in runs:
        for task in run.tasks:
            where, before = known.setdefault(task.name, (run.name, describe_task(task)))
            faults += [
                f"{run.name}: {change} (compared with {where})"
                for change in task_changes({task.name: before}, {task.name: describe_task(task)})
            ]
    wholes = {split_origin(run.tasks.origin)[0] for run in runs}
    full = [run.tasks for run in runs if set(run.tasks.names) == set(known)]
    if not full and len(wholes) > 1:
        told = ", ".join(sorted(wholes))
        faults.append(f"the runs' task sets are different ones ({told}), and none has all tasks")
    if faults:
        raise InputError("soup", faults)
    if full:
        return full[0]
    whole = load_task_set(wholes.pop())
    if set(whole.names) == set(known):
        return whole
    return load_task_set(f"{whole.origin}:{','.join(n for n in whole.names if n in known)}")


def write_ensemble(
    evaluator: SeveralEvaluator, result: MethodResult, place: Path, data: str | None
) -> None:
    models = [member.model for member in evaluator._members]
    with atomic_folder(place) as folder:
        parts = {
            task: EnsembleMember(
                MEAN if of.rule == WEIGHTS else of.rule,
                tuple(models[member] for member in of.members),
                of.weights,
            )
            for task, of in result.combinations.items()
        }
        EnsembleSpec(result.name, evaluator.tasks.origin, parts, data).write(folder, place)
        answers = evaluator.rows.table(evaluator.answer(result.combinations))
        write_predictions(folder / "dev.parquet", answers)


def ensembles_text(found: Ensembles, every: bool = False) -> str:
    """The table of the methods that matter, or `every` one, and where they are."""
    tasks = found.tasks.names
    first = next(result.name for result in found.results if result.kind == PREDICTIONS)
    named = {found.recommended, found.against, first}
    shown = [result for result in found.results if every or result.name in named]
    rows = []
    for result in shown:
        apart = result.difference
        lead = difference_text(apart, tie="") if apart else "-"
        rows.append(
            [
                f"{'*' if result.name == found.recommended else ' '} {result.name}",
                *(short(result.held_out.value), plus(result.gap), short(result.score.value)),
                *(lead, str(result.models)),
                *(short(result.tasks[task].value) for task in tasks),
            ]
        )
    header = ["  method", "cross-fit", "gap", "score", f"vs {found.against}", "models", *tasks]
    lines = [cut(f"left out {each}") for each in found.skipped]
    lines += [*wrap(f"{found.sentence}.", WIDTH), ""]
    more = len(found.results) - len(shown)
    rest = f"; {more} more with -v" if more else ""
    lines.append(f"methods, by their cross-fitted score (cross-fit){rest}")
    lines += table(header, rows, {"  method", f"vs {found.against}"}, indent="")
    place = shown_path(found.folder / "recommended")
    return "\n".join(
        [*lines, "", f"{command('predict', place)} answers with the {found.recommended}"]
    )
