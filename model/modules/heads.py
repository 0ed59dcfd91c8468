"""The part of the model that belongs to one task: from an embedding to its outputs."""

from __future__ import annotations

from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "relu": nn.ReLU}

# What BERT starts its own dense layers with.
INITIAL_STD = 0.02


class Head(nn.Module):
    """Dropout and a linear layer; with `hidden` units, one more layer between, or `layers`."""

    def __init__(
        self,
        width_in: int,
        outputs: int,
        *,
        hidden: int = 0,
        layers: int = 1,
        activation: str = "gelu",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise ValueError(f"no head activation is called '{activation}'; known: {known}")
        if hidden < 0:
            raise ValueError(f"a head's hidden size must be 0 or more, but got {hidden}")
        if layers < 1:
            raise ValueError(f"a head has 1 hidden layer or more, but got {layers}")
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(width_in, hidden) if hidden else None
        deeper = range(layers - 1 if hidden else 0)  # none: no key of theirs in a saved head
        self.deeper = nn.ModuleList(nn.Linear(hidden, hidden) for _ in deeper)
        self.activation = ACTIVATIONS[activation]()
        self.output = nn.Linear(hidden or width_in, outputs)
        for layer in (self.hidden, *self.deeper, self.output):
            if isinstance(layer, nn.Linear):
                start_linear(layer)

    def forward(self, features: Tensor) -> Tensor:
        if self.hidden is not None:
            for layer in (self.hidden, *self.deeper):
                features = self.activation(layer(self.dropout(features)))
        outputs: Tensor = self.output(self.dropout(features))
        return outputs


def outputs_for(kind: str, classes: int, binary_logits: int = 1) -> int:
    """How many outputs a task of this kind needs."""
    if kind == "classes":
        return classes
    if kind == "regression":
        return 1
    if kind == "binary":
        if binary_logits not in (1, 2):
            raise ValueError(f"a binary task has 1 or 2 logits, but got {binary_logits}")
        return binary_logits
    raise ValueError(f"'{kind}' is not a kind of task; known: classes, binary, regression")


def start_linear(layer: nn.Linear) -> None:
    nn.init.normal_(layer.weight, std=INITIAL_STD)
    nn.init.zeros_(layer.bias)
