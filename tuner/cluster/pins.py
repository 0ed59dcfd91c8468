"""The versions that the project is tested with, and what a text asks for instead."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tuner.runs.folder import PACKAGES

# In a checkout. A wheel has none, and then the versions beside it are the project's.
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([0-9][A-Za-z0-9.+!]*)")


def pins() -> dict[str, set[str]]:
    """package -> the versions in constraints.txt, one per Python; else what is installed here."""
    found: dict[str, set[str]] = {}
    if CONSTRAINTS.is_file():
        for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines():
            if match := PIN.match(line.strip()):
                found.setdefault(normal(match[1]), set()).add(match[2])
        return found
    for name in PACKAGES:
        try:
            found[normal(name)] = {version(name)}
        except PackageNotFoundError:
            continue
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def other_versions(text: str) -> list[str]:
    """What a command would install in another version than the project's."""
    known = pins()
    faults = []
    for name, given in PIN.findall(text):
        ours = known.get(normal(name))
        if ours and given not in ours:
            said = f"'{name}=={given}' is not the project's version ({', '.join(sorted(ours))})"
            pinned = CONSTRAINTS.is_file()
            remedy = "install with --constraint constraints.txt" if pinned else "install that one"
            faults.append(f"{said}; {remedy}")
    return faults


def image_faults(image: object) -> list[str]:
    """A container image must say exactly what is in it, and that must be the project's Ray."""
    text = str(image or "")
    name, _, digest = text.partition("@")
    place, _, tag = name.rpartition(":") if ":" in name.rsplit("/", 1)[-1] else (name, "", "")
    (ray,) = pins().get("ray", {"2.60.0"})
    remedy = f"write rayproject/ray:{ray}-py311-gpu"
    if place.endswith("ray-ml"):
        return [f"image '{text}': ray-ml ended with Ray 2.30; {remedy}"]
    moving = tag.split("-")[0] in ("", "latest", "nightly", "gpu", "cpu")
    if moving and not digest:
        return [f"image '{text}' is not pinned, so machines may differ; {remedy}"]
    found = re.match(r"(\d+\.\d+\.\d+)", tag)
    if "rayproject/" in place and found and found[1] != ray:
        return [f"image '{text}' has Ray {found[1]}, the project's is {ray}; {remedy}"]
    return []
