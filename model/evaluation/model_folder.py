"""A model folder: an ordinary Hugging Face encoder folder with the tasks' heads beside it.

config.json, model.safetensors, tokenizer.json ...   what AutoModel and AutoTokenizer read
heads.safetensors                                    heads and PALs
stockpot.json                                        what the model is made of

>>> model = load_model("runs/first/model")
>>> model.predict("sentiment", ["what a film", "never again"])
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from model.common.errors import InputError, suggest
from model.data.batches import Assembler
from model.modules.encoder import load_encoder, load_tokenizer, quiet_transformers
from model.modules.multitask import ModelSpec, MultitaskModel, TaskSpec, decide
from model.modules.pairs import with_lines

SPEC = "stockpot.json"
HEADS = "heads.safetensors"


def save_model(folder: Path, model: MultitaskModel, tokenizer: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    encoder: Any = model.encoder
    with quiet_transformers():
        encoder.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    tensors = {name: tensor.contiguous() for name, tensor in model.task_tensors().items()}
    save_file(tensors, folder / HEADS)
    spec = json.dumps(model.spec.to_dict(), indent=1)
    (folder / SPEC).write_text(spec + "\n", encoding="utf-8")


def read_spec(folder: Path) -> ModelSpec:
    try:
        data = json.loads((folder / SPEC).read_text(encoding="utf-8"))
        return ModelSpec.from_dict(data)
    except FileNotFoundError:
        fault = f"no {SPEC} in it; give the `model` folder of a run"
        raise InputError(str(folder), [fault]) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(str(folder / SPEC), [f"not a model's description: {error}"]) from None


def read_heads(folder: Path) -> dict[str, torch.Tensor]:
    try:
        tensors: dict[str, torch.Tensor] = load_file(folder / HEADS)
    except Exception as error:  # safetensors raises its own kind for a damaged file
        raise InputError(str(folder / HEADS), [f"cannot be read: {error}"]) from None
    with_lines(tensors)
    return tensors


def read_model(folder: Path) -> tuple[MultitaskModel, Any]:
    """The model in evaluation mode, and its tokenizer."""
    spec = read_spec(folder)
    place = str(folder.absolute())
    encoder, tokenizer = load_encoder(place), load_tokenizer(place)
    model = MultitaskModel(encoder, spec)
    given, wanted = read_heads(folder), model.task_tensors()
    faults = [f"{HEADS} has an unknown tensor '{name}'" for name in given.keys() - wanted.keys()]
    faults += [f"{HEADS} lacks '{name}'" for name in wanted.keys() - given.keys()]
    faults += [
        f"{HEADS}: '{name}' is {list(given[name].shape)} where {SPEC} says {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in given and given[name].shape != tensor.shape
    ]
    if faults:
        raise InputError(str(folder), sorted(faults))
    model.load_state_dict(given, strict=False)
    return model.eval(), tokenizer


@dataclass(frozen=True)
class Answer:
    """A class or a value, and the classes' probabilities (None for regression)."""

    value: float
    probabilities: tuple[float, ...] | None


class TextModel:
    """A trained model that takes sentences."""

    def __init__(self, model: MultitaskModel, tokenizer: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.assembler = Assembler.of(tokenizer, model.spec.max_length)

    @property
    def tasks(self) -> dict[str, TaskSpec]:
        return self.model.tasks

    def predict(
        self, task: str, texts: Iterable[str] | Iterable[tuple[str, str]], *, batch_size: int = 64
    ) -> list[Answer]:
        """An answer per sentence, or per pair of sentences for a pair task, in order."""
        from model.evaluation.evaluate import outputs_of, rows_from_texts

        if task not in self.tasks:
            raise InputError("task", [f"no task '{task}' here; {suggest(task, self.tasks)}"])
        tokens = rows_from_texts(self.tasks[task], texts, self.tokenizer)
        outputs = outputs_of(self.model, task, tokens, self.assembler, batch_size=batch_size)
        values, likely = decide(self.tasks[task], outputs)
        rows = [None] * len(values) if likely is None else [tuple(row) for row in likely.tolist()]
        return [Answer(value, row) for value, row in zip(values.tolist(), rows, strict=True)]


def load_model(folder: str | Path, device: str = "cpu") -> TextModel:
    """Load a model folder (a run's `model`, or a soup) for predictions."""
    from model.modules.device import find_device

    place = find_device(device)
    model, tokenizer = read_model(Path(folder))
    return TextModel(model.to(place), tokenizer)
