"""What makes a model quicker on a CPU; docs/performance.md has what each part brings.

Elsewhere than on a CPU, what is put in does what torch's own modules do.
"""

from __future__ import annotations

from torch import nn

from model.cpu.attention import use_own_attention
from model.cpu.dropout import Dropout, PlainDropout
from model.cpu.linear import Linear, has_onednn
from model.cpu.word_table import use_sparse_gradient


def speed_up(encoder: nn.Module, heads: nn.Module) -> bool:
    """In place; the parameters and their names stay the same.

    Whether the encoder now takes no mask where there is no padding.
    """
    swap(encoder, nn.Dropout, Dropout)
    swap(heads, nn.Dropout, PlainDropout)
    if has_onednn():
        swap(encoder, nn.Linear, Linear)
    use_sparse_gradient(encoder)
    return use_own_attention(encoder)


def swap(module: nn.Module, plain: type[nn.Module], ours: type[nn.Module]) -> None:
    """Make every plain module inside one of ours, which has the same state."""
    for part in module.modules():
        if type(part) is plain:
            part.__class__ = ours
