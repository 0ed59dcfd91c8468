"""How two sentences become the features that a head reads.

`cross` and `concat` put both sentences into one sequence, so the head reads one
embedding. The others encode each sentence by itself (layout `bi`) and combine
the two embeddings u and v here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Layout = Literal["cross", "concat", "bi"]
Combine = Callable[[Tensor, Tensor], Tensor]


def concatenation(u: Tensor, v: Tensor) -> Tensor:
    return torch.cat([u, v], dim=-1)


def difference(u: Tensor, v: Tensor) -> Tensor:
    return torch.cat([u, v, (u - v).abs()], dim=-1)


# How the sentences are laid out in the encoder's input, for every pair encoding.
LAYOUTS: dict[str, Layout] = {
    "cross": "cross",
    "concat": "concat",
    "bi_concat": "bi",
    "bi_difference": "bi",
    "cosine": "bi",
}

# The encodings that combine two embeddings into features, and how many times the encoder's width
# those are. The cosine's head reads both as they are: what it compares is its own business.
COMBINE: dict[str, Combine] = {
    "bi_concat": concatenation,
    "bi_difference": difference,
    "cosine": concatenation,
}
WIDTHS: dict[str, int] = {"cross": 1, "concat": 1, "bi_concat": 2, "bi_difference": 3, "cosine": 2}


def layout_of(encoding: str) -> Layout:
    return LAYOUTS[encoding]


def width_factor(encoding: str) -> int:
    """The width of a head's input, as a multiple of the encoder's."""
    return WIDTHS[encoding]


def features(encoding: str, u: Tensor, v: Tensor) -> Tensor:
    """The features of a pair from its two embeddings, [B, width_factor * width]."""
    return COMBINE[encoding](u, v)


def with_lines(tensors: dict[str, Tensor], prefix: str = "") -> None:
    """Heads that were saved before `CosineHead` learned its line get the fixed map they had."""
    end = "projection.weight"
    for name in [name for name in tensors if name.startswith(prefix) and name.endswith(end)]:
        head = name.removesuffix(end)
        if f"{head}log_scale" not in tensors:  # else it is a logit
            tensors.setdefault(f"{head}gain", torch.tensor(0.5))
            tensors.setdefault(f"{head}offset", torch.tensor(0.5))


class CosineHead(nn.Module):
    """A pair's output from the cosine of its two projected embeddings, [B, 1].

    Regression: the label range times a learned line of the cosine. Labels of 0 mean unrelated, not
    opposite, so a fixed map from [-1, 1] would push unrelated sentences apart against all that a
    sentence encoder has learned: STS stayed at .72 with it, and reaches .85 after as many examples
    with a line that starts at 0 for a cosine of .2 (docs/experiments.md).
    Binary: a logit. The sigmoid of the bare cosine only reaches .27 to .73, so a
    good pair could never be predicted with confidence and its loss never falls
    below .31. A scale and a threshold are therefore learned. Fine-tuning rates
    hardly move two scalars, so they start where they are of use: on 1,500 question
    pairs and an untrained head over mean-pooled MiniLM, 10 (cos - .8) has a loss of
    .43, the bare cosine .78, 10 (cos - .5) 1.09, and the class shares alone .66.
    The cosines of sentences that share their words are high, paraphrases or not.

    There is no dropout here: two independent masks shrink every cosine in
    training by about the dropout rate, and evaluation would then overestimate.
    """

    def __init__(
        self, width: int, kind: str, *, low: float = 0.0, high: float = 1.0, binary_logits: int = 1
    ) -> None:
        super().__init__()
        if kind not in ("binary", "regression"):
            raise ValueError(
                f"the cosine encoding gives one number, which a task of kind '{kind}' cannot use; "
                "choose cross, concat, bi_concat or bi_difference"
            )
        if kind == "binary" and binary_logits != 1:
            raise ValueError(
                f"the cosine encoding gives one logit, but {binary_logits} are asked for; "
                "use one binary logit, or another pair encoding"
            )
        self.kind, self.low, self.high = kind, low, high
        self.projection = nn.Linear(width, width)
        # The head starts as the plain cosine, which a sentence encoder is already good at.
        nn.init.eye_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        if kind == "binary":
            self.log_scale = nn.Parameter(torch.tensor(10.0).log())  # a log: stays positive
            self.threshold = nn.Parameter(torch.tensor(0.8))
        else:
            self.gain = nn.Parameter(torch.tensor(1.25))
            self.offset = nn.Parameter(torch.tensor(-0.25))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        with_lines(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def forward(self, features: Tensor) -> Tensor:
        u, v = features.chunk(2, dim=-1)
        cosine = F.cosine_similarity(self.projection(u), self.projection(v), dim=-1).unsqueeze(-1)
        if self.kind == "binary":
            return self.log_scale.exp() * (cosine - self.threshold)
        return self.low + (self.high - self.low) * (self.gain * cosine + self.offset)
