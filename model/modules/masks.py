"""Attention masks in the form that an encoder takes without looking into them.

transformers asks a mask whether it masks anything. On a GPU the host would wait for the answer in
every pass, and the batch has known it all along.
"""

from __future__ import annotations

import sys
from typing import Literal

import torch
from torch import Tensor, nn

from model.data.batches import Batch

Form = Literal["plain", "optional", "added"]


def form_of(encoder: nn.Module, *, optional: bool) -> Form:
    """plain: the mask as it is. optional: none without padding. added: that, and ready to add."""
    if optional:
        return "optional"
    # Those that make their masks by this function take one of four dimensions as it is.
    code = sys.modules[type(encoder).__module__]
    return "added" if hasattr(code, "create_bidirectional_mask") else "plain"


def mask_of(batch: Batch, form: Form) -> Tensor | None:
    if form == "plain":
        return batch.attention_mask
    if not batch.padded:
        return None
    if form == "optional":
        return batch.attention_mask
    masked = batch.attention_mask[:, None, None, :] == 0
    return masked * torch.finfo(torch.float32).min
