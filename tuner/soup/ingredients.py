"""What can go into a soup: the kept checkpoints of a run, checked, and grouped by what fits.

Weights can be averaged if they belong to the same function of the same input, started from the
same place. So dropouts, learning rates and loss weights may differ; the encoder, its start, the
heads' shapes, the pair encodings, PALs and the tokenizer may not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from model.common.errors import InputError
from model.common.files import sha256_of
from model.common.untrusted import read_json
from model.evaluation.model_folder import read_spec
from model.modules.multitask import ModelSpec
from model.training.checkpoint import MANIFEST, DamagedCheckpoint, verify
from tuner.runs.folder import model_folder, trial_folder
from tuner.runs.retention import wanted
from tuner.runs.state import DISTILLED, RunState, TrialState, objective_value
from tuner.soup.average import first_unfit, shapes_of
from tuner.soup.record import IngredientRecord, Skipped
from tuner.space.space import Space

# Of an encoder's config.json: what does not change the function that is computed. So does
# whatever speaks of dropout, which is off when a model is used.
BESIDE = {
    "_name_or_path",
    "architectures",
    "dtype",
    "initializer_range",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}
TOKENIZER = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model")
Facts = dict[str, Any]  # what two ingredients must have in common


@dataclass(frozen=True)
class Ingredient:
    record: IngredientRecord
    model: Path  # its folder, in that of the checkpoint
    predictions: Path
    finished: bool = True  # its trial, which was not stopped early
    distilled: bool = False  # taught by an ensemble of the others, so no ingredient itself

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def sha256(self) -> str:
        return self.record.sha256


@dataclass(frozen=True)
class Candidates:
    """The ingredients that are whole, the best single first, and which of them fit together."""

    ingredients: list[Ingredient]  # and behind them what was distilled, which is in no group
    groups: list[list[int]]  # numbers of ingredients; the group of the best one first
    skipped: list[Skipped]  # also those that are whole and do not fit the best
    considered: int


def collect(
    state: RunState,
    folder: Path,
    space: Space,
    *,
    keep: int,
    goal: str,
    read: Callable[[Ingredient], None],
) -> Candidates:
    """The best `keep` trials' checkpoints, the finals' last, the best of tasks, the default's.

    `read` takes in an ingredient's dev predictions, and raises ValueError for unfit ones.
    """
    found: list[tuple[Ingredient, Facts]] = []
    skipped: list[Skipped] = []
    candidates = candidates_of(state, folder, keep, goal)
    for trial, ingredient in candidates:
        try:
            whole = check(ingredient)
            facts = facts_of(whole, trial, space)
            read(whole)
            found.append((whole, facts))
        except (DamagedCheckpoint, InputError, OSError, ValueError) as error:
            reason = error.faults[0] if isinstance(error, InputError) else str(error)
            skipped.append(Skipped(ingredient.name, " ".join(reason.split())))
    groups = group([facts for ingredient, facts in found if not ingredient.distilled])
    for others in groups[1:]:
        for number in others:
            (best, wanted_facts), (other, facts) = found[groups[0][0]], found[number]
            why = differences(facts, wanted_facts)
            reason = f"does not fit {best.name}: {why}; only in ensembles"
            skipped.append(Skipped(other.name, reason))
    return Candidates([ingredient for ingredient, _ in found], groups, skipped, len(candidates))


def candidates_of(
    state: RunState, folder: Path, keep: int, goal: str
) -> list[tuple[TrialState, Ingredient]]:
    """Of finished trials first, then best first; of equals the earlier trial, then checkpoint.

    So the first is what the search calls its best, also where one that was stopped early had a
    higher score for a while.
    """
    found = []
    best = state.best_trial()
    for name, checkpoints in wanted(state, keep).items():
        trial = state.trials[name]
        if best is not None and trial.length != best.length:
            continue  # it was only tried: so short a training adds nothing to a full one
        for entry in trial.evaluations:
            if entry.get("checkpoint") in checkpoints:
                found.append((trial, _ingredient(trial, entry, folder, goal)))

    def place(pair: tuple[TrialState, Ingredient]) -> tuple[bool, bool, float, int, int]:
        trial, ingredient = pair
        of = ingredient.record
        first = (ingredient.distilled, not ingredient.finished)
        return (*first, -of.score, trial.order, of.examples)

    return sorted(found, key=place)


def _ingredient(trial: TrialState, entry: Any, folder: Path, goal: str) -> Ingredient:
    checkpoint = entry["checkpoint"]
    record = IngredientRecord(
        name=f"{trial.id}/{checkpoint}",
        trial=trial.id,
        checkpoint=checkpoint,
        examples=int(entry["examples"]),
        score=objective_value(entry, goal),
        tasks={name: float(of["value"]) for name, of in entry.get("tasks", {}).items()},
        sha256="",
    )
    return Ingredient(
        record,
        model_folder(folder, trial.id, checkpoint),
        trial_folder(folder, trial.id) / str(entry.get("predictions", "")),
        finished=trial.status == "finished",
        distilled=trial.origin == DISTILLED,
    )


# --- one by one ---------------------------------------------------------------------------------


def check(ingredient: Ingredient) -> Ingredient:
    """With its sha256, if it is whole; raises what is wrong with it."""
    if not ingredient.model.is_dir():
        raise DamagedCheckpoint("its checkpoint is not there any more")
    place = ingredient.model.parent
    verify(place, "model/")
    if (name := first_unfit(ingredient.model)) is not None:
        raise DamagedCheckpoint(f"'{name}' has values that are no finite numbers")
    sums = read_json(place / MANIFEST)
    own = sorted((name, value) for name, value in sums.items() if name.startswith("model/"))
    digest = hashlib.sha256(json.dumps(own).encode()).hexdigest()
    return replace(ingredient, record=replace(ingredient.record, sha256=digest))


def facts_of(ingredient: Ingredient, trial: TrialState, space: Space) -> Facts:
    folder = ingredient.model
    settings = space.config(trial.settings)
    spec = read_spec(folder)
    facts: Facts = {"start": settings.encoder.name, "init_from": settings.init_from}
    if spec.head_hidden or spec.adapter != "none":
        # Hidden units of two random starts stand in another order: their mean means nothing.
        facts["seed of heads"] = trial.seed
    facts |= spec_facts(spec)
    config = read_json(folder / "config.json")
    facts |= {
        f"encoder.{key}": value
        for key, value in config.items()
        if key not in BESIDE and "dropout" not in key
    }
    facts["tokenizer"] = tokenizer_fact(folder)
    facts |= {f"shape of {name}": list(shape) for name, shape in shapes_of(folder).items()}
    return facts


def spec_facts(spec: ModelSpec) -> Facts:
    """What a model is made of, as far as its answers go."""
    data = spec.to_dict()
    for beside in ("head_dropout", "learning_rate"):
        data.pop(beside)
    facts: Facts = {}
    for task in data.pop("tasks"):
        task.pop("metric")
        # Only this one makes probabilities in a way of its own.
        task["sigmoids"] = task.pop("loss") == "dual_objective"
        facts |= {f"{task['name']}.{key}": value for key, value in task.items()}
    return data | facts


def tokenizer_fact(folder: Path) -> str:
    """A digest of the words; how the tokenizer was last called is no part of it."""
    if (path := folder / "tokenizer.json").is_file():
        state = read_json(path, finite=False)
        state.pop("truncation", None)
        state.pop("padding", None)
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
    return " ".join(
        sha256_of(folder / name, links=False) for name in TOKENIZER if (folder / name).is_file()
    )


# --- together -----------------------------------------------------------------------------------


def group(facts: Sequence[Facts]) -> list[list[int]]:
    """Numbers of those that agree in everything, in the order in which they first occur."""
    groups: list[list[int]] = []
    for number, mine in enumerate(facts):
        for others in groups:
            if facts[others[0]] == mine:
                others.append(number)
                break
        else:
            groups.append([number])
    return groups


def differences(mine: Facts, best: Facts, shown: int = 2) -> str:
    """What is different about this one, in words."""
    keys = [key for key in {**best, **mine} if mine.get(key) != best.get(key)]
    told = []
    for key in keys[:shown]:
        if key == "tokenizer":
            told.append("another tokenizer")
        else:
            told.append(f"{key} is {_said(mine, key)}, not {_said(best, key)}")
    more = f" and {len(keys) - shown} more" if len(keys) > shown else ""
    return ", ".join(told) + more


def _said(facts: Facts, key: str) -> str:
    return str(facts[key]) if key in facts else "missing"
