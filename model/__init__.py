"""One run: data, model, training, evaluation.

`load_model("runs/x/model")` gives a model that answers sentences;
`model.train.train(...)` trains one. Importing this package stays cheap: torch
and transformers load when they are first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = ["load_model"]

if TYPE_CHECKING:
    from model.evaluation.model_folder import load_model


def __getattr__(name: str) -> Any:
    if name == "load_model":
        from model.evaluation.model_folder import load_model

        return load_model
    raise AttributeError(f"module 'model' has no attribute '{name}'")
