"""Many runs: the search, the soup and the report. Everything here loads when it is first used.

>>> from tuner import run_search
>>> result = run_search(space="default", num_samples=8)
>>> result.best, result.dataframe()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.train import train
    from tuner.predict.predictor import load_predictor
    from tuner.report.write import write_report
    from tuner.search.api import run_search
    from tuner.search.finish import SearchResult
    from tuner.soup.make import make_soup

__all__ = ["SearchResult", "load_predictor", "make_soup", "run_search", "train", "write_report"]

PLACES = {
    "SearchResult": "tuner.search.finish",
    "load_predictor": "tuner.predict.predictor",
    "make_soup": "tuner.soup.make",
    "run_search": "tuner.search.api",
    "train": "model.train",
    "write_report": "tuner.report.write",
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module 'tuner' has no attribute '{name}'")
    return getattr(import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
