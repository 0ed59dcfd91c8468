"""What every method is worth: plain, against the best single model, and cross-fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from model.cli.text import short
from model.evaluation.scores import RESAMPLES, Score, Scored, Scores, interval
from model.evaluation.scores import score as score_dev
from model.tasks.task_set import TaskSet
from tuner.scoring.crossfit import HALVINGS_RESAMPLES, Difference, HeldOut, halve, score_held_out
from tuner.scoring.dev_predictions import DevPredictions
from tuner.scoring.tables import difference_text
from tuner.soup.combinations import (
    AVERAGES,
    WEIGHTS,
    Combination,
    DevEvaluator,
    DevScorer,
    TaskCombinations,
    predictions_of,
    single,
)
from tuner.soup.methods import BEST, METHODS

HALVINGS = 20  # where nothing has to be run for one
SEED = 0  # of the halves, and of the resamples


@dataclass(frozen=True)
class MethodResult:
    """A method, what it chose, and how good that is."""

    name: str
    combinations: TaskCombinations
    score: Score  # by the goal
    overall: Score
    tasks: dict[str, Score]
    difference: Difference | None  # to the best single; None for itself
    held_out: HeldOut  # cross-fitted
    halvings: int
    evaluations: float

    @property
    def kind(self) -> str:
        return METHODS[self.name].kind

    @property
    def gap(self) -> float:
        """By how much choosing on dev flatters."""
        return self.score.value - self.held_out.value

    @property
    def models(self) -> int:
        return len(models_of(self.combinations))


def models_of(combinations: Mapping[str, Combination]) -> set[Combination]:
    """What has to run to answer all tasks: averages count once, whatever their heads."""
    found: set[Combination] = set()
    for combination in combinations.values():
        if combination.rule in AVERAGES:
            found.add(replace(combination, head=None))
        else:
            found.update(map(single, combination.members))
    return found


class Halves:
    """Random halves of dev, and a scorer for each."""

    def __init__(self, evaluator: DevEvaluator, goal: str, splits: int = HALVINGS) -> None:
        rows = {task: len(labels) for task, labels in evaluator.labels.items()}
        self.evaluator, self.goal = evaluator, goal
        self.rows = halve(rows, evaluator.tasks, splits, SEED)
        self.scorers = [
            DevScorer(evaluator, goal, {task: of[half] for task, of in self.rows.items()})
            for half in range(2 * splits)
        ]

    def cross_fit(self, name: str, halvings: int, resamples: int = HALVINGS_RESAMPLES) -> HeldOut:
        """A method's choice made on each half and scored on the other."""
        count = 2 * halvings
        chosen = [METHODS[name].choose(scorer) for scorer in self.scorers[:count]]
        answers = predictions_of(self.evaluator, chosen, name)
        some = {task: of[:count] for task, of in self.rows.items()}
        return score_held_out(answers, some, self.evaluator.tasks, SEED, self.goal, resamples)


