"""Where SMART takes hold of an encoder: what a module of it gives can be kept, or be replaced.

By hooks alone, so it is the same for every make of encoder, and a perturbed pass does all that a
clean one does: positions, segments, and the same draws for dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import Tensor, nn

from model.common.errors import InputError

At = Literal["words", "embeddings"]


def embedding_module(encoder: nn.Module, at: At) -> nn.Module:
    """words: the table of word vectors; embeddings: all of the embedding layer, LayerNorm too."""
    if at == "words":
        table: nn.Module = encoder.get_input_embeddings()  # type: ignore[operator]
        return table
    layer = getattr(encoder, "embeddings", None)
    if not isinstance(layer, nn.Module):
        fault = f"{type(encoder).__name__} has no module `embeddings`; set smart.at: words"
        raise InputError("smart.at", [fault])
    return layer


@contextmanager
def kept(module: nn.Module | None) -> Iterator[list[Tensor]]:
    """The list is filled with what the module gives within; of no module, with nothing."""
    given: list[Tensor] = []
    if module is None:
        yield given
        return
    hook = module.register_forward_hook(lambda _, __, output: given.append(output))
    try:
        yield given
    finally:
        hook.remove()


@contextmanager
def replaced(module: nn.Module, value: Tensor) -> Iterator[None]:
    """Within, the module gives this value, whatever it is asked."""
    hook = module.register_forward_hook(lambda _, __, ___: value)
    try:
        yield
    finally:
        hook.remove()
