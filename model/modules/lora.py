"""LoRA through peft: small updates of low rank beside an encoder's frozen linear layers.

They are trained, and merged into the weights when a model is saved: what is saved is an ordinary
encoder, and a soup averages merged weights. The mean of A and the mean of B are not the mean of BA.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from model.modules.encoder import layers_of

NAME = "default"  # peft's, where there is one adapter
ATTENTION = ("attention", "attn")


def attach_lora(
    encoder: nn.Module, *, rank: int, alpha: float, dropout: float, targets: str, seed: int
) -> None:
    """In place; all that was there before is frozen. At first the updates are 0."""
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=dropout,
        target_modules=list(target_names(encoder, targets)),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, encoder, NAME)


def target_names(encoder: nn.Module, targets: str) -> Iterator[str]:
    """The linear layers of the encoder's stack: all of them, or those of its attention."""
    inside = {id(part) for part in layers_of(encoder).modules()}
    for name, part in encoder.named_modules():
        if isinstance(part, nn.Linear) and id(part) in inside:
            words = name.split(".")
            if targets == "all" or any(word in ATTENTION for word in words):
                yield name


def has_lora(encoder: nn.Module) -> bool:
    return any(is_lora(name) for name, _ in encoder.named_parameters())


def is_lora(name: str) -> bool:
    return ".lora_" in name


def plain_name(name: str) -> str:
    """What a tensor is called where there is no LoRA."""
    return name.replace(".base_layer.", ".")


@torch.no_grad()
def merged_state(encoder: nn.Module) -> dict[str, Tensor]:
    """The weights as an encoder without LoRA has them; the encoder itself stays as it is."""
    from peft.tuners.lora import LoraLayer

    state = {plain_name(n): t for n, t in encoder.state_dict().items() if not is_lora(n)}
    for name, part in encoder.named_modules():
        if isinstance(part, LoraLayer):
            state[f"{name}.weight"] = state[f"{name}.weight"] + part.get_delta_weight(NAME)
    return state
