"""All that is public, by the project's own name. Everything here loads when it is first used.

>>> import stockpot
>>> space = stockpot.space("default")
>>> settings = space.suggest(trial)  # in an objective of Optuna's

The code is in `model`, one run, and in `tuner`, many runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from model import __version__

if TYPE_CHECKING:
    from model import load_model
    from tuner import (
        SearchResult,
        TaskGPSampler,
        load_predictor,
        make_soup,
        report_evaluation,
        run_search,
        train,
        trainable,
        write_report,
    )
    from tuner import load_space as space

__all__ = [
    "SearchResult",
    "TaskGPSampler",
    "__version__",
    "load_model",
    "load_predictor",
    "make_soup",
    "report_evaluation",
    "run_search",
    "space",
    "train",
    "trainable",
    "write_report",
]
OTHER_NAMES = {"space": ("tuner", "load_space"), "load_model": ("model", "load_model")}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'stockpot' has no attribute '{name}'")
    package, known_as = OTHER_NAMES.get(name, ("tuner", name))
    return getattr(import_module(package), known_as)


def __dir__() -> list[str]:
    return __all__
