"""PALs: projected attention layers, a small path per task beside every layer of the encoder.

TS(h) = gelu(V_D SA_l(V_E h)), where the projections down (V_E) and up (V_D) are
one pair per task and the attention SA_l, without an output projection, is one
per task and layer. An encoder layer then gives LN(h_att + FFN(h_att) + TS(h)).
The GELU stands after the projection up, as in the code of the authors (Stickland
and Murray, 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

INITIAL_STD = 0.02
# CUDA's fused attention wants heads of a width that 8 divides, and these have 17 by default.
# Zeros beside them change no product.
ALIGNMENT = 8
ALIGNED_ON = ("cuda",)


class _TaskPals(nn.Module):
    """The path of one task beside all layers."""

    def __init__(self, layers: int, width: int, size: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, size)
        self.up = nn.Linear(size, width)
        # Queries, keys and values in one product: the same parameters, a third of the calls.
        self.attention = nn.ModuleList(nn.Linear(size, 3 * size) for _ in range(layers))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=INITIAL_STD)
                nn.init.zeros_(module.bias)
        # TS(h) is exactly 0 at first, so training starts from the encoder as it was
        # pretrained (with normal weights every layer's output would be off at once,
        # which a frozen encoder could not make good). gelu'(0) is 1/2: gradients flow.
        nn.init.zeros_(self.up.weight)


class Pals(nn.Module):
    """The paths of all tasks. `attach` puts them beside an encoder's layers."""

    def __init__(
        self,
        tasks: Sequence[str],
        layers: int,
        width: int,
        *,
        size: int = 204,
        heads: int = 12,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if size < 1 or heads < 1 or size % heads:
            raise ValueError(
                f"the PALs' heads must divide their size, but {heads} and {size} do not"
            )
        self.layers, self.heads, self.dropout = layers, heads, dropout
        self.tasks = nn.ModuleDict({_key(task): _TaskPals(layers, width, size) for task in tasks})
        self._current: tuple[str, Tensor | None] | None = None

    def forward(
        self, task: str, layer: int, hidden: Tensor, attention_mask: Tensor | None = None
    ) -> Tensor:
        """TS(h) of one layer, [B, L, width]; the mask is [B, L] with 1 at real tokens."""
        mine = self.tasks[_key(task)]
        assert isinstance(mine, _TaskPals)
        batch, length, _ = hidden.shape
        joint: Tensor = mine.attention[layer](mine.down(hidden))
        # [B, L, 3 * size] -> three times [B, heads, L, size / heads]
        parts = joint.view(batch, length, 3, self.heads, -1)
        width = parts.shape[-1]
        if width % ALIGNMENT and joint.device.type in ALIGNED_ON:
            parts = F.pad(parts, (0, -width % ALIGNMENT))
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if attention_mask is None else attention_mask[:, None, None, :].bool(),
            dropout_p=self.dropout if self.training else 0.0,
            scale=width**-0.5,
        )
        mixed = mixed[..., :width].transpose(1, 2).reshape(batch, length, -1)
        return F.gelu(mine.up(mixed))

    @contextmanager
    def use(self, task: str, attention_mask: Tensor | None) -> Iterator[None]:
        """Inside the block the encoder runs with this task's path; outside it is plain."""
        if _key(task) not in self.tasks:
            raise KeyError(f"there are no PALs for the task '{task}'")
        before = self._current
        self._current = (task, attention_mask)
        try:
            yield
        finally:
            self._current = before

    def beside(self, layer: int, hidden: Tensor) -> Tensor | None:
        """TS(h) for the task in use, or None where none is."""
        if self._current is None:
            return None
        task, attention_mask = self._current
        added: Tensor = self(task, layer, hidden, attention_mask)
        return added


def _key(task: str) -> str:
    # A bare name could be one that nn.ModuleDict keeps for itself ('type', 'keys').
    return f"task_{task}"


class _Beside:
    """The two hooks of one layer.

    Methods of an object rather than closures, because copy.deepcopy follows these:
    a copy of a whole model has hooks that use the copy's own PALs.
    """

    def __init__(self, pals: Pals, layer: int) -> None:
        self.pals, self.layer = pals, layer
        self.hidden: Tensor | None = None

    def keep(self, _: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.hidden = args[0] if args else kwargs["hidden_states"]

    def add(
        self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        hidden, self.hidden = self.hidden, None  # let go of it with the layer
        extra = None if hidden is None else self.pals.beside(self.layer, hidden)
        if extra is None:
            return None
        if len(args) > 1:
            return (args[0], args[1] + extra, *args[2:]), kwargs
        return args, {**kwargs, "input_tensor": kwargs["input_tensor"] + extra}


def attach(pals: Pals, layers: nn.ModuleList) -> list[RemovableHandle]:
    """Add TS(h) inside every layer of a BERT-like encoder, by hooks alone.

    The encoder's modules and state_dict stay as they are. `layer.output` computes
    LN(FFN + input_tensor), so adding TS(h) to its `input_tensor` is the whole change.
    Not for gradient checkpointing: its second pass runs after the task was cleared.
    """
    if len(layers) != pals.layers:
        raise ValueError(
            f"the PALs are for {pals.layers} layers, but the encoder has {len(layers)}"
        )
    for layer in layers:
        for part in ("attention", "output"):
            if not isinstance(getattr(layer, part, None), nn.Module):
                raise ValueError(
                    f"PALs need BERT-like layers, but {type(layer).__name__} has no '.{part}'; "
                    "use a BERT, RoBERTa, ELECTRA or CamemBERT encoder, or leave PALs out"
                )
        if getattr(layer, "chunk_size_feed_forward", 0):
            raise ValueError("PALs need the encoder's chunk_size_feed_forward to be 0")
    handles: list[RemovableHandle] = []
    for index, layer in enumerate(layers):
        hooks = _Beside(pals, index)
        handles.append(layer.register_forward_pre_hook(hooks.keep, with_kwargs=True))
        output = layer.output
        assert isinstance(output, nn.Module)
        handles.append(output.register_forward_pre_hook(hooks.add, with_kwargs=True))
    return handles
