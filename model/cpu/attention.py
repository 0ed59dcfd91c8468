"""Attention whose dropout is ours, registered with transformers under a name of our own.

torch's attention draws its masks from the one generator of the process, which replicas that
train side by side (`model.training.replicas`) cannot share. Without dropout, and elsewhere than
on a CPU, transformers' own attention over torch's does the work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from model.cpu.dropout import dropout as drop

NAME = "stockpot"


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """As transformers calls it: all [B, heads, L, size]; the result is [B, L, heads, size]."""
    simple = (
        key.shape[1] == query.shape[1]  # no heads that share their keys
        and others.get("position_bias") is None
        and not getattr(module, "is_causal", False)
        and (attention_mask is None or attention_mask.dtype == torch.bool)
    )
    if dropout == 0 or query.device.type != "cpu" or scaling is None or not simple:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        result: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
        return result
    scores = torch.matmul(query * scaling, key.transpose(-1, -2))
    if attention_mask is not None:
        # Not infinity: padding beyond a sliding window has nothing that it may look at.
        scores = scores.masked_fill_(~attention_mask, torch.finfo(scores.dtype).min)
    weights = drop(torch.softmax(scores, dim=-1), dropout)
    return torch.matmul(weights, value).transpose(1, 2), None


def mask(*, attention_mask: Tensor | None = None, **others: Any) -> Tensor | None:
    """transformers' mask, which else asks the device whether there is any padding.

    `model.modules.masks` knows that, and gives none where none is needed.
    """
    from transformers.masking_utils import sdpa_mask

    if attention_mask is not None:
        others["allow_is_bidirectional_skip"] = False
    result: Tensor | None = sdpa_mask(attention_mask=attention_mask, **others)
    return result


def use_own_attention(encoder: nn.Module) -> bool:
    """Where the encoder takes its attention from transformers' table, let it take ours.

    Whether it has ours now.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    config: Any = encoder.config
    if config._attn_implementation != "sdpa":
        return bool(config._attn_implementation == NAME)
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    encoder.set_attn_implementation(NAME)  # type: ignore[operator]
    return True
