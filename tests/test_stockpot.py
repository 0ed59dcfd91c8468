"""`import stockpot`: all that is public, by the project's name."""

from __future__ import annotations

import subprocess
import sys

import pytest

import stockpot
import tuner
from model import __version__, load_model
from tuner.space.space import load_space


def test_it_has_all_that_is_public() -> None:
    assert set(tuner.__all__) == set(tuner.PLACES)
    assert set(tuner.__all__) - set(stockpot.__all__) == {"load_space"}
    for name in set(tuner.__all__) & set(stockpot.__all__):
        assert getattr(stockpot, name) is getattr(tuner, name)
    assert stockpot.space is load_space and stockpot.load_model is load_model
    assert stockpot.__version__ == __version__ and dir(stockpot) == sorted(stockpot.__all__)


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'stockpot' has no attribute 'spaces'"):
        stockpot.spaces  # noqa: B018


def test_importing_it_loads_nothing_heavy() -> None:
    heavy = ("torch", "ray", "optuna", "mlflow", "wandb", "trackio", "aim")
    code = f"import sys, stockpot; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
