"""AdamW with a learning rate for every depth of the encoder.

Depth 0 is the embeddings, l + 1 the encoder's layer l, layers + 1 what the encoder has above
them (pooler, last LayerNorm), and layers + 2 what is not the encoder's: heads, PALs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

# Names as in a Hugging Face encoder, which may itself be a part of a model. A task
# can have any name, so what belongs to heads and PALs is never taken for the encoder.
_NOT_ENCODER = re.compile(r"(heads|pals)\.")
_LAYER = re.compile(r"(\w+\.)?((encoder|transformer)\.layer|layers|encoder\.\w+_groups)\.(\d+)\.")
_TOP = re.compile(r"(\w+\.)?(pooler|final_norm)\.")

STATE = ("step", "exp_avg", "exp_avg_sq")

TaskKey = TypeVar("TaskKey", str, int)


def layer_of(name: str, layers: int) -> int:
    """The depth of a parameter by its name."""
    if _NOT_ENCODER.match(name):
        return layers + 2
    if found := _LAYER.match(name):
        layer = int(found[4])
        if layer >= layers:
            raise ValueError(f"'{name}' is beyond the encoder's {layers} layers")
        return layer + 1
    # What is left is the embeddings, and tables that all layers read: DeBERTa's and MPNet's of
    # relative positions. The first layer is the first to need them, so they come before it.
    return layers + 1 if _TOP.match(name) else 0


def rates(
    layers: int, learning_rate: float, layer_decay: float, head_rate: float | None = None
) -> list[float]:
    """The learning rate at every depth: one layer further down, `layer_decay` times as much.

    The top layer and what the encoder has above it have the full rate, the heads that or
    `head_rate`; the embeddings come one step after layer 0.
    """
    encoder = [learning_rate * layer_decay ** (layers - depth) for depth in range(layers + 1)]
    return [*encoder, learning_rate, learning_rate if head_rate is None else head_rate]


def layer_scales(
    tasks: Sequence[TaskKey],
    best: Mapping[TaskKey, Collection[int]],
    *,
    layers: int,
    alpha: float,
    beta: float,
) -> list[float]:
    """The scale of every encoder layer in a round of these tasks, layer 0 first.

    A task scales its best layers by beta and the others by alpha; a round takes the
    mean over its tasks. A task whose best layers are not known scales nothing.
    """

    def scale(task: TaskKey, layer: int) -> float:
        if task not in best:
            return 1.0
        return beta if layer in best[task] else alpha

    return [sum(scale(task, layer) for task in tasks) / len(tasks) for layer in range(layers)]


# What is left of the rate after a share 0..1 of the time that follows the warm-up.
DECAYS: dict[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,
    "linear": lambda share: 1.0 - share,
    "cosine": lambda share: 0.5 * (1.0 + math.cos(math.pi * share)),
}
WSD = "wsd"  # warm-up, stable, decay: until the cool-down, the rate knows nothing of the end


def progress_scale(kind: str, progress: float, warmup: float, cooldown: float = 0.2) -> float:
    """The scale of all rates when a share `progress` of the run is done.

    It rises from 0 over the first `warmup` share. The progress to give is that at the
    end of the step: at 0 the first step would be wasted.
    """
    progress = min(max(progress, 0.0), 1.0)
    if progress < warmup:
        return progress / warmup
    if kind == WSD:
        return min(1.0, (1.0 - progress) / cooldown)
    return DECAYS[kind](0.0 if warmup >= 1 else (progress - warmup) / (1.0 - warmup))


def make_optimizer(
    named_parameters: Iterable[tuple[str, nn.Parameter]],
    *,
    layers: int,
    learning_rate: float,
    weight_decay: float = 0.01,
    layer_decay: float = 1.0,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    head_learning_rate: float | None = None,
    decay_all: bool = False,
) -> torch.optim.AdamW:
    """AdamW over the trainable parameters, a group for each depth with and without decay.

    With `decay_all` there is none without, as in the course's AdamW.
    Each group carries its `depth`, its `base_rate` and the `names` of its parameters.
    """
    groups: dict[tuple[int, bool], list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in named_parameters:
        if parameter.requires_grad:
            # Biases, LayerNorms and lone scalars have fewer than two dimensions.
            key = (layer_of(name, layers), decay_all or parameter.ndim >= 2)
            groups.setdefault(key, []).append((name, parameter))
    if not groups:
        raise ValueError("nothing to train: every parameter is frozen")
    rate = rates(layers, learning_rate, layer_decay, head_learning_rate)
    device = next(iter(groups.values()))[0][1].device
    return torch.optim.AdamW(
        [
            {
                "params": [parameter for _, parameter in members],
                "names": [name for name, _ in members],
                "lr": rate[depth],
                "base_rate": rate[depth],
                "depth": depth,
                "weight_decay": weight_decay if decays else 0.0,
            }
            for (depth, decays), members in sorted(groups.items(), key=lambda item: item[0])
        ],
        lr=learning_rate,
        betas=betas,
        eps=epsilon,
        fused=device.type in ("cpu", "cuda", "mps", "xpu"),
    )


def add_scalars(
    optimizer: torch.optim.Optimizer,
    named: Mapping[str, nn.Parameter],
    *,
    rate: float,
    depth: int,
) -> None:
    """Learned numbers that are no part of the model; without weight decay."""
    optimizer.add_param_group(
        {
            "params": [*named.values()],
            "names": [*named],
            "lr": rate,
            "base_rate": rate,
            "depth": depth,
            "weight_decay": 0.0,
        }
    )


def scale_gradients(
    named: Sequence[tuple[str, Tensor | None]], scales: Sequence[float]
) -> list[Tensor | None]:
    """One task's gradients of the encoder, each layer's times the layer's scale."""
    scaled: list[Tensor | None] = []
    for name, gradient in named:
        layer = layer_of(name, len(scales)) - 1
        inside = gradient is not None and 0 <= layer < len(scales)
        scaled.append(gradient * scales[layer] if gradient is not None and inside else gradient)
    return scaled


