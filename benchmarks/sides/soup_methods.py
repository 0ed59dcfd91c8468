"""What every method of a run's soup is worth: cross-fitted on dev, and on rows that nobody saw."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from model.common.files import sha256_of
from model.data.rows import labels_of
from model.evaluation.predictions import Predictions
from tuner.predict.predictor import Texts, load_predictor
from tuner.scoring.crossfit import paired_differences
from tuner.scoring.dev_predictions import Answers as DevAnswers
from tuner.scoring.dev_predictions import DevPredictions
from tuner.scoring.ensemble import blend
from tuner.soup.average import weight_files
from tuner.soup.methods import BEST
from tuner.soup.record import MethodRecord, SoupRecord, read_soup

from .held_out import Material, score_answers, texts_of
from .outcome_table import ERROR
from .program import run_program

Answers = dict[str, Predictions]  # by task


def write_methods(run: Path) -> SoupRecord:
    """A search tries few of all methods, and writes few of these as models. What it evaluated is
    not evaluated again."""
    run_program([sys.executable, "-m", "tuner.soup", str(run), "--folders", "--quiet"])
    soup = read_soup(run)
    assert soup is not None  # or the program would have failed
    return soup


def score_methods(run: Path, soup: SoupRecord, material: Material) -> dict[str, dict[str, Any]]:
    """By method what its row has to tell. Dev was scored by the soup itself, on the same rows."""
    tasks, rows = material.tasks, material.held_out
    models = ModelAnswers({task.name: texts_of(task, rows[task.name]) for task in tasks})
    answers = {
        method.name: {
            task: blend(part.rule, [models.of(m)[task] for m in part.models], part.weights)
            for task, part in load_predictor(run, method.name).parts.items()
        }
        for method in soup.methods
    }
    found = {}
    for method in soup.methods:
        scores = score_answers(tasks, rows, answers[method.name])
        found[method.name] = on_dev(method) | {
            "held_out": scores.overall.value,
            ERROR: error_of(answers[method.name], answers[BEST], material),
            **{f"held_out.{task}": score.value for task, score in scores.tasks.items()},
        }
    return found


def error_of(answers: Answers, others: Answers, material: Material) -> float:
    """Standard error of what they score more than the others: of the rows, drawn anew in pairs."""
    both = {
        task.name: DevAnswers(
            labels_of(material.held_out[task.name]),
            np.stack([each[task.name].values for each in (answers, others)]),
        )
        for task in material.tasks
    }
    pair = DevPredictions(["", ""], both)
    return paired_differences(pair[0], pair[1], material.tasks).overall.standard_error


def on_dev(method: MethodRecord) -> dict[str, Any]:
    fitted = method.cross_fitted
    return {
        "dev": method.overall.value,
        **{f"dev.{task}": score.value for task, score in method.tasks.items()},
        "cross_fitted": None if fitted is None else fitted.value,
        "models": method.models,
    }


class ModelAnswers:
    """Of one model after the other. Most methods share theirs, so each is run once."""

    def __init__(self, texts: Mapping[str, Texts]) -> None:
        self.texts = texts
        self.known: dict[tuple[str, ...], Answers] = {}

    def of(self, folder: Path) -> Answers:
        weights = tuple(sha256_of(path) for path in weight_files(folder))
        if weights not in self.known:
            self.known[weights] = load_predictor(folder).answer_texts(self.texts)
        return self.known[weights]
