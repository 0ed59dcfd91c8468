"""Wheel and source archive, as an index would take them. `make dist` asks the tools themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.metadata import Metadata

import model
from tests.installed import PIP, ROOT

SDIST = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of what git has."""
    place = tmp_path_factory.mktemp("sdist")
    source = place / "source"
    skip = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "*.egg-info", "runs")
    shutil.copytree(ROOT, source, ignore=skip, symlinks=True)
    shutil.copytree(ROOT / "tuner" / "runs", source / "tuner" / "runs", dirs_exist_ok=True)
    subprocess.run([sys.executable, "-c", SDIST, str(place)], cwd=source, check=True,
                   capture_output=True)  # fmt: skip
    (found,) = place.glob("*.tar.gz")
    return found


def metadata_of(text: bytes) -> Metadata:
    return Metadata.from_email(text, validate=True)  # raises for what an index would refuse


@pytest.mark.slow
def test_the_wheel_s_metadata_is_valid_and_complete(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel)
    (name,) = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
    found = metadata_of(files.read(name))
    assert str(found.version) == model.__version__
    assert found.description_content_type == "text/markdown" and found.license_expression
    assert found.classifiers and "Typing :: Typed" in found.classifiers
    assert {f"{name}/py.typed" for name in ("model", "tuner", "stockpot")} <= set(files.namelist())


@pytest.mark.slow
def test_the_source_archive_makes_the_same_wheel(
    archive: Path, wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert metadata_of((source / "PKG-INFO").read_bytes()).name == "stockpot"
    assert (source / "constraints.txt").is_file() and (source / "LICENSE").is_file()
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir"]
    subprocess.run([*PIP, *build, str(tmp_path), str(source)], check=True)
    (made,) = tmp_path.glob("*.whl")
    assert set(zipfile.ZipFile(made).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_versions_are_the_same_wherever_they_stand() -> None:
    version = model.__version__
    for page in ("docs/clusters/kuberay.md", "docs/clusters/kuberay.yaml"):
        assert set(re.findall(r"stockpot:([\d.]+)", (ROOT / page).read_text())) == {version}
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version


def test_actionlint_has_no_remark() -> None:
    if (found := shutil.which("actionlint")) is None:
        pytest.skip("actionlint is not installed: github.com/rhysd/actionlint/releases")
    done = subprocess.run([found], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("false", 2)])
def test_what_make_sets_up_silently_shows_dots_and_fails_as_it_would(
    command: str, code: int, tmp_path: Path
) -> None:
    sleep = tmp_path / "sleep"  # two seconds pass at once
    sleep.write_text('#!/bin/sh\ncd "${0%/*}"\n[ ! -e once ] || touch twice\ntouch once\n')
    sleep.chmod(0o755)
    until = f"until [ -e {tmp_path}/twice ]; do /bin/sleep .01; done"
    done = subprocess.run(
        [
            "make",
            "--no-print-directory",
            "--eval",
            f"probe: ; @$(call alive,{until}; {command})",
            "probe",
        ],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code and done.stdout.startswith("."), done
