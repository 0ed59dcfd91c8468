"""From a run's folder to its soup: ingredients, methods, scores, folders, soup.json."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.errors import InputError
from model.inputs import Warn
from model.suits import caution
from model.tasks import TaskSet
from tuner.asked import Asked
from tuner.blend import Served
from tuner.dev_predictions import OVERALL
from tuner.dishes import Judge
from tuner.ingredients import Ingredient, Pantry, stock
from tuner.ledger import read_events
from tuner.methods import BEST, GREEDY, METHODS, greedy_steps
from tuner.model_card import card_of
from tuner.run_folder import LEDGER, SPACE, read_run
from tuner.run_state import RunState
from tuner.served import DevRows
from tuner.soup_folder import (
    SOUP,
    SOUP_JSON,
    SOUPS,
    TASTINGS,
    heads_of,
    is_cheap,
    members_of,
    place_of,
    slug,
    weights_of,
    write_method,
    write_soup,
)
from tuner.soup_scores import Result, recommend, score_methods
from tuner.space import Space, load_space
from tuner.tastings import DevData, RunKitchen

Soup = dict[str, Any]  # what soup.json says; docs/soup.md has its keys


@dataclass(frozen=True)
class FinishedRun:
    """A run's folder, as far as a soup needs it."""

    folder: Path
    asked: Asked
    space: Space
    state: RunState
    fingerprint: str  # of its data

    @property
    def tasks(self) -> TaskSet:
        return self.space.task_set

    @property
    def goal(self) -> str:
        return self.state.goal if self.state.goal in self.tasks.names else OVERALL


def open_run(folder: Path, warn: Warn) -> FinishedRun:
    about = read_run(folder)
    state = RunState.from_events(read_events(folder / LEDGER, warn), warn)
    asked = Asked.from_dict(about["asked"])
    space = load_space(str(folder / SPACE))
    return FinishedRun(folder, asked, space, state, str(about["fingerprints"].get("data")))


def cook(
    folder: Path,
    *,
    keep: int | None = None,
    methods: Sequence[str] | None = None,
    data: Path | None = None,
    halvings: int = 1,
    folders: bool = False,
    log: Warn = print,
    warn: Warn = print,
) -> Soup:
    """Cook the run's soup; what is returned is also in `soup/soup.json`.

    Raises InputError where there is nothing to cook, or the data are not the run's any more.
    """
    began = time.time()
    run = open_run(Path(folder).absolute(), warn)
    faults = []
    if keep is not None and keep < 1:
        faults.append(f"--keep is {keep}; it must be 1 or more")
    if halvings < 1:
        faults.append(f"--halvings is {halvings}; it must be 1 or more")
    if faults:
        raise InputError("soup", faults)
    rows = DevRows(run.tasks)
    kept: dict[str, dict[str, Served]] = {}

    def read(ingredient: Ingredient) -> None:
        kept[ingredient.name] = rows.read(ingredient.name, ingredient.predictions)

    count = run.asked.keep if keep is None else keep
    pantry = stock(run.state, run.folder, run.space, keep=count, goal=run.goal, read=read)
    if not pantry.ingredients:
        raise InputError(str(folder), nothing_in(pantry))
    kitchen = RunKitchen(
        tasks=run.tasks,
        ingredients=pantry.ingredients,
        group=pantry.groups[0],
        kept=[kept[ingredient.name] for ingredient in pantry.ingredients],
        dev_rows=rows,
        fingerprint=run.fingerprint,
        data=lambda: dev_data(run, data, warn),
        folder=run.folder / SOUPS / TASTINGS,
        log=log,
    )
    rows_in_all = sum(len(labels) for labels in kitchen.labels.values())
    log(
        f"soup: {len(kitchen.group)} of {pantry.considered} checkpoints fit together; averages are "
        f"run on {rows_in_all:,} dev rows"
    )
    # The best single is what all are compared with, and the greedy soup is what comes out.
    names = [name for name in METHODS if methods is None or name in {BEST, GREEDY, *methods}]
    results = score_methods(kitchen, names, run.goal, halvings=halvings)
    taken, sentence = recommend(results)
    written = [r for r in results if r.name == GREEDY or is_cheap(r) or r is taken or folders]
    soup = describe(run, pantry, kitchen, results, {r.name for r in written})
    soup |= {"recommended": taken.name, "recommendation": sentence}
    soup |= {"seconds": round(time.time() - began, 2)}
    for result in written:
        if result.name != GREEDY:
            write_method(kitchen, result, run.folder)
    by_name = {result.name: result for result in results}
    write_soup(kitchen, by_name, soup, card_of(soup, settings_of(run, soup)), run.folder)
    return soup


