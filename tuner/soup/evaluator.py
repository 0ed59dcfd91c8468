"""What a combination of checkpoints answers on dev, run once and kept on disk.

A checkpoint's own answers are those that the search kept. An average of weights has to be run, and
what it answered to a task is a file under the name of all that decides it: the ingredients' sha256,
their weights and the data. So a soup that was killed goes on, and nothing is evaluated twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import torch

from model.cli.text import short
from model.data.batches import Assembler
from model.evaluation.evaluate import Rows, evaluate
from model.evaluation.predictions import Predictions, write_predictions
from model.evaluation.scores import Array
from model.modules.device import find_device
from model.tasks.task_set import TaskSet
from model.training.inputs import Warn
from tuner.scoring.dev_predictions import read_rows, with_plain_names
from tuner.scoring.dev_rows import COLUMNS, DevRows
from tuner.scoring.ensemble import blend
from tuner.soup.average import SoupModel
from tuner.soup.combinations import WEIGHTS, Combination, TaskCombinations
from tuner.soup.ingredients import Ingredient

FORMAT = 1  # change it with anything that changes what an average answers


@dataclass(frozen=True)
class DevData:
    """The dev rows of a run, to run a model on."""

    rows: Mapping[str, Rows]
    precision: torch.dtype


class RunEvaluator:
    def __init__(
        self,
        *,
        tasks: TaskSet,
        ingredients: Sequence[Ingredient],
        group: Sequence[int],
        kept: Sequence[Mapping[str, Predictions]],  # of each ingredient, by task
        dev_rows: DevRows,
        fingerprint: str,
        data: Callable[[], DevData],
        folder: Path,
        log: Warn,
    ) -> None:
        self.tasks, self.ingredients, self.group = tasks, ingredients, group
        self.members: Sequence[int] = range(len(ingredients))
        # As in the search, where the early score of a stopped trial makes it no best one.
        finished = [number for number in self.members if ingredients[number].finished]
        self.singles: Sequence[int] = finished or self.members
        self.dev_rows = dev_rows
        self.labels: Mapping[str, Array] = dev_rows.labels
        self.fingerprint, self.folder, self.log = fingerprint, folder, log
        self._load = data
        self._kept = kept
        self._known_answers: dict[tuple[str, Combination], Predictions] = {}
        self.wanted: set[tuple[str, Combination]] = set()
        self.ran: set[tuple[str, Combination]] = set()  # now, and not known from before

    # --- answers ----------------------------------------------------------------------------

    def answer(self, combinations: Mapping[str, Combination]) -> dict[str, Predictions]:
        averages = {
            task: combination for task, combination in combinations.items() if combination.must_run
        }
        self.wanted.update(averages.items())
        missing = {t: d for t, d in averages.items() if not self._known(t, d)}
        trunks = dict.fromkeys((d.members, d.weights) for d in missing.values())
        for trunk in trunks:
            self._run({t: d for t, d in missing.items() if (d.members, d.weights) == trunk})
        return {task: self._serve(task, combination) for task, combination in combinations.items()}

    def _serve(self, task: str, combination: Combination) -> Predictions:
        if combination.single is not None:
            return self._kept[combination.single][task]
        if combination.rule == WEIGHTS or (task, combination) in self._known_answers:
            return self._known_answers[task, combination]
        found = blend(
            combination.rule,
            [self._kept[m][task] for m in combination.members],
            combination.weights,
        )
        self._known_answers[task, combination] = found
        return found

    def cost(self, wanted: set[tuple[str, Combination]]) -> float:
        """In evaluations of the whole of dev: one of a single task is a part of one."""
        sizes = {task: len(labels) for task, labels in self.labels.items()}
        spent = sum(sizes[task] for task, _ in wanted) / sum(sizes.values())
        return round(spent, 2)

    # --- running averages -------------------------------------------------------------------

    @cached_property
    def data(self) -> DevData:
        return self._load()

    @cached_property
    def soup_model(self) -> SoupModel:
        folders = [ingredient.model for ingredient in self.ingredients]
        return SoupModel(folders, self.group[0], find_device(None))

    def _run(self, combinations: TaskCombinations) -> None:
        began = time.perf_counter()
        model, tokenizer = self.soup_model.average(combinations)
        rows = {task: self.data.rows[task] for task in combinations}
        assembler = Assembler.of(tokenizer, model.spec.max_length)
        found = evaluate(model, rows, assembler, precision=self.data.precision)
        answers = with_plain_names(found.predictions)
        self.folder.mkdir(parents=True, exist_ok=True)
        for task, combination in combinations.items():
            own = found.predictions.filter(pc.equal(answers["task"], task))
            write_predictions(self._file(task, combination), own)
            self.ran.add((task, combination))
            self._known_answers[task, combination] = self.dev_rows.answer(task, answers)
        first = next(iter(combinations.values()))
        names = " + ".join(self.ingredients[member].name for member in first.members)
        what = "overall" if len(combinations) == len(self.tasks) else ", ".join(combinations)
        value = found.scores.overall.value
        seconds = time.perf_counter() - began
        self.log(f"soup of {names}: {what} {short(value)} ({seconds:.1f} s)")

    # --- what is kept on disk ---------------------------------------------------------------

    def _known(self, task: str, combination: Combination) -> bool:
        if (task, combination) in self._known_answers:
            return True
        try:
            table = read_rows(self._file(task, combination), COLUMNS)
            self._known_answers[task, combination] = self.dev_rows.answer(task, table)
        except (OSError, ValueError, pa.ArrowException):
            return False  # not evaluated yet, or a file that nobody wrote whole
        return True

    def _file(self, task: str, combination: Combination) -> Path:
        """Named by all that decides the answers. Only the relative weights do."""
        total = sum(combination.weights)
        parts = [
            [self.ingredients[member].sha256, weight / total]
            for member, weight in zip(combination.members, combination.weights, strict=True)
        ]
        head = None if combination.head is None else self.ingredients[combination.head].sha256
        told = json.dumps([FORMAT, self.fingerprint, task, parts, head])
        return self.folder / f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.parquet"