def set_rates(
    optimizer: torch.optim.Optimizer, scale: float, layer_scales: Sequence[float] | None = None
) -> None:
    """Rates for the next step; `layer_scales` reach the encoder's layers and nothing else."""
    for group in optimizer.param_groups:
        layer = group["depth"] - 1
        own = layer_scales[layer] if layer_scales and 0 <= layer < len(layer_scales) else 1.0
        group["lr"] = group["base_rate"] * scale * own


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by parameter name, '<name>.exp_avg' and so on. Not copied.

    A parameter that has had no gradient yet has no state.
    """
    return {
        f"{name}.{part}": optimizer.state[parameter][part]
        for group in optimizer.param_groups
        for name, parameter in zip(group["names"], group["params"], strict=True)
        if parameter in optimizer.state
        for part in STATE
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave, for the same parameters."""
    names = [name for group in optimizer.param_groups for name in group["names"]]
    wanted = {name: [f"{name}.{part}" for part in STATE] for name in names}
    if strange := tensors.keys() - {key for keys in wanted.values() for key in keys}:
        raise ValueError(f"optimizer state of other parameters: {', '.join(sorted(strange)[:5])}")
    state = optimizer.state_dict()
    state["state"] = {}
    for index, name in enumerate(names):
        present = [key for key in wanted[name] if key in tensors]
        if present and len(present) < len(STATE):
            raise ValueError(f"optimizer state of '{name}' is not whole: only {present}")
        if present:
            parts = (tensors[key].clone() for key in wanted[name])
            state["state"][index] = dict(zip(STATE, parts, strict=True))
    # torch's own loading puts each tensor where it belongs (`step` is a special case).
    optimizer.load_state_dict(state)