def nothing_in(pantry: Pantry) -> list[str]:
    if not pantry.considered:
        return ["has no finished trial with a checkpoint yet; go on with the search"]
    told = [f"{each.name}: {each.reason}" for each in pantry.skipped[:10]]
    return ["has no checkpoint that is whole", *told]


def dev_data(run: FinishedRun, data: Path | None, warn: Warn) -> DevData:
    """Read the run's data, and make sure that they are what the search saw."""
    from model.encoder import load_tokenizer
    from model.inputs import load_inputs
    from model.prepare import bfloat16_on, fill_in, find_device

    config = fill_in(run.space.config(run.space.default_point()))
    asked = Path(run.asked.data) if run.asked.data else None
    place = data or asked
    place = None if place is None else place.absolute()
    inputs = load_inputs(config, run.tasks, place, load_tokenizer(config.encoder.name), warn)
    if inputs.fingerprint != run.fingerprint:
        fault = "the data are not those of the search; name the folder where they are with --data"
        raise InputError(str(run.folder), [fault])
    rows = {name: of.dev for name, of in inputs.tasks.items()}
    return DevData(rows, bfloat16_on(config.precision, find_device(None)))


# --- soup.json ----------------------------------------------------------------------------------


def describe(
    run: FinishedRun,
    pantry: Pantry,
    kitchen: RunKitchen,
    results: Sequence[Result],
    written: set[str],
) -> Soup:
    group = [pantry.ingredients[number] for number in pantry.groups[0]]
    told = caution(run.space.config(run.space.default_point()).encoder.name, run.tasks)
    spent = kitchen.cost(kitchen.wanted)
    return {
        "format": 1,
        "run": run.state.name,
        "tasks": run.tasks.name,
        "task_set": run.tasks.origin,
        "time": time.time(),
        "data": run.fingerprint,
        "goal": run.goal,
        "candidates": pantry.considered,
        "ingredients": [
            {
                "name": each.name,
                "trial": each.trial,
                "checkpoint": each.checkpoint,
                "examples": each.examples,
                "score": each.score,
                "tasks": each.tasks,
                "sha256": each.sha256,
            }
            for each in group
        ],
        "skipped": [{"name": each.name, "reason": each.reason} for each in pantry.skipped],
        "groups": [[pantry.ingredients[n].name for n in numbers] for numbers in pantry.groups],
        "steps": steps_of(kitchen, run.goal),
        "methods": [method_entry(kitchen, r, r.name in written) for r in results],
        "cautions": [told] if told else [],
        "evaluations": spent,
        "ran": kitchen.cost(kitchen.ran),
    }


def steps_of(kitchen: RunKitchen, goal: str) -> list[Mapping[str, Any]]:
    steps = greedy_steps(Judge(kitchen, goal))
    apart = kitchen.pot.distances([step.candidate for step in steps], steps[0].candidate)
    return [
        {
            "ingredient": kitchen.ingredients[step.candidate].name,
            "score": step.score,
            "best": step.best,
            "accepted": step.accepted,
            "distance": far,
        }
        for step, far in zip(steps, apart, strict=True)
    ]


def method_entry(kitchen: RunKitchen, result: Result, written: bool) -> Mapping[str, Any]:
    difference, held = result.difference, result.held_out
    _, low, high = held.around()
    return {
        "name": result.name,
        "kind": result.kind,
        "about": METHODS[result.name].about,
        "members": members_of(kitchen, result.menu),
        "weights": weights_of(result.menu),
        "heads": heads_of(kitchen, result.menu),
        "score": vars(result.score),
        "overall": vars(result.overall),
        "tasks": {
            task.name: {"metric": task.metric, **vars(result.tasks[task.name])}
            for task in kitchen.tasks
        },
        "difference": None
        if difference is None
        else {**difference._asdict(), "tie": difference.tie},
        "cross_fitted": {
            "value": held.value,
            "low": low,
            "high": high,
            "gap": result.gap,
            "halvings": result.halvings,
        },
        "models": result.models,
        "evaluations": result.evaluations,
        "folder": place_of(result) if written else None,
        "predictions": f"{SOUP}/predictions/{slug(result.name)}.parquet",
    }


def settings_of(run: FinishedRun, soup: Soup) -> dict[str, dict[str, Any]]:
    """What was searched, of every trial in the greedy soup."""
    chosen = [step["ingredient"].split("/")[0] for step in soup["steps"] if step["accepted"]]
    return {trial: dict(run.state.trials[trial].params) for trial in chosen}


def read_soup(folder: Path) -> Soup | None:
    """What the run's soup.json says; None if there is none."""
    try:
        data: Soup = json.loads((folder / SOUP / SOUP_JSON).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data
