from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from model.cli.invocation import command, program


@pytest.mark.parametrize(
    ("program", "search", "train"),
    [
        ("/usr/bin/stockpot", "stockpot search --name 'a b'", "stockpot train"),
        (
            "/x/tuner/search/__main__.py",
            "python -m tuner.search --name 'a b'",
            "python -m model.train",
        ),
        ("", "python -m tuner.search --name 'a b'", "python -m model.train"),
    ],
)
def test_a_command_to_copy_is_in_the_form_that_was_typed(
    program: str, search: str, train: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    assert command("search", "--name", "a b") == search
    assert command("train") == train


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its programs, in a project's `.venv` beside a system with a Python of its own."""
    folders = [tmp_path / "project" / ".venv" / "bin", tmp_path / "system"]
    for folder in folders:
        folder.mkdir(parents=True)
        for name in ("python", "stockpot", "tensorboard"):
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folders[0] / "python"))
    monkeypatch.setenv("PATH", str(folders[1]))
    monkeypatch.chdir(tmp_path / "project")
    return folders[0]


@pytest.mark.parametrize("typed", ["/x/tuner/search/__main__.py", ".venv/bin/stockpot"])
def test_what_PATH_does_not_find_is_told_with_its_path(
    typed: str, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [typed])
    assert command("predict", "runs/a") == ".venv/bin/stockpot predict runs/a"
    assert program("tensorboard") == ".venv/bin/tensorboard"
    monkeypatch.chdir(environment.parents[2])  # above the project, and then beside it
    assert command("train") == "project/.venv/bin/stockpot train"
    monkeypatch.chdir("system")
    assert command("train") == f"{environment}/stockpot train"


def test_what_PATH_finds_is_told_by_its_name(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(environment), os.environ["PATH"]]))
    monkeypatch.setattr(sys, "argv", [".venv/bin/stockpot"])
    assert command("train") == "stockpot train" and program("tensorboard") == "tensorboard"
    monkeypatch.setattr(sys, "argv", ["/x/model/train.py"])
    assert command("train") == "python -m model.train"


def test_without_the_script_the_python_of_this_process_is_told(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (environment / "stockpot").unlink()
    monkeypatch.setattr(sys, "argv", ["/x/model/train.py"])
    assert command("train") == ".venv/bin/python -m model.train"
