"""Dev sentences in TensorBoard's projector: what a model's heads see of them, with the labels.

The vectors are raw little-endian float32, a tensor per task, because a pair's features are wider
than a sentence's. The metadata are one line per row; text is made safe for a table of tabs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from google.protobuf import text_format
from numpy.typing import NDArray
from tensorboard.plugins.projector.projector_config_pb2 import (  # type: ignore[import-untyped]
    ProjectorConfig,
)

from model import pairs
from model.data.batches import Assembler, eval_batches
from model.data.rows import labels_of
from model.data.sources import load_split
from model.data.tokens import Tokens, tokenise
from model.evaluate import EVAL_BATCH
from model.files import folder_whole, write_whole
from model.folder import read_model
from model.inputs import sample_rows
from model.multitask import MultitaskModel, decide
from model.tasks import Task, TaskSet
from tuner.event_files import EventFile, text

PLACE = Path("board") / "embeddings"
CONFIG = "projector_config.pbtxt"  # by which TensorBoard finds it
ROWS = 1000  # of each task: a model run of seconds, and as many as the projector's t-SNE likes
LONGEST = 200  # characters of a sentence


def write_projector(
    run_folder: Path,
    model_folder: Path,
    tasks: TaskSet,
    *,
    data: Path | None = None,
    rows: int = ROWS,
    name: str = "the model",
) -> Path:
    """Embed up to `rows` dev rows of each task with the model; returns the projector's folder."""
    model, tokenizer = read_model(Path(model_folder))
    if torch.cuda.is_available():
        model = model.to("cuda")
    assembler = Assembler.of(tokenizer, model.spec.max_length)
    place = Path(run_folder) / PLACE
    config = ProjectorConfig()
    with folder_whole(place) as folder:
        for task in tasks:
            if task.name not in model.tasks:
                continue
            table = sample_rows(load_split(task, "dev", data).table, rows)
            tokens = tokenise(table, tokenizer)
            vectors, predictions = embed(model, task.name, tokens, assembler)
            (folder / f"{task.name}.bytes").write_bytes(vectors.astype("<f4").tobytes())
            lines = metadata(task, table, predictions)
            write_whole(folder / f"{task.name}.tsv", "".join(f"{line}\n" for line in lines))
            info = config.embeddings.add(tensor_name=task.name, tensor_path=f"{task.name}.bytes")
            info.metadata_path = f"{task.name}.tsv"
            info.tensor_shape.extend(vectors.shape)
        write_whole(folder / CONFIG, text_format.MessageToString(config))
        # TensorBoard looks for the projector's file only where there is a file of events.
        said = f"Dev sentences as {name} embeds them: see PROJECTOR; colour by label."
        EventFile(folder).add(text("about", said), time.time())
    return place


def embed(
    model: MultitaskModel, task: str, tokens: Tokens, assembler: Assembler
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """The features that the task's head reads, [rows, width], and what it answers, [rows]."""
    spec = model.tasks[task]
    device = next(model.parameters()).device
    vectors: NDArray[np.float32] | None = None
    answers = np.zeros(len(tokens))
    model.eval()
    with torch.inference_mode():
        for chosen in eval_batches(tokens, EVAL_BATCH):
            batch = assembler.batch(tokens, chosen, layout=spec.layout).to(device)
            with model.pals.use(task, batch.attention_mask) if model.pals else nullcontext():
                encoded = model.encode(batch)
            head = model.heads[f"task_{task}"]
            if batch.parts == 1:
                outputs = head(encoded)
            else:
                u, v = encoded.chunk(2)
                # A cosine has no features of its own; what it compares are the two sentences.
                cosine = spec.encoding == "cosine"
                encoded = pairs.features("bi_concat" if cosine else spec.encoding, u, v)
                outputs = head(u, v) if cosine else head(encoded)
            if vectors is None:
                vectors = np.zeros((len(tokens), encoded.shape[1]), np.float32)
            vectors[chosen] = encoded.float().cpu().numpy()
            answers[chosen] = decide(spec, outputs.cpu())[0].double().numpy()
    assert vectors is not None  # a dev set is never empty
    return vectors, answers


def metadata(task: Task, table: pa.Table, predictions: NDArray[np.float64]) -> Iterable[str]:
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
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"
