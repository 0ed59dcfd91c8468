"""Many runs: the search, the soup and the report. Everything here loads when it is first used.

>>> from tuner import run_search
>>> result = run_search(space="default", num_samples=8)
>>> result.best, result.dataframe()

`load_space`, `TaskGPSampler`, `report_evaluation` and `trainable` are for those who search with
plain Optuna or plain Ray Tune.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.train import train
    from tuner.engine.optuna_sampler import TaskGPSampler, report_evaluation
    from tuner.predict.predictor import load_predictor
    from tuner.ray_backend.function import trainable
    from tuner.report.write import write_report
    from tuner.search.api import run_search
    from tuner.search.finish import SearchResult
    from tuner.soup.make import make_soup
    from tuner.space.space import load_space

__all__ = [
    "SearchResult",
    "TaskGPSampler",
    "load_predictor",
    "load_space",
    "make_soup",
    "report_evaluation",
    "run_search",
    "train",
    "trainable",
    "write_report",
]

PLACES = {
    "SearchResult": "tuner.search.finish",
    "TaskGPSampler": "tuner.engine.optuna_sampler",
    "load_predictor": "tuner.predict.predictor",
    "load_space": "tuner.space.space",
    "make_soup": "tuner.soup.make",
    "report_evaluation": "tuner.engine.optuna_sampler",
    "run_search": "tuner.search.api",
    "train": "model.train",
    "trainable": "tuner.ray_backend.function",
    "write_report": "tuner.report.write",
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module 'tuner' has no attribute '{name}'")
    return getattr(import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