def score_methods(
    evaluator: DevEvaluator,
    names: Sequence[str],
    goal: str,
    *,
    halvings: int,
    best: HeldOut | None = None,
    against: str = BEST,
) -> list[MethodResult]:
    """Sorted by the cross-fitted score, best first.

    What chooses averages is halved `halvings` times only. All cross-fitted scores are set beside
    the best single's, so that they compare whatever the number of halvings. `best` is the best
    single's where the search has it: chosen among all evaluations, of which the ingredients are a
    few that dev has chosen already. `against` is what all are compared
    with. Two methods that chose the same model have the same score.
    """
    whole = DevScorer(evaluator, goal)
    halves = Halves(evaluator, goal, max(HALVINGS, halvings))
    run_ahead(evaluator, names, whole, halves, halvings)
    choices: dict[str, TaskCombinations] = {}
    held: dict[str, HeldOut] = {}
    spent: dict[str, float] = {}
    everything = set(evaluator.wanted)
    for name in names:
        evaluator.wanted = set()
        choices[name] = METHODS[name].choose(whole)
        evaluator.answer(choices[name])
        same = next(other for other in names if choices.get(other) == choices[name])
        if same != name:
            held[name] = held[same]
        else:
            few = METHODS[name].kind == WEIGHTS and not METHODS[name].fixed
            held[name] = halves.cross_fit(name, halvings if few else len(halves.scorers) // 2)
        spent[name] = evaluator.cost(evaluator.wanted)
        everything |= evaluator.wanted
    evaluator.wanted = everything
    dev = predictions_of(evaluator, list(choices.values()), "")
    scores = {name: scores_of(dev[n], evaluator.tasks) for n, name in enumerate(names)}
    differences = compare(dev, list(names), evaluator.tasks, goal, against)
    alone = held[against]
    beside = {name: each.beside(alone, best or alone) for name, each in held.items()}
    found = [
        MethodResult(
            name=name,
            combinations=choices[name],
            score=scores[name].tasks.get(goal, scores[name].overall),
            overall=scores[name].overall,
            tasks=scores[name].tasks,
            difference=differences[name],
            held_out=beside[name] if choices[name] != choices[against] else best or alone,
            halvings=len(held[name].halvings),
            evaluations=spent[name],
        )
        for name in names
    ]
    return sorted(found, key=lambda result: -result.held_out.value)


def run_ahead(
    evaluator: DevEvaluator, names: Sequence[str], whole: DevScorer, halves: Halves, halvings: int
) -> None:
    """Where averages can be run side by side: all methods choose at once, on dev and on its halves.

    Each choice waits for its own evaluations only, and these are kept. So what follows, in order,
    finds them, and gets the result that it would have had alone.
    """
    if evaluator.at_once == 1:
        return
    jobs = [
        (name, scorer.alone())
        for name in names
        if METHODS[name].kind == WEIGHTS
        for scorer in [whole, *([] if METHODS[name].fixed else halves.scorers[: 2 * halvings])]
    ]
    before = set(evaluator.wanted)
    with ThreadPoolExecutor(2 * evaluator.at_once) as pool:
        try:
            for _ in pool.map(lambda job: evaluator.answer(METHODS[job[0]].choose(job[1])), jobs):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    evaluator.wanted = before


def scores_of(one: DevPredictions, tasks: TaskSet) -> Scores:
    """A candidate's scores as every evaluation has them: one model has one interval everywhere."""
    scored = {}
    for task in tasks:
        of = one.answers[task.name]
        labels, (answers,) = of.labels.astype(float), of.predictions.astype(float)
        scored[task.name] = Scored(task.metric, task.weight, task.classes, labels, answers)
    return score_dev(scored)


def compare(
    dev: DevPredictions, names: list[str], tasks: TaskSet, goal: str, against: str
) -> dict[str, Difference | None]:
    """Each candidate's paired difference to the one that all are compared with."""
    points = dev.grid(tasks).at(0)
    drawn = dev.resampled(tasks, RESAMPLES, SEED)
    best = names.index(against)

    def difference(number: int) -> Difference | None:
        if number == best:
            return None
        value = float(points.by(goal)[number] - points.by(goal)[best])
        return Difference(value, *interval(drawn.by(goal)[number] - drawn.by(goal)[best]))

    return {name: difference(number) for number, name in enumerate(names)}


# --- what to take -------------------------------------------------------------------------------


def recommend(results: Sequence[MethodResult], against: str = BEST) -> tuple[MethodResult, str]:
    """Of those that cannot be told from the best, the one that runs the fewest models.

    Judged on rows that did not choose. Of as many models, the higher cross-fitted score, if it is
    more than a standard error above that of the best single: the first of many methods is first
    by luck, too.
    """
    first = max(results, key=lambda r: r.held_out.value)
    level = [r for r in results if r is first or (first.held_out - r.held_out).low <= 0]
    taken = min(level, key=lambda r: (r.models, results.index(r)))
    best = next(r for r in results if r.name == against)
    lead = taken.held_out - best.held_out
    close = taken.models == best.models and lead.value <= lead.standard_error
    if close and best in level:
        taken = best
    return taken, _sentence(taken, first, best, len(results))


def _sentence(taken: MethodResult, first: MethodResult, best: MethodResult, methods: int) -> str:
    """What to take, why, and how sure that is."""
    value, low, high = map(short, taken.held_out.around())
    said = f"take the {taken.name} ({_models(taken.models)}): {value} [{low}, {high}] "
    said += "on rows that did not choose it (cross-fitted). "
    if taken is first:
        said += "No other method scores higher"
    else:
        apart = difference_text(first.held_out - taken.held_out, tie="")
        said += f"The highest, the {first.name} ({_models(first.models)}), is ahead by {apart}, "
        said += "which may be chance"
    if taken.combinations == best.combinations:
        return said
    lead = taken.held_out - best.held_out
    apart, other = difference_text(lead, tie=""), f"the {best.name} ({_models(best.models)}, "
    other += f"{short(best.held_out.value)})"
    if lead.tie or lead.low < 0:
        return f"{said}. T{other[1:]} may be as good: the difference is {apart}"
    # The interval is one method's, and it is the best of many that is looked at.
    tried = f"not counting that {methods} methods were tried"
    return f"{said}. The {taken.name} leads {other} by {apart}, {tried}"


def _models(count: int) -> str:
    return f"{count} model{'s' if count != 1 else ''}"
