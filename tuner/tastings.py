"""The kitchen of a run: what a dish answers on dev, run once and kept on disk.

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
import pyarrow.parquet as pq

from model.console import short
from model.data.batches import Assembler
from model.evaluate import Rows, evaluate, write_predictions
from model.inputs import Warn
from model.prepare import find_device
from model.scores import Array
from model.tasks import TaskSet
from tuner.blend import Served, blend
from tuner.dishes import WEIGHTS, Dish, Menu
from tuner.ingredients import Ingredient
from tuner.pot import Pot
from tuner.served import DevRows

FORMAT = 1  # change it with anything that changes what an average answers


@dataclass(frozen=True)
class DevData:
    """The dev rows of a run, to run a model on."""

    rows: Mapping[str, Rows]
    bfloat16: bool


class RunKitchen:
    def __init__(
        self,
        *,
        tasks: TaskSet,
        ingredients: Sequence[Ingredient],
        group: Sequence[int],
        kept: Sequence[Mapping[str, Served]],  # of each ingredient, by task
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
        self._tasted: dict[tuple[str, Dish], Served] = {}
        self.wanted: set[tuple[str, Dish]] = set()
        self.ran: set[tuple[str, Dish]] = set()  # now, and not known from before

    # --- answers ----------------------------------------------------------------------------

    def serve(self, menu: Mapping[str, Dish]) -> dict[str, Served]:
        averages = {task: dish for task, dish in menu.items() if dish.must_run}
        self.wanted.update(averages.items())
        missing = {t: d for t, d in averages.items() if not self._known(t, d)}
        trunks = dict.fromkeys((d.members, d.weights) for d in missing.values())
        for trunk in trunks:
            self._taste({t: d for t, d in missing.items() if (d.members, d.weights) == trunk})
        return {task: self._serve(task, dish) for task, dish in menu.items()}

    def _serve(self, task: str, dish: Dish) -> Served:
        if dish.single is not None:
            return self._kept[dish.single][task]
        if dish.how == WEIGHTS or (task, dish) in self._tasted:
            return self._tasted[task, dish]
        found = blend(dish.how, [self._kept[m][task] for m in dish.members], dish.weights)
        self._tasted[task, dish] = found
        return found

    def cost(self, wanted: set[tuple[str, Dish]]) -> float:
        """In evaluations of the whole of dev: one of a single task is a part of one."""
        sizes = {task: len(labels) for task, labels in self.labels.items()}
        spent = sum(sizes[task] for task, _ in wanted) / sum(sizes.values())
        return round(spent, 2)

    # --- running averages -------------------------------------------------------------------

    @cached_property
    def data(self) -> DevData:
        return self._load()

    @cached_property
    def pot(self) -> Pot:
        folders = [ingredient.model for ingredient in self.ingredients]
        return Pot(folders, self.group[0], find_device(None))

    def _taste(self, menu: Menu) -> None:
        began = time.perf_counter()
        model, tokenizer = self.pot.cook(menu)
        rows = {task: self.data.rows[task] for task in menu}
        assembler = Assembler.of(tokenizer, model.spec.max_length)
        found = evaluate(model, rows, assembler, bfloat16=self.data.bfloat16)
        for task, dish in menu.items():
            table = found.predictions.filter(
                pc.equal(found.predictions["task"].cast(pa.string()), task)
            )
            write_predictions(self._file(task, dish), table)
            self.ran.add((task, dish))
            self._tasted[task, dish] = self.dev_rows.serve(task, _plain(table))
        first = next(iter(menu.values()))
        names = " + ".join(self.ingredients[member].name for member in first.members)
        what = "overall" if len(menu) == len(self.tasks) else ", ".join(menu)
        value = found.scores.overall.value
        seconds = time.perf_counter() - began
        self.log(f"soup of {names}: {what} {short(value)} ({seconds:.1f} s)")

    # --- what is kept on disk ---------------------------------------------------------------

    def _known(self, task: str, dish: Dish) -> bool:
        if (task, dish) in self._tasted:
            return True
        try:
            table = pq.read_table(self._file(task, dish))
            self._tasted[task, dish] = self.dev_rows.serve(task, _plain(table))
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return False  # not tasted yet, or a file that nobody wrote whole
        return True

    def _file(self, task: str, dish: Dish) -> Path:
        """Named by all that decides the answers. Only the relative weights do."""
        total = sum(dish.weights)
        parts = [
            [self.ingredients[member].sha256, weight / total]
            for member, weight in zip(dish.members, dish.weights, strict=True)
        ]
        head = None if dish.head is None else self.ingredients[dish.head].sha256
        told = json.dumps([FORMAT, self.fingerprint, task, parts, head])
        return self.folder / f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.parquet"


def _plain(table: pa.Table) -> pa.Table:
    """The tasks' names as plain text."""
    place = table.column_names.index("task")
    return table.set_column(place, "task", table["task"].cast(pa.string()))
