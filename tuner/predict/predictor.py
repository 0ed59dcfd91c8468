"""Whatever answers tasks, under one face: a model folder, a set of models, an ensemble, a run.

Models are loaded one after the other, so an ensemble needs the memory of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from model.common.errors import InputError, suggest
from model.common.files import read_yaml
from model.common.run_files import CONFIG
from model.common.untrusted import read_json
from model.data.batches import Assembler
from model.data.tokens import Tokens
from model.evaluation.evaluate import outputs_of, rows_from_texts
from model.evaluation.model_folder import (
    ClassNames,
    Prediction,
    read_class_names,
    read_model,
    read_spec,
)
from model.evaluation.predictions import Predictions
from model.modules.device import find_device
from model.modules.multitask import TaskSpec
from tuner.predict.choose import choose
from tuner.runs.folder import RUN, SPACE, read_run
from tuner.scoring.ensemble import blend
from tuner.soup.ensemble_file import ENSEMBLE, EnsembleMember, read_ensemble
from tuner.soup.record import SOUP_JSON

Key = tuple[str, str]  # a task, and whatever tells its rows apart
Texts = Sequence[str] | Sequence[tuple[str, str]]


Tokeniser = Callable[[TaskSpec, Any, Any], Tokens]  # task, rows, tokenizer


class Question(NamedTuple):
    """Rows of a task, to one model."""

    folder: Path
    task: str
    rows: Any
    tokens: Tokeniser


AnswerModels = Callable[[Sequence[Question]], Iterable[Predictions]]


class LastModel:
    """Whoever asks one model several times in a row has it loaded once."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def answer(self, question: Question) -> Predictions:
        folder, name, rows, tokens = question
        if folder != self.folder:
            model, self.tokenizer = read_model(folder)
            self.model, self.folder = model.to(find_device(None)), folder
        task = self.model.tasks[name]
        assembler = Assembler.of(self.tokenizer, self.model.spec.max_length)
        outputs = outputs_of(self.model, name, tokens(task, rows, self.tokenizer), assembler)
        return Predictions.of_outputs(task, outputs)


def answer_here(questions: Sequence[Question]) -> list[Predictions]:
    return list(map(LastModel().answer, questions))


@dataclass(frozen=True)
class Predictor:
    """Answers the tasks of a run: `predict("sentiment", ["never dull"])`."""

    place: Path
    parts: Mapping[str, EnsembleMember]  # by task
    tasks: Mapping[str, TaskSpec]
    class_names: ClassNames
    who: str  # answers, and why: "the greedy ensemble (5 models), which the search recommends"

    def __repr__(self) -> str:
        return f"Predictor({', '.join(self.tasks)}; {self.who})"

    def predict(
        self, task: str, texts: Iterable[str] | Iterable[tuple[str, str]]
    ) -> list[Prediction]:
        """An answer per sentence, or per pair of sentences for a task of pairs, in order."""
        given: Any = list(texts)
        found = self.answer_texts({self.known(task): given})[task]
        likely = found.probabilities
        rows = [None] * len(given) if likely is None else [tuple(row) for row in likely.tolist()]
        names: Sequence[str | None] = found.names or [None] * len(given)
        return [Prediction(*each) for each in zip(found.values.tolist(), rows, names, strict=True)]

    def known(self, task: str) -> str:
        if task not in self.tasks:
            raise InputError("--task", [f"no task '{task}' here; {suggest(task, self.tasks)}"])
        return task

    def answer(
        self, rows: Mapping[Key, Any], tokens: Tokeniser, models: AnswerModels | None = None
    ) -> dict[Key, Predictions]:
        """Of rows in any form that `tokens` (task, rows, tokenizer) understands.

        `models` answer in place of those of this process.
        """
        folders = dict.fromkeys(m for task, _ in rows for m in self.parts[task].models)
        pairs = [(f, key) for f in folders for key in rows if f in self.parts[key[0]].models]
        questions = [Question(folder, key[0], rows[key], tokens) for folder, key in pairs]
        found: dict[Key, dict[Path, Predictions]] = {key: {} for key in rows}
        answers = (models or answer_here)(questions)
        for (folder, key), answer in zip(pairs, answers, strict=True):
            found[key][folder] = answer
        return {key: self._blended(key[0], of) for key, of in found.items()}

    def answer_texts(
        self, texts: Mapping[str, Texts], models: AnswerModels | None = None
    ) -> dict[str, Predictions]:
        rows = {(task, ""): some for task, some in texts.items()}
        answers = self.answer(rows, rows_from_texts, models)
        return {task: found for (task, _), found in answers.items()}

    def _blended(self, task: str, of: Mapping[Path, Predictions]) -> Predictions:
        part = self.parts[task]
        found = blend(part.rule, [of[model] for model in part.models], part.weights)
        return replace(found, class_names=self.class_names.get(task, ()))

    @property
    def task_set(self) -> str:
        """The name or file of the task set that it was trained on."""
        for notes in self._notes():
            found = notes.get("task_set") or notes.get("tasks")
            if isinstance(found, str):
                return found
        fault = "does not say which task set it was trained on; name it with --tasks"
        raise InputError(str(self.place), [fault])

    @property
    def data(self) -> Path | None:
        """Where its data were; None where the task set needs none, or nobody knows."""
        for notes in self._notes():
            found = notes.get("data")  # of a soup it is a fingerprint
            if isinstance(found, str) and Path(found).is_dir():
                return Path(found)
        return None

    def _notes(self) -> list[dict[str, Any]]:
        """What lies beside the model, or in the folders above it: of the soup, trial or run.

        A checkpoint's model is the deepest: <run>/trials/<id>/checkpoints/<name>/model.
        """
        found = []
        for folder in (self.place, *self.place.parents[:5]):
            for name in (SOUP_JSON, ENSEMBLE, CONFIG, SPACE):
                if (folder / name).is_file():
                    found.append(_read(folder / name))
            if (folder / RUN).is_file():
                found.append(read_run(folder)["request"])
                break
        return found


def load_predictor(path: Path | str, model: str | None = None) -> Predictor:
    """Of a run what it recommends (`who` says what that is), or the best trial without a soup.

    `model` is another of the run's by its name: a method's (`greedy soup`), a trial's (`t0003`),
    `best` or `default`. Any folder of a model, ensemble, checkpoint or trial stands for itself.
    """
    chosen = choose(Path(path).absolute(), model)
    place, who = chosen.place, chosen.who
    if (place / ENSEMBLE).is_file():
        ensemble = read_ensemble(place)
        specs: dict[str, TaskSpec] = {}
        for task, part in ensemble.parts.items():
            known = {spec.name: spec for spec in read_spec(part.models[0]).tasks}
            if task not in known:
                raise InputError(str(place / ENSEMBLE), [f"{part.models[0]} has no task '{task}'"])
            specs[task] = known[task]
        names = {task: read_class_names(part.models[0]) for task, part in ensemble.parts.items()}
        named = {task: of[task] for task, of in names.items() if task in of}
        return Predictor(place, ensemble.parts, specs, named, who)
    tasks = {task.name: task for task in read_spec(place).tasks}
    alone = EnsembleMember("mean", (place,), (1.0,))
    return Predictor(place, dict.fromkeys(tasks, alone), tasks, read_class_names(place), who)


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".yaml":
        return read_yaml(path, links=False).data
    try:
        data = read_json(path)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
