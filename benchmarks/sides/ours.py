"""A run of ours, stepped by the code that every run is stepped by."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.config.parse import parse_settings
from model.data.batches import RowNumbers, TaskStream
from model.tasks.task_set import TaskSet
from model.training.prepare import ProcessCache, prepare
from model.training.run import TrainingRun

WARM_UP = 3  # steps, before the first that is timed


@dataclass
class Work:
    """What went through the model while it was timed."""

    examples: int = 0
    seconds: float = 0.0
    tokens: int = 0  # without padding
    places: int = 0  # with it
    flops: float = 0.0  # of matrix products on real tokens, forward and backward


class Ours:
    def __init__(
        self,
        tasks: TaskSet,
        data: Path | None,
        settings: dict[str, Any],
        *,
        cache: ProcessCache | None = None,
        typical: bool = False,
        even: int | None = None,
    ) -> None:
        """`typical`: one batch again and again; `even`: as many in a row are of all lengths."""
        config = parse_settings(
            {"encoder.name": "minilm", "batch.sizes": 16, "budget.epochs": 50, **settings}, tasks
        )
        prepared = prepare(config, tasks, data=data, warn=lambda line: None, cache=cache)
        for stream in prepared.streams.values():
            if typical:
                repeat_typical(stream)
            elif even:
                spread_evenly(stream, even)
        # Nothing is written into the folder: no evaluation, no checkpoint.
        self.run = TrainingRun(prepared, Path(tempfile.gettempdir()), data, lambda line: None)
        self.run.start_fresh()
        self.run.model.train()
        self.rounds = prepared.rounds(0)
        for _ in range(WARM_UP):
            self.run.advance(next(self.rounds))

    def steps(self, count: int) -> Work:
        run, work = self.run, Work()
        names = run.prepared.tasks.names
        planned = [next(self.rounds) for _ in range(count)]
        drawn = dict(run.progress.drawn)
        began = time.perf_counter()
        for tasks in planned:
            run.advance(tasks)
        work.seconds = time.perf_counter() - began
        for name in (names[task] for tasks in planned for task in tasks):
            self._count(name, drawn[name], work)
            drawn[name] += 1
        return work

    def rate(self, count: int) -> float:
        """Examples per second."""
        work = self.steps(count)
        return work.examples / work.seconds

    def _count(self, name: str, number: int, work: Work) -> None:
        batch = self.run.prepared.streams[name].batch(number)
        lengths = batch.attention_mask.sum(1).double()
        config: Any = self.run.model.encoder.config
        width, inner = config.hidden_size, config.intermediate_size
        per_token = 2 * (4 * width * width + 2 * width * inner)  # Q K V O, and up and down
        forward = per_token * lengths.sum() + 4 * width * (lengths**2).sum()  # QK and AV
        work.examples += len(batch.labels)
        work.tokens += int(lengths.sum())
        work.places += batch.attention_mask.numel()
        work.flops += 3 * config.num_hidden_layers * float(forward)


def repeat_typical(stream: TaskStream) -> None:
    """Give the batch of median length every time, so that factors compare like with like."""
    batches = by_length(stream)
    rows = batches[len(batches) // 2]
    stream.rows = lambda k: rows  # type: ignore[method-assign]


def spread_evenly(stream: TaskStream, count: int) -> None:
    """Give batches of which any `count` in a row stand for a whole pass.

    Ours are each of one length, so a few at random would be faster or slower than a pass is.
    """
    batches = by_length(stream)

    def rows(k: int) -> RowNumbers:
        turn, place = divmod(k, count)
        within = (turn * 0.618 + 0.5) % 1  # elsewhere in its part each time, evenly
        return batches[int((place + within) * len(batches) / count)]

    stream.rows = rows  # type: ignore[method-assign]


def by_length(stream: TaskStream) -> list[RowNumbers]:
    """The batches of the first pass, shortest first."""
    batches = [stream.rows(number) for number in range(stream.per_pass)]
    return sorted(batches, key=lambda rows: int(stream.tokens.lengths[rows].max()))
