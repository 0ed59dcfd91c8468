"""The wheel: complete, and at work in a folder that knows nothing of the project's."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from tests.installed import ROOT, run

pytestmark = pytest.mark.slow  # pip builds it
FEW = ["budget.examples=48", "budget.eval_every=48", "budget.eval_rows=20", "batch.sizes=8"]
LOADS = """
import stockpot
import tuner
from model.config.parse import load_preset, preset_names
from model.tasks.task_set import load_task_set, shipped
from tuner.cluster.pins import other_versions, pins
from tuner.space.space import load_space, shipped_spaces
from tuner.study.reader import load_study, shipped_studies

print(tuner.__file__)
assert all(load_preset(name).settings for name in preset_names()) and preset_names()
assert all(load_task_set(name).names for name in shipped()) and shipped()
assert all(path.is_file() for path in shipped_spaces().values()) and load_space("default")
assert stockpot.space("default").start_params()
assert len([load_study(name).rows for name in shipped_studies()]) > 20
assert pins()["ray"] and "install that one" in other_versions("pip install ray==0.0.1")[0]
"""


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    there = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in ("model", "stockpot", "tuner")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for folder in ("search_spaces", "studies"):
        wanted |= {f"tuner/{path.relative_to(ROOT)}" for path in (ROOT / folder).glob("*")}
    assert {"model/py.typed", "stockpot/py.typed", "tuner/py.typed"} <= wanted
    assert wanted - there == set()
    assert {name.split("/")[0].split("-")[0] for name in there} == {"model", "tuner", "stockpot"}


def test_what_is_shipped_is_found_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    said = run(installed, tmp_path, sys.executable, "-c", LOADS)
    assert Path(said.strip()) == installed / "tuner" / "__init__.py"


def test_the_wheel_has_the_command(installed: Path, tmp_path: Path) -> None:
    stockpot = str(installed / "bin" / "stockpot")
    assert run(installed, tmp_path, stockpot, "--version").startswith("stockpot ")
    said = run(installed, tmp_path, stockpot, "search", "--help")
    assert said.startswith("usage: stockpot search [flags]")
    assert "resume   stockpot search --resume --name big" in said and "python -m" not in said


def test_the_wheel_trains_in_another_folder(installed: Path, tmp_path: Path) -> None:
    few = [word for setting in FEW for word in ("--set", setting)]
    train = ["train", "--tasks", "sample", "--encoder", "tiny", *few]
    said = run(installed, tmp_path, str(installed / "bin" / "stockpot"), *train)
    assert "model: runs/sample-001/model" in said
    assert (tmp_path / "runs" / "sample-001" / "model" / "model.safetensors").is_file()
