"""What a soup leaves behind: model folders, ensemble files, dev predictions, soup.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.common.files import atomic_folder
from model.evaluation.model_folder import name_classes, save_model
from model.evaluation.predictions import write_predictions
from model.training.finish import link_or_copy
from tuner.soup.combinations import AVERAGES, MEAN, Combination, TaskCombinations
from tuner.soup.ensemble_file import EnsembleMember, EnsembleSpec
from tuner.soup.evaluator import RunEvaluator
from tuner.soup.methods import GREEDY
from tuner.soup.record import SOUP, SOUP_JSON, SOUPS, Heads, SoupRecord, slug
from tuner.soup.scores import MethodResult, models_of

EVALUATION_CACHE = "evaluations"  # in SOUPS


def place_of(result: MethodResult) -> str:
    """A method's folder, from the run's."""
    return SOUP if result.name == GREEDY else f"{SOUPS}/{slug(result.name)}"


def is_cheap(result: MethodResult) -> bool:
    """No weights have to be written for it: existing models answer."""
    return all(
        combination.rule not in AVERAGES or combination.single is not None
        for combination in result.combinations.values()
    )


def write_method(evaluator: RunEvaluator, result: MethodResult, run: Path) -> None:
    """The folder of a method other than the greedy soup: a model, a set or an ensemble."""
    place = run / place_of(result)
    with atomic_folder(place) as folder:
        if len(models_of(result.combinations)) == 1:
            write_model(evaluator, result.combinations, folder)
        else:
            parts = {
                task: _part(evaluator, task, combination, folder, place)
                for task, combination in result.combinations.items()
            }
            EnsembleSpec(result.name, evaluator.tasks.origin, parts).write(folder, place)


def write_model(
    evaluator: RunEvaluator, combinations: Mapping[str, Combination], folder: Path
) -> None:
    """One model folder for combinations that share a trunk."""
    alone = {combination.single for combination in combinations.values()}
    if len(alone) == 1 and (only := alone.pop()) is not None:
        for file in evaluator.ingredients[only].model.iterdir():
            link_or_copy(file, folder / file.name)
        if names := evaluator.tasks.class_names:
            name_classes(folder, names)
    else:
        model, tokenizer = evaluator.soup_model.average(combinations)
        save_model(folder, model, tokenizer, evaluator.tasks.class_names)


def _part(
    evaluator: RunEvaluator, task: str, combination: Combination, folder: Path, place: Path
) -> EnsembleMember:
    if combination.rule not in AVERAGES:
        models = tuple(evaluator.ingredients[member].model for member in combination.members)
        return EnsembleMember(combination.rule, models, combination.weights)
    if combination.single is not None:
        return EnsembleMember(MEAN, (evaluator.ingredients[combination.single].model,), (1.0,))
    (folder / task).mkdir()
    write_model(evaluator, dict.fromkeys(evaluator.tasks.names, combination), folder / task)
    return EnsembleMember(MEAN, (place / task,), (1.0,))


def write_soup(
    evaluator: RunEvaluator,
    results: Mapping[str, MethodResult],
    soup: SoupRecord,
    card: str,
    run: Path,
) -> None:
    """`soup/`: the greedy soup's model, every method's dev predictions, soup.json, the card."""
    with atomic_folder(run / SOUP) as folder:
        write_model(evaluator, results[GREEDY].combinations, folder)
        for name, result in results.items():
            table = evaluator.dev_rows.table(evaluator.answer(result.combinations))
            write_predictions(folder / "predictions" / f"{slug(name)}.parquet", table)
        (folder / SOUP_JSON).write_text(soup.to_json(), encoding="utf-8")
        (folder / "README.md").write_text(card, encoding="utf-8")


def members_of(evaluator: RunEvaluator, combinations: TaskCombinations) -> Any:
    """Names of ingredients: one list if all tasks have the same, else by task."""
    return _once(
        {
            task: [evaluator.ingredients[member].name for member in combination.members]
            for task, combination in combinations.items()
        }
    )


def weights_of(combinations: TaskCombinations) -> Any:
    """How much each member counts, in the same form; None where all count the same."""
    if all(len(set(combination.weights)) == 1 for combination in combinations.values()):
        return None
    return _once({task: list(combination.weights) for task, combination in combinations.items()})


def heads_of(evaluator: RunEvaluator, combinations: TaskCombinations) -> Heads | None:
    """By task the ingredients whose head it is; None where heads are treated as all weights."""
    if all(combination.head is None for combination in combinations.values()):
        return None

    def told(head: Combination) -> str | dict[str, float]:
        names = [evaluator.ingredients[member].name for member in head.members]
        return names[0] if len(names) == 1 else dict(zip(names, head.weights, strict=True))

    return {task: told(of.head or of) for task, of in combinations.items()}


def _once(by_task: dict[str, list[Any]]) -> Any:
    """One list if all tasks have the same."""
    lists = list(by_task.values())
    return lists[0] if all(each == lists[0] for each in lists) else by_task
