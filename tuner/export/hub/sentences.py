"""What sentence-transformers needs beside a model, where a task compares sentences by their cosine.

encoder -> pooling -> the projection of that task's head: the cosine of two such vectors is the one
that the head makes its answer of.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from model.evaluation.model_folder import read_heads, read_spec
from model.modules.multitask import ModelSpec, TaskSpec

POOLING = ("cls", "mean")
MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
IDENTITY = "torch.nn.modules.linear.Identity"
FILES = (
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"),
)


def sentence_task(spec: ModelSpec) -> TaskSpec | None:
    """The task whose sentences it embeds: one by cosine, of values rather than of yes and no.

    With PALs the encoder is another for each task, which sentence-transformers does not know.
    """
    if spec.pooling not in POOLING or spec.adapter not in ("none", "lora"):
        return None
    found = [task for task in spec.tasks if task.encoding == "cosine"]
    return min(found, key=lambda task: task.kind != "regression", default=None)


def add_sentence_files(place: Path, folder: Path) -> TaskSpec | None:
    """For the model in `place`, into `folder`; the task that they are for, if there is one."""
    spec = read_spec(place)
    if (task := sentence_task(spec)) is None:
        return None
    weights = read_heads(place)
    own = f"heads.task_{task.name}.projection"
    weight, bias = weights[f"{own}.weight"], weights[f"{own}.bias"]
    width = int(weight.shape[0])
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(MODULES.items())
    ]
    pooling = {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": spec.pooling == "cls",
        "pooling_mode_mean_tokens": spec.pooling == "mean",
        "pooling_mode_max_tokens": False,
    }
    dense: dict[str, Any] = {"in_features": width, "out_features": width, "bias": True}
    for name in ("1_Pooling", "2_Dense"):
        (folder / name).mkdir()
    length, similarity = {"max_seq_length": spec.max_length}, {"similarity_fn_name": "cosine"}
    dense["activation_function"] = IDENTITY
    *configs, last = FILES
    for name, data in zip(configs, (modules, length, similarity, pooling, dense), strict=True):
        (folder / name).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    tensors = {"linear.weight": weight.contiguous(), "linear.bias": bias.contiguous()}
    save_file(tensors, folder / last)
    return task
