"""What a combination of checkpoints answers on dev, run once and kept on disk.

A checkpoint's own answers are those that the search kept. An average of weights has to be run, and
what it answered to a task is a file under the name of all that decides it: the ingredients' sha256,
their weights and the data. So a soup that was killed goes on, and nothing is evaluated twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from model.evaluation.predictions import Predictions, write_predictions
from model.evaluation.scores import Array
from model.tasks.task_set import TaskSet
from model.training.inputs import Warn
from tuner.scoring.dev_predictions import read_rows, with_plain_names
from tuner.scoring.dev_rows import COLUMNS, DevRows
from tuner.scoring.ensemble import blend
from tuner.soup.average import SoupModel
from tuner.soup.combinations import AVERAGES, WEIGHTS, Combination, TaskCombinations, single
from tuner.soup.ingredients import Ingredient
from tuner.soup.runner import LocalRunner, Runner

FORMAT = 1  # change it with anything that changes what an average answers
BLENDS = 64  # of answers, kept at a time: there may be thousands of as many rows as dev has


def trunk_of(combination: Combination) -> Combination:
    """Combinations of one trunk are run as one model, each task with its head."""
    return replace(combination, head=None)


class RunEvaluator:
    def __init__(
        self,
        *,
        tasks: TaskSet,
        ingredients: Sequence[Ingredient],
        group: Sequence[int],
        kept: Sequence[Mapping[str, Predictions] | None],  # of each ingredient, by task
        dev_rows: DevRows,
        fingerprint: str,
        local: LocalRunner,
        runner: Runner | None = None,  # who runs averages, if not this process
        folder: Path,
        log: Warn,
    ) -> None:
        self.tasks, self.ingredients, self.group = tasks, ingredients, group
        self.members: Sequence[int] = [n for n, i in enumerate(ingredients) if not i.distilled]
        distilled = [n for n, i in enumerate(ingredients) if i.distilled]
        self.distilled = distilled[0] if distilled else None
        # As in the search, where the early score of a stopped trial makes it no best one.
        finished = [number for number in self.members if ingredients[number].finished]
        self.singles: Sequence[int] = finished or self.members
        self.dev_rows = dev_rows
        self.labels: Mapping[str, Array] = dev_rows.labels
        self.fingerprint, self.folder, self.log = fingerprint, folder, log
        self.trials: Sequence[str] = [ingredient.record.trial for ingredient in ingredients]
        self.local, self.runner = local, runner or local
        self.at_once = self.runner.at_once
        self._blended = lru_cache(BLENDS)(self._blend)
        self._kept = {n: answers for n, answers in enumerate(kept) if answers is not None}
        self._known_answers: dict[tuple[str, Combination], Predictions] = {}
        self.wanted: set[tuple[str, Combination]] = set()
        self.ran: set[tuple[str, Combination]] = set()  # now, and not known from before
        self._lock = Lock()
        self._running: dict[tuple[str, Combination], Future[None]] = {}

    def evaluate_lost(self) -> None:
        """Run the ingredients whose dev predictions are lost, as averages are run."""
        lost = [n for n in range(len(self.ingredients)) if n not in self._kept]

        def evaluate(number: int) -> None:
            alone = dict.fromkeys(self.tasks.names, single(number))
            self._run_missing(alone)
            self._kept[number] = {task: self._known_answers[task, alone[task]] for task in alone}

        with ThreadPoolExecutor(self.at_once) as pool:
            list(pool.map(evaluate, lost))
        self.labels = self.dev_rows.labels

    # --- answers ----------------------------------------------------------------------------

    def answer(self, combinations: Mapping[str, Combination]) -> dict[str, Predictions]:
        averages = {
            task: combination for task, combination in combinations.items() if combination.must_run
        }
        self.wanted.update(averages.items())
        self._run_missing(averages)
        return {task: self._serve(task, combination) for task, combination in combinations.items()}

    def _serve(self, task: str, combination: Combination) -> Predictions:
        if combination.single is not None:
            return self._kept[combination.single][task]
        if combination.rule in AVERAGES:
            return self._known_answers[task, combination]
        return self._blended(task, combination)

    def _blend(self, task: str, of: Combination) -> Predictions:
        return blend(of.rule, [self._kept[m][task] for m in of.members], of.weights)

    def able(self, task: str) -> Sequence[int]:
        return self.members

    def cost(self, wanted: set[tuple[str, Combination]]) -> float:
        """In evaluations of the whole of dev: one of a single task is a part of one."""
        sizes = {task: len(labels) for task, labels in self.labels.items()}
        spent = sum(sizes[task] for task, _ in wanted) / sum(sizes.values())
        return round(spent, 2)

    # --- running averages -------------------------------------------------------------------

    @property
    def soup_model(self) -> SoupModel:
        return self.local.soup_model

    def _run_missing(self, averages: TaskCombinations) -> None:
        """Run what is not known. What another thread is running is waited for, not run again."""
        mine: TaskCombinations = {}
        theirs: list[Future[None]] = []
        with self._lock:
            for pair in averages.items():
                if pair in self._running:
                    theirs.append(self._running[pair])
                elif not self._known(*pair):
                    mine[pair[0]], self._running[pair] = pair[1], Future()
        try:
            for trunk in dict.fromkeys(map(trunk_of, mine.values())):
                self._run({t: d for t, d in mine.items() if trunk_of(d) == trunk})
        finally:
            with self._lock:
                for pair in mine.items():
                    self._running.pop(pair).set_result(None)
        if theirs:
            wait(theirs)
            self._run_missing(averages)  # in case they failed

    def _run(self, combinations: TaskCombinations) -> None:
        began = time.perf_counter()
        found = self.runner.run(combinations)
        answers = with_plain_names(found)
        self.folder.mkdir(parents=True, exist_ok=True)
        for task, combination in combinations.items():
            own = found.filter(pc.equal(answers["task"], task))
            write_predictions(self._file(task, combination), own)
            self.ran.add((task, combination))
            self._known_answers[task, combination] = self.dev_rows.answer(task, answers)
        first = next(iter(combinations.values()))
        names = " + ".join(self.ingredients[member].name for member in first.members)
        of = "" if len(combinations) == len(self.tasks) else f" on {', '.join(combinations)}"
        self.log(f"evaluated {names}{of} ({time.perf_counter() - began:.1f} s)")

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

        def parts(of: Combination) -> list[list[Any]]:
            total = sum(of.weights)
            pairs = zip(of.members, of.weights, strict=True)
            return [[self.ingredients[member].sha256, weight / total] for member, weight in pairs]

        head: Any = combination.head
        if head is not None:
            alone = head.single
            head = parts(head) if alone is None else self.ingredients[alone].sha256
        other = [] if combination.rule == WEIGHTS else [combination.rule]
        told = json.dumps([FORMAT, self.fingerprint, task, parts(combination), head, *other])
        return self.folder / f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.parquet"
