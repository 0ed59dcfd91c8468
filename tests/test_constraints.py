"""The exact versions can be installed on every Python that the project names."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
OLDEST = "3.10"


def pins() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_the_oldest_python_is_the_project_s() -> None:
    assert f'requires-python = ">={OLDEST}"' in (ROOT / "pyproject.toml").read_text()


def test_a_pin_for_every_python_supports_the_oldest() -> None:
    checked, refused = 0, []
    for pin in pins():
        try:
            needs = distribution(pin.name).metadata.get("Requires-Python")
        except PackageNotFoundError:
            continue  # of another system
        checked += 1
        if pin.marker is None and needs and not SpecifierSet(needs).contains(f"{OLDEST}.0"):
            refused.append(f"{pin.name} needs Python {needs}")
    assert checked > 100 and not refused


def test_a_pin_for_newer_pythons_has_one_for_the_oldest_beside_it() -> None:
    older = {"python_version": OLDEST, "python_full_version": f"{OLDEST}.0"}
    for pin in pins():
        fitting = [
            one
            for one in pins()
            if one.name == pin.name and (one.marker is None or one.marker.evaluate(older))
        ]
        assert len(fitting) == 1, pin.name
