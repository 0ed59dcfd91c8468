"""What a soup leaves behind: model folders, recipes of ensembles, dev predictions, soup.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.evaluate import write_predictions
from model.files import folder_whole
from model.folder import save_model
from model.run import link_or_copy
from tuner.dishes import MEAN, WEIGHTS, Dish, Menu
from tuner.methods import GREEDY
from tuner.recipe import Part, Recipe
from tuner.soup_scores import Result, models_of
from tuner.tastings import RunKitchen

SOUP, SOUPS, SOUP_JSON = "soup", "soups", "soup.json"
TASTINGS = "tastings"  # in SOUPS


def slug(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def place_of(result: Result) -> str:
    """A method's folder, from the run's."""
    return SOUP if result.name == GREEDY else f"{SOUPS}/{slug(result.name)}"


def is_cheap(result: Result) -> bool:
    """No weights have to be written for it: existing models answer."""
    return all(dish.how != WEIGHTS or dish.single is not None for dish in result.menu.values())


def write_method(kitchen: RunKitchen, result: Result, run: Path) -> None:
    """The folder of a method other than the greedy soup: a model, a set or an ensemble."""
    place = run / place_of(result)
    with folder_whole(place) as folder:
        if len(models_of(result.menu)) == 1:
            write_model(kitchen, result.menu, folder)
        else:
            parts = {
                task: _part(kitchen, task, dish, folder, place)
                for task, dish in result.menu.items()
            }
            Recipe(result.name, kitchen.tasks.origin, parts).write(folder, place)


def write_model(kitchen: RunKitchen, menu: Mapping[str, Dish], folder: Path) -> None:
    """One model folder for dishes that share a trunk."""
    alone = {dish.single for dish in menu.values()}
    if len(alone) == 1 and (only := alone.pop()) is not None:
        for file in kitchen.ingredients[only].model.iterdir():
            link_or_copy(file, folder / file.name)
    else:
        save_model(folder, *kitchen.pot.cook(menu))


def _part(kitchen: RunKitchen, task: str, dish: Dish, folder: Path, place: Path) -> Part:
    if dish.how != WEIGHTS:
        models = tuple(kitchen.ingredients[member].model for member in dish.members)
        return Part(dish.how, models, dish.weights)
    if dish.single is not None:
        return Part(MEAN, (kitchen.ingredients[dish.single].model,), (1.0,))
    (folder / task).mkdir()
    write_model(kitchen, dict.fromkeys(kitchen.tasks.names, dish), folder / task)
    return Part(MEAN, (place / task,), (1.0,))


def write_soup(
    kitchen: RunKitchen,
    results: Mapping[str, Result],
    described: Mapping[str, Any],
    card: str,
    run: Path,
) -> None:
    """`soup/`: the greedy soup's model, every method's dev predictions, soup.json, the card."""
    with folder_whole(run / SOUP) as folder:
        write_model(kitchen, results[GREEDY].menu, folder)
        for name, result in results.items():
            table = kitchen.dev_rows.table(kitchen.serve(result.menu))
            write_predictions(folder / "predictions" / f"{slug(name)}.parquet", table)
        text = json.dumps(described, indent=1, allow_nan=False)
        (folder / SOUP_JSON).write_text(text + "\n", encoding="utf-8")
        (folder / "README.md").write_text(card, encoding="utf-8")


def members_of(kitchen: RunKitchen, menu: Menu) -> Any:
    """Names of ingredients: one list if all tasks have the same, else by task."""
    return _once(
        {
            task: [kitchen.ingredients[member].name for member in dish.members]
            for task, dish in menu.items()
        }
    )


def weights_of(menu: Menu) -> Any:
    """How much each member counts, in the same form; None where all count the same."""
    if all(len(set(dish.weights)) == 1 for dish in menu.values()):
        return None
    return _once({task: list(dish.weights) for task, dish in menu.items()})


def heads_of(kitchen: RunKitchen, menu: Menu) -> dict[str, str] | None:
    """By task the ingredient whose head it is; None where heads are treated as all weights."""
    if all(dish.head is None for dish in menu.values()):
        return None
    # A member that stands alone has its own.
    heads = {task: d.members[0] if d.head is None else d.head for task, d in menu.items()}
    return {task: kitchen.ingredients[head].name for task, head in heads.items()}


def _once(by_task: dict[str, list[Any]]) -> Any:
    """One list if all tasks have the same."""
    lists = list(by_task.values())
    return lists[0] if all(each == lists[0] for each in lists) else by_task
