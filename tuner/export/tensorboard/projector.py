"""Dev sentences in TensorBoard's projector: what a model's heads see of them, with the labels.

The vectors are raw little-endian float32, a tensor per task, because a pair's features are wider
than a sentence's. The metadata are one line per row; text is made safe for a table of tabs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from google.protobuf import text_format
from numpy.typing import NDArray
from tensorboard.plugins.projector.projector_config_pb2 import (  # type: ignore[import-untyped]
    ProjectorConfig,
)

from model.cli.text import shorten
from model.common.files import atomic_folder, write_atomic
from model.data.batches import Assembler
from model.data.rows import labels_of
from model.data.sources import load_split
from model.data.tokens import Tokens, tokenise
from model.evaluation.evaluate import features_of
from model.evaluation.model_folder import read_model
from model.evaluation.predictions import Predictions
from model.evaluation.scores import Array
from model.modules.multitask import MultitaskModel
from model.tasks.task_set import Task, TaskSet
from model.training.inputs import sample_rows
from tuner.export.tensorboard.event_files import BOARD, EventFile, text

PLACE = Path(BOARD) / "embeddings"
CONFIG = "projector_config.pbtxt"  # by which TensorBoard finds it
ROWS = 1000  # of each task: a model run of seconds, and as many as the projector's t-SNE likes
LONGEST = 200  # characters of a sentence


def write_projector(
    run_folder: Path,
    model_folder: Path,
    tasks: TaskSet,
    *,
    data: Path | None = None,
    name: str = "the model",
) -> Path:
    """Embed up to `ROWS` dev rows of each task with the model; returns the projector's folder."""
    model, tokenizer = read_model(Path(model_folder))
    if torch.cuda.is_available():
        model = model.to("cuda")
    assembler = Assembler.of(tokenizer, model.spec.max_length)
    place = Path(run_folder) / PLACE
    config = ProjectorConfig()
    with atomic_folder(place) as folder:
        for task in tasks:
            if task.name not in model.tasks:
                continue
            table = sample_rows(load_split(task, "dev", data).table, ROWS)
            tokens = tokenise(table, tokenizer)
            vectors, predictions = embed(model, task.name, tokens, assembler)
            (folder / f"{task.name}.bytes").write_bytes(vectors.astype("<f4").tobytes())
            lines = metadata(task, table, predictions)
            write_atomic(folder / f"{task.name}.tsv", "".join(f"{line}\n" for line in lines))
            info = config.embeddings.add(tensor_name=task.name, tensor_path=f"{task.name}.bytes")
            info.metadata_path = f"{task.name}.tsv"
            info.tensor_shape.extend(vectors.shape)
        write_atomic(folder / CONFIG, text_format.MessageToString(config))
        # TensorBoard looks for the projector's file only where there is a file of events.
        said = f"Dev sentences as {name} embeds them: see PROJECTOR; colour by label."
        EventFile(folder).add(text("about", said), time.time())
    return place


def embed(
    model: MultitaskModel, task: str, tokens: Tokens, assembler: Assembler
) -> tuple[NDArray[np.float32], Array]:
    """The features that the task's head reads, [rows, width], and what it answers, [rows]."""
    features = features_of(model, task, tokens, assembler)
    head = model.eval().heads[f"task_{task}"]
    with torch.inference_mode():
        outputs = head(features.to(next(head.parameters()).device)).cpu()
    return features.numpy(), Predictions.of_outputs(model.tasks[task], outputs).values


def metadata(task: Task, table: pa.Table, predictions: Array) -> Iterable[str]:
    """The header and a line per row: label, prediction, whether they agree, and the text."""
    words = task.kind != "regression"
    yield "\t".join(["label", "prediction", "right" if words else "error", *_texts(task)])
    labels = labels_of(table)
    texts = [table[column].to_pylist() for column in _texts(task)]
    for row, (label, predicted) in enumerate(zip(labels, predictions, strict=True)):
        if words:
            shown = [task.source.label_name(label), task.source.label_name(predicted)]
            shown.append("right" if label == predicted else "wrong")
        else:
            shown = [f"{label:g}", f"{predicted:.2f}", f"{predicted - label:+.2f}"]
        yield "\t".join(one_cell(cell) for cell in [*shown, *(column[row] for column in texts)])


def _texts(task: Task) -> list[str]:
    return ["sentence1", "sentence2"] if task.pair else ["sentence1"]


def one_cell(content: str) -> str:
    """Without tabs and line breaks of any kind, which would shift or split the row; not empty."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in content).split())
    return shorten(plain, LONGEST)
