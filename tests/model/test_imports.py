"""What importing a part of the package loads: no more than it needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import model


def modules_after(statement: str) -> set[str]:
    code = f"import sys, json; {statement}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    return set(json.loads(done.stdout))


def test_importing_the_package_is_cheap() -> None:
    loaded = modules_after("import model; model.__version__")
    assert loaded & {"torch", "transformers", "numpy", "pyarrow", "yaml"} == set()


@pytest.mark.parametrize("statement", ["import model.config.parse", "import model.tasks.task_set"])
def test_checking_a_config_needs_no_torch(statement: str) -> None:
    assert modules_after(statement) & {"torch", "transformers"} == set()


def test_training_imports_neither_ray_nor_optuna() -> None:
    loaded = modules_after("import model.train, model.training.run, model.cli.command")
    assert "torch" in loaded
    assert loaded & {"ray", "optuna", "tuner", "datasets", "sklearn"} == set()


def test_a_training_says_what_it_loads_before_it_does() -> None:
    code = """
from contextlib import contextmanager
from model.cli import command
@contextmanager
def doing(text, quiet=False):
    print(text, "torch" in sys.modules, file=sys.stderr)
    yield
    assert "torch" in sys.modules
command.doing = doing
command.main(["--resume", "--out", "nowhere"])
"""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys{code}"], capture_output=True, text=True, timeout=600
    )
    assert done.stderr.splitlines()[0] == "loading PyTorch False"
    assert "nowhere" in done.stderr and "Traceback" not in done.stderr


def test_load_model_is_found_when_asked_for() -> None:
    loaded = modules_after("from model import load_model; assert callable(load_model)")
    assert "model.evaluation.model_folder" in loaded
    with pytest.raises(AttributeError, match="no attribute 'lod_model'"):
        model.lod_model  # noqa: B018
    assert set(model.__all__) == {"load_model"}
