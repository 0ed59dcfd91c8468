"""The package as its users have it: from a wheel, with nothing of the checkout in reach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def build_wheel(place: Path) -> None:
    """Built from a copy, as setuptools leaves its traces in the folder that it builds from."""
    source = place / "source"
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("model", "stockpot", "tuner", "search_spaces", "studies"):
        shutil.copytree(ROOT / name, source / name, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    subprocess.run([*PIP, *build, str(place), str(source)], check=True)


def install(wheel: Path, place: Path) -> None:
    command = ["install", "--no-deps", "--no-index", "--target", str(place), str(wheel)]
    subprocess.run([*PIP, *command], check=True)


def run(installed: Path, folder: Path, *words: str, timeout: float = 240) -> str:
    """What a command of the installed package prints; it must end well."""
    return run_heard(installed, folder, *words, timeout=timeout)[0]


def run_heard(
    installed: Path, folder: Path, *words: str, timeout: float = 240
) -> tuple[str, list[str]]:
    """The same, and the lines that it says beside it, on stderr."""
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.splitlines()
