"""One encoder, a head per task, and, if wanted, PALs beside its layers.

`ModelSpec` says what a model is made of, apart from its weights; it is written beside them,
so that a model folder can be rebuilt without the run that trained it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from model.common.errors import InputError
from model.cpu import speed_up
from model.data.batches import Batch, Layout, join
from model.modules import pairs
from model.modules.device import no_autocast
from model.modules.encoder import attention_dropout, layers_of, pool
from model.modules.heads import Head
from model.modules.masks import form_of, mask_of
from model.modules.pals import Pals, attach


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """What a model has to know of a task in order to answer it."""

    name: str
    kind: str
    classes: int
    low: float
    high: float
    pair: bool
    clean: str  # how its sentences were prepared
    encoding: str  # how a pair is encoded; 'single' for single sentences
    outputs: int
    loss: str  # decides how outputs become probabilities
    metric: str

    @property
    def layout(self) -> Layout:
        return pairs.layout_of(self.encoding) if self.pair else "single"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    tasks: tuple[TaskSpec, ...]
    pooling: str
    max_length: int
    head_hidden: int
    head_activation: str
    head_dropout: float
    adapter: str
    adapter_size: int
    adapter_heads: int
    head_layers: int = 1  # models from before these two were settings have what was then
    segments: bool = True
    learning_rate: float = 2e-5  # what the encoder was trained at: a hint for who starts from it

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelSpec:
        return cls(**{**data, "tasks": tuple(TaskSpec(**task) for task in data["tasks"])})


class MultitaskModel(nn.Module):
    def __init__(self, encoder: nn.Module, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.encoder = encoder
        self.tasks = {task.name: task for task in spec.tasks}
        self.width = width = int(encoder.config.hidden_size)  # type: ignore[union-attr,arg-type]
        # A prefix keeps a task called `pop` or `items` from colliding with ModuleDict's methods.
        self.heads = nn.ModuleDict(
            {f"task_{task.name}": build_head(task, spec, width) for task in spec.tasks}
        )
        optional_mask = speed_up(encoder, self.heads)
        self.pals: Pals | None = None
        if spec.adapter == "pals":
            layers = layers_of(encoder)
            self.pals = Pals(
                list(self.tasks),
                len(layers),
                width,
                size=spec.adapter_size,
                heads=spec.adapter_heads,
                dropout=attention_dropout(encoder),
            )
            try:
                attach(self.pals, layers)
            except ValueError as error:  # layers of another make than BERT's
                raise InputError("encoder.adapter", [str(error)]) from None
        config: Any = encoder.config
        self._segments = getattr(config, "type_vocab_size", 0) > 1
        self._mask_form = form_of(encoder, optional=optional_mask)
        self._pad_id = int(getattr(config, "pad_token_id", None) or 0)

    def encode(self, batch: Batch, pooling: str | None = None) -> Tensor:
        """One vector per sequence, [parts * B, width]."""
        inputs: dict[str, Any] = {
            "input_ids": batch.input_ids,
            "attention_mask": mask_of(batch, self._mask_form),
        }
        if self._segments:
            kinds = batch.token_type_ids
            inputs["token_type_ids"] = kinds if self.spec.segments else torch.zeros_like(kinds)
        return pool(pooling or self.spec.pooling, self.encoder(**inputs), batch.attention_mask)

    def forward(self, task: str, batch: Batch) -> Tensor:
        """The task's outputs, [B, outputs]."""
        return self._answer(task, self.features(task, batch))

    def answer_all(self, batches: Sequence[tuple[str, Batch]]) -> list[Tensor]:
        """The outputs of several tasks from one pass over all their sequences, without PALs."""
        joined = join([batch for _, batch in batches], self._pad_id, self.spec.max_length)
        each = self.encode(joined).split([len(batch.input_ids) for _, batch in batches])
        return [
            self._answer(task, self._combine(task, batch, encoded))
            for (task, batch), encoded in zip(batches, each, strict=True)
        ]

    def _answer(self, task: str, features: Tensor) -> Tensor:
        with no_autocast(features.device):
            # A value in bfloat16 has steps of 1/64 where the labels go up to 5.
            wide = torch.promote_types(features.dtype, torch.float32)
            outputs: Tensor = self.heads[f"task_{task}"](features.to(wide))
        return outputs

    def features(self, task: str, batch: Batch) -> Tensor:
        """What the task's head reads, [B, features_width]."""
        mask = batch.attention_mask if batch.padded else None
        beside = self.pals.use(task, mask) if self.pals else nullcontext()
        with beside:
            encoded = self.encode(batch)
        return self._combine(task, batch, encoded)

    def _combine(self, task: str, batch: Batch, encoded: Tensor) -> Tensor:
        if batch.parts == 1:
            return encoded
        return pairs.features(self.tasks[task].encoding, *encoded.chunk(2))

    def features_width(self, task: str) -> int:
        return self.width * width_factor(self.tasks[task])

    def shared_parameters(self) -> list[nn.Parameter]:
        """The parameters that every task trains: where gradients can conflict."""
        return [parameter for parameter in self.encoder.parameters() if parameter.requires_grad]

    def task_tensors(self) -> dict[str, Tensor]:
        """Everything but the encoder: heads and PALs, by name."""
        return {
            name: tensor
            for name, tensor in self.state_dict().items()
            if not name.startswith("encoder.")
        }


def width_factor(task: TaskSpec) -> int:
    """The width of what its head reads, as a multiple of the encoder's."""
    return pairs.width_factor(task.encoding) if task.pair else 1


def build_head(task: TaskSpec, spec: ModelSpec, width: int) -> nn.Module:
    if task.encoding == "cosine":
        return pairs.CosineHead(width, task.kind, low=task.low, high=task.high)
    head = Head(
        width_factor(task) * width,
        task.outputs,
        hidden=spec.head_hidden,
        layers=spec.head_layers,
        activation=spec.head_activation,
        dropout=spec.head_dropout,
    )
    if task.kind == "regression":
        # From 0 the way to the labels' range would be the largest gradient of the first steps,
        # and with clipping hold up every other task.
        nn.init.constant_(head.output.bias, (task.low + task.high) / 2)
    return head


def probabilities(task: TaskSpec, outputs: Tensor) -> Tensor | None:
    """Class probabilities [B, C] (two columns for binary); None for regression."""
    outputs = outputs.float()
    if task.kind == "regression":
        return None
    if outputs.shape[-1] == 1:
        positive = torch.sigmoid(outputs)
        return torch.cat([1 - positive, positive], dim=-1)
    if task.loss == "dual_objective":  # trained as one sigmoid per class
        each = torch.sigmoid(outputs)
        return each / each.sum(-1, keepdim=True).clamp(min=1e-12)
    return torch.softmax(outputs, dim=-1)


def decide(task: TaskSpec, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """Predictions [B] and probabilities: the likeliest class, or the value clipped to range."""
    likely = probabilities(task, outputs)
    if likely is None:
        return outputs.float().squeeze(-1).clamp(task.low, task.high), None
    return likely.argmax(-1).float(), likely
