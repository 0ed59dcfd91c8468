"""A model's answers on a set of rows, scored, and kept per example."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from model.common.errors import InputError
from model.data.batches import Assembler, Batch, RowNumbers, eval_batches
from model.data.clean import CLEAN
from model.data.tokens import Tokens, encode_texts
from model.evaluation.predictions import Predictions, join_tables, predictions_table
from model.evaluation.scores import Array, Score, Scored, Scores, further, score
from model.modules.device import autocast, place
from model.modules.multitask import MultitaskModel, TaskSpec
from model.objectives.losses import IN_BATCH, make_loss

EVAL_BATCH = 32  # the quickest where each thread has its own batch (docs/performance.md)
# So that a GPU has enough to do, and room for it beside what training keeps there; not measured.
EVAL_BATCH_ON_GPU, EVAL_TOKENS_ON_GPU = 256, 256 * 128


@dataclass(frozen=True)
class Rows:
    """Labelled rows of one task, tokenised."""

    tokens: Tokens
    labels: Array
    ids: Sequence[str]
    metric: str
    weight: float
    also: tuple[str, ...] = ()  # metrics that are shown beside


@dataclass(frozen=True)
class Evaluation:
    scores: Scores
    losses: dict[str, float]
    predictions: pa.Table
    also: dict[str, dict[str, Score]]  # by task and metric, those that do not count


def outputs_of(
    model: MultitaskModel,
    task: str,
    tokens: Tokens,
    assembler: Assembler,
    *,
    batch_size: int | None = None,
    precision: torch.dtype = torch.float32,
    rows: RowNumbers | None = None,
) -> Tensor:
    """The raw outputs of every row, or of these, in their order, [rows, outputs], on the CPU."""
    width = model.tasks[task].outputs
    return _each_row(model, width, model, task, tokens, assembler, batch_size, precision, rows)


def features_of(model: MultitaskModel, task: str, tokens: Tokens, assembler: Assembler) -> Tensor:
    """What the task's head reads of every row, in the rows' order, [rows, width], on the CPU."""
    width = model.features_width(task)
    return _each_row(model.features, width, model, task, tokens, assembler)


def _each_row(
    work: Callable[[str, Batch], Tensor],
    width: int,
    model: MultitaskModel,
    task: str,
    tokens: Tokens,
    assembler: Assembler,
    batch_size: int | None = None,
    precision: torch.dtype = torch.float32,
    some: RowNumbers | None = None,
) -> Tensor:
    """What the work makes of every row, [rows, width], in batches of rows of like length."""
    device = next(model.parameters()).device
    on_cpu, assembler = device.type == "cpu", assembler.on(device)
    batch_size = batch_size or (EVAL_BATCH if on_cpu else rows_on_gpu(tokens, assembler.max_length))
    outputs = torch.zeros(len(tokens), width)
    training = model.training
    model.eval()
    # The longest first, so that all end together.
    batches = eval_batches(tokens, batch_size, some)[::-1]

    def answer(rows: RowNumbers) -> Tensor:
        batch = assembler.batch(tokens, rows, layout=model.tasks[task].layout)
        with torch.inference_mode(), autocast(device, precision):
            return work(task, place(batch, device)).float()

    try:
        # PALs keep the task and the mask in one place, so they take one batch at a time.
        alone = not on_cpu or model.pals is not None
        found = list(map(answer, batches) if alone else side_by_side(answer, batches))
        if found:  # one copy for all: the host waits once
            outputs[torch.from_numpy(np.concatenate(batches))] = torch.cat(found).cpu()
        if some is not None:
            outputs = outputs[torch.from_numpy(some)]
    finally:
        model.train(training)
    return outputs


def rows_on_gpu(tokens: Tokens, max_length: int) -> int:
    """Fewer of long ones: attention that is computed step by step has their length squared."""
    longest = min(max_length, int(tokens.lengths.max(initial=1)))
    return min(EVAL_BATCH_ON_GPU, max(EVAL_BATCH, EVAL_TOKENS_ON_GPU // longest))


def side_by_side(
    work: Callable[[RowNumbers], Tensor], batches: Sequence[RowNumbers]
) -> Iterator[Tensor]:
    """What the work makes of each batch: on a CPU, each of torch's threads takes whole batches.

    So they need not wait for each other at the end of every operation. Fewer batches than threads
    are taken one by one, by all threads together.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(batches) < threads:
        yield from map(work, batches)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, batches)
    finally:
        torch.set_num_threads(threads)  # of threads that are yet to come


def evaluate(
    model: MultitaskModel,
    rows: Mapping[str, Rows],
    assembler: Assembler,
    *,
    loss_options: Mapping[str, float] | None = None,
    precision: torch.dtype = torch.float32,
) -> Evaluation:
    """Score the model on every task's rows."""
    scored: dict[str, Scored] = {}
    losses: dict[str, float] = {}
    also: dict[str, dict[str, Score]] = {}
    tables: list[pa.Table] = []
    for name, of_task in rows.items():
        spec = model.tasks[name]
        outputs = outputs_of(model, name, of_task.tokens, assembler, precision=precision)
        predictions = Predictions.of_outputs(spec, outputs)
        labels = torch.from_numpy(np.asarray(of_task.labels, dtype=np.float32))
        losses[name] = dev_loss(spec, outputs, labels, loss_options or {})
        scored[name] = Scored(
            of_task.metric, of_task.weight, spec.classes, of_task.labels, predictions.values
        )
        also[name] = further(scored[name], of_task.also)
        tables.append(predictions_table(name, of_task.ids, of_task.labels, predictions))
    return Evaluation(score(scored), losses, join_tables(tables), also)


def dev_loss(
    task: TaskSpec, outputs: Tensor, labels: Tensor, options: Mapping[str, float]
) -> float:
    """The mean; one that compares rows with each other, over parts of a batch's size."""
    loss = make_loss(task.loss, width=task.high - task.low, **options)
    if task.loss not in IN_BATCH:
        return float(loss(outputs, labels))
    parts = zip(outputs.split(EVAL_BATCH), labels.split(EVAL_BATCH), strict=True)
    total = sum(float(loss(some, known)) * len(known) for some, known in parts)
    return total / len(labels)


def rows_from_texts(
    task: TaskSpec, texts: Iterable[str] | Iterable[tuple[str, str]], tokenizer: Any
) -> Tokens:
    """Sentences, or pairs of them, prepared as the task's own rows were."""
    if isinstance(texts, str):  # it would be taken for a list of letters
        raise InputError("texts", ["is one string; give a list, even of one"])
    items: list[Any] = list(texts)  # an iterator would be used up by the checks
    faults = []
    for number, text in enumerate(items, start=1):
        if task.pair and not _is_pair(text):
            faults.append(f"item {number}: '{task.name}' takes pairs; give (first, second)")
        elif not task.pair and not isinstance(text, str):
            faults.append(f"item {number}: '{task.name}' takes single sentences; give a string")
        elif _is_broken(text):
            faults.append(f"item {number}: holds half of a surrogate pair, which is no text")
    if faults:
        raise InputError("texts", faults[:10])
    clean = CLEAN[task.clean]
    firsts = [clean(text[0] if task.pair else str(text)) for text in items]
    seconds = [clean(text[1]) for text in items] if task.pair else None
    return encode_texts(firsts, seconds, tokenizer)


def _is_pair(text: Any) -> bool:
    return (
        isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(t, str) for t in text)
    )


def _is_broken(text: Any) -> bool:
    """Python's strings may hold what UTF-8, and so the tokenizer, cannot."""
    try:
        "".join(text).encode()
    except UnicodeEncodeError:
        return True
    return False
