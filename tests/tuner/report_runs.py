"""Runs to report on: one of the real search, with text that would do harm if it were let."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from model.common.files import to_yaml, write_atomic
from model.evaluation.scores import Score
from tests.tuner.search_runs import settings
from tests.tuner.soup_runs import made_up_method, made_up_soup, write_record
from tests.tuner.without_ray import without_ray
from tuner.runs.folder import LEDGER
from tuner.runs.ledger import Ledger
from tuner.runs.state import objective_value
from tuner.scoring.crossfit import Difference
from tuner.soup.record import (
    CrossFittedScore,
    IngredientRecord,
    Skipped,
    SoupRecord,
    StepRecord,
    TaskScore,
)

EVIL = "<script>window.harmed = true</script>"
EVIL_IMAGE = "<img src=x onerror='window.harmed = true'>"
ROWS = {"train": 48, "dev": 30}
WORDS = ("ash", "bee", "cod", "dew", "elm", "fig", "gnu", "hay", "ivy", "jay")


def write_tasks(folder: Path) -> Path:
    """A task set of three kinds, in files whose sentences and labels' names are markup."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)

    def sentence(row: int) -> str:
        plain = " ".join(rng.choice(WORDS, size=rng.integers(2, 8)))
        return f"{plain} {(EVIL, EVIL_IMAGE, '</script>', '& <b>', '')[row % 5]}".strip()

    for split, rows in ROWS.items():
        mood = [[str(r), sentence(r), f"<b>{r % 3}</b>"] for r in range(rows)]
        same = [[str(r), sentence(r), sentence(r + 1), str(r % 2)] for r in range(rows)]
        near = [[str(r), sentence(r), sentence(r + 2), str(r % 11 / 2)] for r in range(rows)]
        for name, lines in (("mood", mood), ("same", same), ("near", near)):
            head = ["id", "a", "b", "label"] if len(lines[0]) == 4 else ["id", "a", "label"]
            with open(folder / f"{name}-{split}.tsv", "w", newline="", encoding="utf-8") as file:
                form = {"quoting": csv.QUOTE_NONE, "quotechar": None, "lineterminator": "\n"}
                csv.writer(file, delimiter="\t", **form).writerows([head, *lines])

    def task(name: str, text: Any, **kind: Any) -> dict[str, Any]:
        files = {split: f"{name}-{split}.tsv" for split in ROWS}
        columns = {"id": "id", "text": text, "label": "label"}
        return {**kind, "format": "glue", "files": files, "columns": columns}

    names = [f"<b>{number}</b>" for number in range(3)]
    described = {
        "about": f"made up {EVIL}",
        "tasks": {
            "mood": task("mood", "a", classes=3, labels=names),
            "same": task("same", ["a", "b"], binary=True),
            "near": task("near", ["a", "b"], regression=[0, 5]),
        },
    }
    path = folder / "evil.yaml"
    write_atomic(path, to_yaml(described))
    return path


SPACE = """
about: for the report
tasks: {tasks}
base: {{encoder.name: tiny}}
parameters:
  optim.learning_rate: {{float: [1.0e-4, 1.0e-2], log: true}}
  encoder.dropout: {{float: [0, 0.3], step: 0.1}}
  batch.sizes: {{choice: [[8, 8, 8], [4, 4, 8]]}}
"""


def make_run(folder: Path, name: str = "first", **changes: Any) -> Path:
    """A real search of a few seconds on those tasks; what it lacks is written into its ledger."""
    from tuner import run_search

    data = folder / "data"
    tasks = data / "evil.yaml"
    if not tasks.exists():
        write_tasks(data)
        write_atomic(folder / "small.yaml", SPACE.format(tasks=tasks))
    request = settings(
        storage_path=folder / "runs", space=str(folder / "small.yaml"), data=str(data), name=name
    )
    request |= {"num_samples": 8, "max_examples": 96, "set": {}}
    request["early_stopping"] = False
    with without_ray():
        result = run_search(**{**request, "encoder": None, **changes})
    return Path(result.folder)


def add_failure(run: Path) -> None:
    """A trial that failed, with a reason that is markup."""
    with Ledger(run / LEDGER) as ledger:
        name = ledger.state.next_id
        point = {"params": {"batch.sizes": EVIL}, "settings": {}, "origin": "sampler", "seed": 0}
        ledger.append("created", trial=name, number=ledger.state.next_number, **point)
        ledger.append("started", trial=name, attempt=0, node=EVIL, pid=7)
        trace = f"Traceback\n  {EVIL_IMAGE}"
        ledger.append("failed", trial=name, kind="code", reason=f"bad {EVIL}", traceback=trace)


def add_soup(run: Path) -> SoupRecord:
    """A soup that was never made, as its file would say it."""
    from tests.tuner.search_runs import state_of

    state = state_of(run)
    best = state.ranked()[0]
    entry = best.chosen(state.objectives)
    assert entry is not None
    name = f"{best.id}/{entry['checkpoint']}"
    value = objective_value(entry, state.goal)
    common: dict[str, Any] = {
        "members": [name],
        "score": Score(value, value - 0.1, value + 0.1),
        "overall": Score(float(entry["score"]), 0.1, 0.9),
        "tasks": {
            task: TaskScore(of["value"], *of["interval"], of["metric"])
            for task, of in entry["tasks"].items()
        },
    }
    greedy = made_up_method(
        "greedy soup",
        "weights",
        **common,
        about=f"averaged {EVIL}",
        difference=Difference(0.01, -0.02, 0.04),
        cross_fitted=CrossFittedScore(value - 0.01, 0.1, 0.9, 0.01, 20),
        predictions=f"trials/{best.id}/{entry['predictions']}",
    )
    together = made_up_method(
        "all answer together",
        "predictions",
        **{**common, "members": {"mood": [name]}},
        difference=Difference(0.0, -0.02, 0.02),
        models=3,
    )
    soup = made_up_soup(
        run=run.name,
        candidates=4,
        ingredients=[IngredientRecord(name, best.id, entry["checkpoint"], 96, value, {}, "")],
        skipped=[Skipped("t0009/step-1", f"damaged {EVIL}")],
        groups=[[name], ["t0002/step-1"]],
        steps=[
            StepRecord(name, value, None, True, 0.0),
            StepRecord(EVIL, value - 0.01, value, False, 0.05),
        ],
        methods=[greedy, together, made_up_method("best single", "single", **common)],
        recommendation=f"take it {EVIL}",
        cautions=["mind the gap"],
    )
    write_record(run, soup)
    return soup
