"""A model folder: an ordinary Hugging Face encoder folder with the tasks' heads beside it.

config.json, model.safetensors, tokenizer.json ...   what AutoModel and AutoTokenizer read
heads.safetensors                                    heads and PALs
stockpot.json                                        what the model is made of, classes' names

>>> model = load_model("runs/first/model")
>>> model.predict("sentiment", ["what a film", "never again"])
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from model.common.errors import InputError, suggest
from model.common.files import read_yaml, write_atomic
from model.common.run_files import CONFIG
from model.common.untrusted import held, parse_json, read_json, read_regular
from model.data.batches import Assembler
from model.modules.encoder import load_encoder, load_tokenizer, quiet_transformers
from model.modules.lora import has_lora, merged_state
from model.modules.multitask import ModelSpec, MultitaskModel, TaskSpec, decide
from model.modules.pairs import with_lines
from model.tasks.task_set import load_task_set

SPEC = "stockpot.json"
HEADS = "heads.safetensors"
CLASS_NAMES = "class_names"  # in SPEC
ClassNames = Mapping[str, tuple[str, ...]]  # by task, in the order of the classes' numbers


@dataclass(frozen=True)
class ModelTensors:
    """What is saved of a model: an ordinary encoder's weights, and those of heads and PALs."""

    encoder: dict[str, torch.Tensor]
    own: dict[str, torch.Tensor]

    @classmethod
    def of(cls, model: MultitaskModel) -> ModelTensors:
        encoder = model.encoder
        state = merged_state(encoder) if has_lora(encoder) else encoder.state_dict()
        return cls(state, model.task_tensors())


def save_model(
    folder: Path,
    model: MultitaskModel,
    tokenizer: Any,
    class_names: ClassNames | None = None,
    tensors: ModelTensors | None = None,
) -> None:
    """`tensors`: those of the model at another time."""
    tensors = tensors or ModelTensors.of(model)
    folder.mkdir(parents=True, exist_ok=True)
    encoder: Any = model.encoder
    with quiet_transformers():
        encoder.save_pretrained(folder, state_dict=tensors.encoder)
        tokenizer.save_pretrained(folder)
    own = {name: tensor.contiguous() for name, tensor in tensors.own.items()}
    save_file(own, folder / HEADS)
    spec = json.dumps(model.spec.to_dict(), indent=1)
    (folder / SPEC).write_text(spec + "\n", encoding="utf-8")
    if class_names is not None:
        name_classes(folder, class_names)


def name_classes(folder: Path, names: ClassNames) -> None:
    """Write the classes' names into a model folder, whose files may be links to another's.

    `id2label` in config.json, where others look for them, has room for one task's: it is written
    where no other task has classes.
    """
    spec, config = folder / SPEC, folder / "config.json"
    data, others = (read_json(path) for path in (spec, config))
    if names:
        data[CLASS_NAMES] = {task: list(of) for task, of in names.items()}
    with_classes = [task["name"] for task in data["tasks"] if task["classes"]]
    for key in ("id2label", "label2id"):  # of what the encoder was trained for before
        others.pop(key, None)
    if len(with_classes) == 1 and (only := names.get(with_classes[0])):
        others["id2label"] = {str(number): name for number, name in enumerate(only)}
        others["label2id"] = {name: number for number, name in enumerate(only)}
    write_atomic(spec, json.dumps(data, indent=1) + "\n")
    write_atomic(config, json.dumps(others, indent=2, sort_keys=True) + "\n")


def read_class_names(folder: Path) -> dict[str, tuple[str, ...]]:
    """The classes' names: those in the folder, or else those of the task file of its run.

    A model has none where the task file has none, or is gone.
    """
    spec, kept = read_spec(folder), _described(folder)[1]
    known: Mapping[str, Any] = _names_of_run(folder) if kept is None else kept
    classes = {task.name: task.classes for task in spec.tasks}
    names = {
        task: tuple(map(str, of)) for task, of in known.items() if isinstance(of, list | tuple)
    }
    return {task: of for task, of in names.items() if len(of) == classes.get(task)}


def _names_of_run(folder: Path) -> ClassNames:
    """A checkpoint's model is the deepest: <run>/checkpoints/<name>/model."""
    for place in folder.absolute().parents[:3]:
        try:
            if (place / CONFIG).is_file():
                tasks = read_yaml(place / CONFIG, links=False).data["tasks"]
                return load_task_set(str(tasks)).class_names
        except (InputError, KeyError):
            break
    return {}


def _described(folder: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What SPEC says of the model, and the classes' names, if it has any."""
    data = parse_json(read_regular(folder / SPEC, links=True))  # links: a snapshot of the Hub
    names = data.pop(CLASS_NAMES, None) if isinstance(data, dict) else None
    return data, names if isinstance(names, dict) else None


def read_spec(folder: Path) -> ModelSpec:
    try:
        return ModelSpec.from_dict(_described(folder)[0])
    except FileNotFoundError:
        fault = f"no {SPEC} in it; give the `model` folder of a run"
        raise InputError(str(folder), [fault]) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(str(folder / SPEC), [f"not a model's description: {error}"]) from None


def read_heads(folder: Path) -> dict[str, torch.Tensor]:
    try:
        with held(folder / HEADS, links=True) as file:
            tensors: dict[str, torch.Tensor] = load_file(file)
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
class Prediction:
    """A class or a value, the classes' probabilities (None for regression), the class's name."""

    value: float
    probabilities: tuple[float, ...] | None
    name: str | None = None  # where the task file has names


class TextModel:
    """A trained model that takes sentences."""

    def __init__(
        self, model: MultitaskModel, tokenizer: Any, class_names: ClassNames | None = None
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.class_names = class_names or {}
        self.assembler = Assembler.of(tokenizer, model.spec.max_length)

    @property
    def tasks(self) -> dict[str, TaskSpec]:
        return self.model.tasks

    def __repr__(self) -> str:
        return f"TextModel({', '.join(self.tasks)})"

    def predict(
        self, task: str, texts: Iterable[str] | Iterable[tuple[str, str]], *, batch_size: int = 64
    ) -> list[Prediction]:
        """An answer per sentence, or per pair of sentences for a pair task, in order."""
        from model.evaluation.evaluate import outputs_of, rows_from_texts

        if task not in self.tasks:
            raise InputError("task", [f"no task '{task}' here; {suggest(task, self.tasks)}"])
        tokens = rows_from_texts(self.tasks[task], texts, self.tokenizer)
        outputs = outputs_of(self.model, task, tokens, self.assembler, batch_size=batch_size)
        values, likely = decide(self.tasks[task], outputs)
        rows = [None] * len(values) if likely is None else [tuple(row) for row in likely.tolist()]
        names = self.class_names.get(task)
        return [
            Prediction(value, row, names[int(value)] if names else None)
            for value, row in zip(values.tolist(), rows, strict=True)
        ]


def load_model(folder: str | Path, device: str = "cpu") -> TextModel:
    """Load a model folder (a run's `model`, or a soup) for predictions."""
    from model.modules.device import find_device

    place = find_device(device)
    model, tokenizer = read_model(Path(folder))
    return TextModel(model.to(place), tokenizer, read_class_names(Path(folder)))
