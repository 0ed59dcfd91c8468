"""From a run's folder to its soup: ingredients, methods, scores, folders, soup.json."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from model.common.errors import InputError
from model.evaluation.predictions import Predictions
from model.modules.encoder_defaults import caution
from model.training.inputs import Warn
from tuner.runs.open import FinishedRun, open_run
from tuner.scoring.crossfit import HeldOut
from tuner.scoring.dev_rows import DevRows, LostPredictions
from tuner.scoring.summarise import choice_of
from tuner.soup.combinations import DevScorer
from tuner.soup.evaluator import RunEvaluator
from tuner.soup.folder import (
    EVALUATION_CACHE,
    heads_of,
    is_cheap,
    members_of,
    place_of,
    weights_of,
    write_method,
    write_soup,
)
from tuner.soup.ingredients import Candidates, Ingredient, collect
from tuner.soup.methods import BEST, DISTILLED, GREEDY, METHODS, greedy_steps
from tuner.soup.record import (
    SOUP,
    SOUPS,
    CrossFittedScore,
    MethodRecord,
    SoupRecord,
    StepRecord,
    TaskScore,
    slug,
)
from tuner.soup.runner import EvaluationSpec, LocalRunner, Runner
from tuner.soup.scores import MethodResult, recommend, score_methods
from tuner.soup.text import model_card, origin_of, settings_of


def make_soup(
    folder: Path,
    *,
    keep: int | None = None,
    methods: Sequence[str] | None = None,
    data: Path | None = None,
    halvings: int = 1,
    folders: bool = False,
    log: Warn = print,
    warn: Warn = print,
    runner: Callable[[EvaluationSpec], Runner] | None = None,
    mine: Callable[[], None] = lambda: None,
) -> SoupRecord:
    """Make the run's soup; what is returned is also in `soup/soup.json`.

    `runner` makes who runs the averages, if not this process. `mine` is asked before a model is
    written, and raises `Deposed` once another driver has the run.

    Raises InputError where there is nothing to make one of, or the data are not the run's any more.
    """
    began = time.time()
    run = open_run(Path(folder).absolute(), warn, data=data)
    check_counts(keep=keep, halvings=halvings)
    rows = DevRows(run.tasks)
    kept: dict[str, dict[str, Predictions]] = {}

    def read(ingredient: Ingredient) -> None:
        try:
            kept[ingredient.name] = rows.read(ingredient.name, ingredient.predictions)
        except LostPredictions as fault:
            log(f"{ingredient.name}: {fault}; evaluated anew")

    count = run.request.keep if keep is None else keep
    candidates = collect(run.state, run.folder, run.space, keep=count, goal=run.goal, read=read)
    if not candidates.groups:
        raise InputError(str(folder), nothing_in(candidates))
    spec = spec_of(run, candidates)
    evaluator = RunEvaluator(
        tasks=run.tasks,
        ingredients=candidates.ingredients,
        group=candidates.groups[0],
        kept=[kept.get(ingredient.name) for ingredient in candidates.ingredients],
        dev_rows=rows,
        fingerprint=spec.fingerprint,
        local=LocalRunner(spec, warn),
        runner=runner(spec) if runner else None,
        folder=run.folder / SOUPS / EVALUATION_CACHE,
        log=log,
    )
    evaluator.evaluate_lost()
    rows_in_all = sum(len(labels) for labels in evaluator.labels.values())
    log(
        f"soup: {len(evaluator.group)} of {candidates.considered} checkpoints fit together; "
        f"averages are run on {rows_in_all:,} dev rows"
    )
    # The best single is what all are compared with, and the greedy soup is what comes out.
    # Of a single checkpoint all the others are that checkpoint again.
    several = len(candidates.ingredients) > 1
    wanted = set(METHODS if methods is None else methods) if several else set()
    if evaluator.distilled is None:
        wanted.discard(DISTILLED)
    names = [name for name in METHODS if name in {BEST, GREEDY} | wanted]
    best = choice_of_search(run, candidates.ingredients[0])
    results = score_methods(evaluator, names, run.goal, halvings=halvings, best=best)
    taken, sentence = recommend(results)
    cheap = {result.name for result in results if is_cheap(result)}
    written = set(names) if folders else {GREEDY, taken.name, *cheap}
    soup = soup_record(run, candidates, evaluator, results, written, (taken.name, sentence), began)
    for result in results:
        if result.name in written and result.name != GREEDY:
            mine()
            write_method(evaluator, result, run.folder)
    settings = settings_of(run, soup.chosen)
    card = model_card(soup, settings, run.tasks.class_names, origin_of(run, soup.chosen))
    mine()
    write_soup(evaluator, {result.name: result for result in results}, soup, card, run.folder)
    return soup


def check_counts(*, keep: int | None, halvings: int) -> None:
    given = {"--keep": keep, "--halvings": halvings}
    faults = [
        f"{flag} is {number}; it must be 1 or more"
        for flag, number in given.items()
        if number is not None and number < 1
    ]
    if faults:
        raise InputError("soup", faults)


def choice_of_search(run: FinishedRun, first: Ingredient) -> HeldOut | None:
    """The search's choice of its best, cross-fitted, if that is still there to be compared with."""
    best = run.state.best_trial()
    entry = best.chosen(run.state.objectives) if best else None
    if best is None or entry is None or first.name != f"{best.id}/{entry.get('checkpoint')}":
        return None
    fitted = choice_of(run.state, run.folder, run.tasks)
    return fitted.held if fitted else None


