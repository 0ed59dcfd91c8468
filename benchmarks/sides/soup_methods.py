"""What every method of a run's soup is worth: cross-fitted on dev, and on rows that nobody saw."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.common.files import sha256_of
from model.evaluation.predictions import Predictions
from tuner.predict.predictor import Texts, load_predictor
from tuner.scoring.ensemble import blend
from tuner.soup.average import weight_files
from tuner.soup.record import MethodRecord, SoupRecord

from .held_out import Material, score_answers, texts_of
from .program import run_program

Answers = dict[str, Predictions]  # by task


def write_methods(run: Path, soup: SoupRecord) -> None:
    """A search writes few of its soups as models. What it evaluated is not evaluated again."""
    names = ",".join(method.name for method in soup.methods)
    command = [sys.executable, "-m", "tuner.soup", str(run), "--methods", names]
    run_program([*command, "--folders", "--quiet"])


def score_methods(run: Path, soup: SoupRecord, material: Material) -> dict[str, dict[str, Any]]:
    """By method what its row has to tell. Dev was scored by the soup itself, on the same rows."""
    texts = {t.name: texts_of(t, material.held_out[t.name]) for t in material.tasks}
    models = ModelAnswers(texts)
    found = {}
    for method in soup.methods:
        parts = load_predictor(run, method.name).parts
        answers = {
            task: blend(part.rule, [models.of(m)[task] for m in part.models], part.weights)
            for task, part in parts.items()
        }
        scores = score_answers(material.tasks, material.held_out, answers)
        found[method.name] = on_dev(method) | {
            "held_out": scores.overall.value,
            **{f"held_out.{task}": score.value for task, score in scores.tasks.items()},
        }
    return found


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
