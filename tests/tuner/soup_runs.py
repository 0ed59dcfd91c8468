"""Runs to make a soup of, without Ray: real trials of the tiny encoder; and made-up soups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.common.files import to_yaml, write_atomic
from model.evaluation.scores import Score
from model.modules.encoder import load_tokenizer
from model.train import train
from model.training.inputs import load_inputs
from model.training.prepare import ProcessCache, fill_in
from tuner.runs.folder import LEDGER, SPACE, fingerprints, write_run
from tuner.runs.ledger import Ledger
from tuner.runs.request import SearchRequest
from tuner.runs.retention import drop_states
from tuner.soup.average import SoupModel
from tuner.soup.combinations import WEIGHTS, combine
from tuner.soup.record import SOUP, SOUP_JSON, MethodRecord, SoupRecord
from tuner.space.space import load_space

ROWS = {"train": 160, "dev": 60, "test": 20}
TOY = """\
about: three tasks that even the tiny encoder learns in a few steps
tasks:
  mood:
    classes: [bad, fair, good]
    format: glue
    files: {train: mood-train.tsv, dev: mood-dev.tsv, test: mood-test.tsv}
    columns: {id: id, text: a, label: label}
  said:
    binary: true
    format: glue
    files: {train: said-train.tsv, dev: said-dev.tsv, test: said-test.tsv}
    columns: {id: id, text: [a, b], label: label}
  much:
    regression: [0, 4]
    format: glue
    files: {train: much-train.tsv, dev: much-dev.tsv, test: much-test.tsv}
    columns: {id: id, text: [a, b], label: label}
"""
# Settings that differ in what a soup must not mind.
POINTS: tuple[dict[str, Any], ...] = (
    {"encoder.dropout": 0.1, "optim.learning_rate": 5e-3},
    {"encoder.dropout": 0.0, "optim.learning_rate": 8e-3, "loss.weights": [2, 1, 0.2]},
    {"encoder.dropout": 0.2, "optim.learning_rate": 4e-3},
    {"encoder.dropout": 0.05, "optim.learning_rate": 6e-3, "loss.weights": [1, 1, 0.2]},
)


def write_toy(folder: Path) -> Path:
    """The task set's file, with its data beside it: a word decides, and a sixth is noise."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toy.yaml").write_text(TOY)
    rng = np.random.default_rng(0)
    marks = {"mood": ["bad", "fair", "good"], "said": ["no", "yes"], "much": ["x"] * 5}
    for task, words in marks.items():
        for split, rows in ROWS.items():
            lines = ["id\ta\tb\tlabel"]
            for number in range(rows):
                label = int(rng.integers(len(words)))
                mark = [words[label]] * (3 if task != "much" else label)
                text = " ".join(rng.permutation([*mark, *rng.choice(FILLERS, size=3)]))
                if rng.random() < 1 / 6:
                    label = int(rng.integers(len(words)))
                lines.append(f"{task}{split}{number}\t{text}\tthe {text}\t{label}")
            (folder / f"{task}-{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder / "toy.yaml"


FILLERS = "cat dog house tree film book".split()


def make_run(
    folder: Path,
    points: Sequence[Mapping[str, Any]] = POINTS,
    *,
    tasks: str,
    data: Path,
    examples: int = 240,
    evaluations: int = 1,
    **changes: Any,
) -> Path:
    """A run's folder as a search leaves it. `changes` are settings held in all trials.

    With more than one evaluation the trials are finals.
    """
    held = {"encoder.name": "tiny", "smart.weight": 0, "batch.sizes": [8, 8, 8], **changes}
    request = SearchRequest(tasks=tasks, data=str(data), set=held, keep=8)
    space = load_space("default", tasks, held)
    folder.mkdir(parents=True)
    write_atomic(folder / SPACE, to_yaml(space.to_dict()))
    cache = ProcessCache()
    config = fill_in(space.config(space.default_point()))
    tokenizer = load_tokenizer(config.encoder.name)
    inputs = load_inputs(config, space.task_set, data, tokenizer, _quiet)
    prints = fingerprints(inputs.fingerprint, space.task_set, "tiny")
    write_run(folder, request.to_dict(), prints)
    with Ledger(folder / LEDGER) as ledger:
        ledger.append(
            "run",
            version="1",
            name=folder.name,
            objectives=["overall"],
            num_samples=len(points),
            seed=0,
            sampler="tpe",
            resumed=False,
            rungs=[[examples // 3, 9], [examples, len(points)]] if evaluations > 1 else [],
        )
        for number, point in enumerate(points):
            add_trial(
                *(ledger, space, dict(point), number, folder, data, examples, cache),
                evaluations=evaluations,
            )
        ledger.append("end", reason="complete")
    return folder


def add_trial(
    ledger: Ledger,
    space: Any,
    point: dict[str, Any],
    number: int,
    folder: Path,
    data: Path,
    examples: int,
    cache: ProcessCache,
    evaluations: int = 1,
) -> None:
    name = ledger.state.next_id
    ledger.append(
        "created",
        trial=name,
        number=number,
        params={key: str(value) for key, value in point.items()},
        settings=point,
        origin="default" if number == 0 else "sampler",
        seed=0,
        level=int(evaluations > 1),
        length=examples,
    )
    every = examples // evaluations
    budget = {"budget.examples": examples, "budget.epochs": None, "budget.eval_every": every}
    config = space.config(point, space.task_set, budget)
    for record in train(
        config, space.task_set, out=folder / "trials" / name, data=data, cache=cache, warn=_quiet
    ):
        ledger.append("evaluated", trial=name, **record)
    ledger.append("finished", trial=name)
    drop_states(folder / "trials" / name)


def _quiet(line: str) -> None:
    pass


def mean_of(folders: Sequence[Path], weights: Sequence[float]) -> dict[str, Tensor]:
    of = combine(WEIGHTS, range(len(folders)), weights)
    model, _ = SoupModel(folders, 0, torch.device("cpu")).average({"": of})
    return dict(model.state_dict())


# --- soups that were never made -----------------------------------------------------------------


def made_up_method(name: str, kind: str, **known: Any) -> MethodRecord:
    nothing: dict[str, Any] = {
        "about": "",
        "members": ["t0000/step-00000200"],
        **dict.fromkeys(("weights", "heads", "difference", "cross_fitted", "folder")),
        "score": Score(0.5, 0.4, 0.6),
        "overall": Score(0.5, 0.4, 0.6),
        "tasks": {},
        "models": 1,
        "evaluations": 3.0,
        "predictions": None,
    }
    return MethodRecord(name=name, kind=kind, **{**nothing, **known})


def made_up_soup(**known: Any) -> SoupRecord:
    nothing: dict[str, Any] = {
        **dict.fromkeys(("run", "tasks", "task_set", "data", "recommendation"), ""),
        "time": 1763271021.5,
        "goal": "overall",
        "candidates": 1,
        **{name: [] for name in ("ingredients", "skipped", "groups", "steps", "cautions")},
        "evaluations": 5.0,
        "ran": 5.0,
        "recommended": "greedy soup",
        "seconds": 3.2,
    }
    return SoupRecord(**{**nothing, **known})


def write_record(run: Path, soup: SoupRecord) -> None:
    (run / SOUP).mkdir(exist_ok=True)
    (run / SOUP / SOUP_JSON).write_text(soup.to_json())