def nothing_in(candidates: Candidates) -> list[str]:
    if not candidates.considered:
        return ["has no finished trial with a checkpoint yet; go on with the search"]
    told = [f"{each.name}: {each.reason}" for each in candidates.skipped[:10]]
    return ["has no checkpoint that is whole", *told]


def spec_of(run: FinishedRun, candidates: Candidates) -> EvaluationSpec:
    """What it takes to run averages of the candidates' first group."""
    base = candidates.groups[0][0]
    trial = run.state.trials[candidates.ingredients[base].record.trial]
    began = run.space.config(trial.settings)
    return EvaluationSpec(
        run=str(run.folder),
        models=[ingredient.model for ingredient in candidates.ingredients],
        base=base,
        settings=run.space.config(run.space.default_point()).to_flat(),
        tasks=run.tasks.origin,
        data=None if run.data is None else str(run.data.absolute()),
        fingerprint=str(run.fingerprints.get("data")),
        start=(began.encoder.name, began.init_from),
        several_encoders=len(run.space.encoders) > 1,
    )


# --- soup.json ----------------------------------------------------------------------------------


def soup_record(
    run: FinishedRun,
    candidates: Candidates,
    evaluator: RunEvaluator,
    results: Sequence[MethodResult],
    written: set[str],
    recommended: tuple[str, str],
    began: float,
) -> SoupRecord:
    told = caution(run.space.config(run.space.default_point()).encoder.name, run.tasks)
    ingredients = candidates.ingredients
    return SoupRecord(
        run=run.state.name,
        tasks=run.tasks.name,
        task_set=run.tasks.origin,
        time=time.time(),
        data=evaluator.fingerprint,
        goal=run.goal,
        candidates=candidates.considered,
        ingredients=[ingredients[number].record for number in candidates.groups[0]],
        skipped=candidates.skipped,
        groups=[[ingredients[number].name for number in group] for group in candidates.groups],
        steps=steps_of(evaluator, run.goal),
        methods=[method_record(evaluator, r, r.name in written) for r in results],
        cautions=[told] if told else [],
        evaluations=evaluator.cost(evaluator.wanted | evaluator.ran),
        ran=evaluator.cost(evaluator.ran),
        recommended=recommended[0],
        recommendation=recommended[1],
        seconds=round(time.time() - began, 2),
    )


def steps_of(evaluator: RunEvaluator, goal: str) -> list[StepRecord]:
    steps = greedy_steps(DevScorer(evaluator, goal))
    apart = evaluator.soup_model.distances([step.candidate for step in steps], steps[0].candidate)
    return [
        StepRecord(
            evaluator.ingredients[step.candidate].name, step.score, step.best, step.accepted, far
        )
        for step, far in zip(steps, apart, strict=True)
    ]


def method_record(evaluator: RunEvaluator, result: MethodResult, written: bool) -> MethodRecord:
    held = result.held_out
    return MethodRecord(
        name=result.name,
        kind=result.kind,
        about=METHODS[result.name].about,
        members=members_of(evaluator, result.combinations),
        weights=weights_of(result.combinations),
        heads=heads_of(evaluator, result.combinations),
        score=result.score,
        overall=result.overall,
        tasks={
            task.name: TaskScore(**vars(result.tasks[task.name]), metric=task.metric)
            for task in evaluator.tasks
        },
        difference=result.difference,
        cross_fitted=CrossFittedScore(*held.around(), result.gap, result.halvings),
        models=result.models,
        evaluations=result.evaluations,
        folder=place_of(result) if written else None,
        predictions=f"{SOUP}/predictions/{slug(result.name)}.parquet",
    )
