"""Which way the imports run: never back to the config, never to Ray or Optuna."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import model

PACKAGE = Path(model.__file__).parent
LEAVES = ("losses", "heads", "pairs", "pals", "smart", "surgery", "schedules", "optim", "simcse")
# What any module may lean on.
HELPERS = {"model.errors", "model.files", "model.secrets"}
ABOVE = {"model.config", "model.settings", "model.train", "model.prepare", "model.command"}


def imported_by(path: Path) -> set[str]:
    """The modules of this package that a file names in its imports, wherever they stand."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            found.add(node.module or "")
            if node.module and (PACKAGE.parent / node.module.replace(".", "/")).is_dir():
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_knows_nothing_of_the_rest(leaf: str) -> None:
    own = {name for name in imported_by(PACKAGE / f"{leaf}.py") if name.split(".")[0] == "model"}
    assert own - HELPERS - {"model"} == set()


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nothing_in_the_package_names_ray_or_optuna_or_the_tuner(path: Path) -> None:
    assert {name.split(".")[0] for name in imported_by(path)} & {"ray", "optuna", "tuner"} == set()


@pytest.mark.parametrize("name", ["data", "scores", "checkpoint", "encoder", "multitask"])
def test_what_stands_below_the_config_does_not_import_it(name: str) -> None:
    place = PACKAGE / name
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    for file in files:
        assert imported_by(file) & ABOVE == set(), file.name


def modules_after(statement: str) -> set[str]:
    code = f"import sys, json; {statement}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stdout))


def test_importing_the_package_is_cheap() -> None:
    loaded = modules_after("import model; model.__version__")
    assert loaded & {"torch", "transformers", "numpy", "pyarrow", "yaml"} == set()


@pytest.mark.parametrize("statement", ["import model.config", "import model.tasks"])
def test_checking_a_config_needs_no_torch(statement: str) -> None:
    assert modules_after(statement) & {"torch", "transformers"} == set()


def test_training_imports_neither_ray_nor_optuna() -> None:
    loaded = modules_after("import model.train, model.run, model.command")
    assert "torch" in loaded
    assert loaded & {"ray", "optuna", "tuner", "datasets", "sklearn", "torchjd"} == set()


def test_load_model_is_found_when_asked_for() -> None:
    loaded = modules_after("from model import load_model; assert callable(load_model)")
    assert "model.folder" in loaded
    with pytest.raises(AttributeError, match="no attribute 'lod_model'"):
        model.lod_model  # noqa: B018
    assert set(model.__all__) == {"load_model"}
