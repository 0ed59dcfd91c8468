"""Which way the imports run: up through the rooms of each package, never down or in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Low to high, also where a room has rooms of its own. docs/architecture.md says what each is for.
ROOMS = {
    "model": (
        *("common", "tasks", "data", "objectives", "config", "cpu", "modules"),
        *("evaluation", "training", "train", "cli", "selfcheck"),
    ),
    "tuner": (
        *("space", "runs", "runs/storage", "scoring", "engine", "ray_backend", "cluster"),
        *("soup", "predict", "report", "export/tensorboard", "export/trackers", "export/hub"),
        *("export", "push", "search", "study"),
    ),
}
# The way out of a package, which nothing inside of it takes.
OUTSIDE = ("__init__", "__main__")
# What a package or room must not know at all.
UNKNOWN = {
    "model": {"ray", "optuna", "tuner"},
    "tuner/space": {"ray"},
    "tuner/runs": {"ray", "optuna"},
    "tuner/scoring": {"ray", "optuna"},
    "tuner/engine": {"ray"},
    "tuner/soup": {"ray"},
    "tuner/report": {"ray"},
    "tuner/export": {"ray", "optuna"},
    "tuner/push.py": {"ray", "optuna"},
}
# They take flat arguments and know nothing of the configuration or of each other.
LEAVES = (
    *("objectives/losses", "objectives/smart", "objectives/surgery", "objectives/simcse"),
    *("objectives/schedules", "modules/heads", "modules/pairs", "modules/pals", "training/optim"),
)
MOST_MODULES = 16
MOST_ENTRIES = {"tuner": 16, "model": 14}


def modules(place: str) -> list[Path]:
    found = ROOT / place
    return [found] if found.is_file() else sorted(found.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Every module that the file names in an import, wherever it stands.

    Not what runs only where the file is the program: a command may start from below.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    program = [
        node
        for top in tree.body
        if isinstance(top, ast.If) and "__name__" in ast.dump(top.test)
        for node in ast.walk(top)
    ]
    for node in ast.walk(tree):
        if node in program:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            name = node.module or ""
            if (ROOT / name.replace(".", "/")).is_dir():
                yield from (f"{name}.{alias.name}" for alias in node.names)
            else:
                yield name


def room_of(module: Sequence[str]) -> str:
    """The innermost room of a module, which is given by the parts of its name."""
    package, *inside = module
    places = ("/".join(inside[:length]) for length in range(len(inside), 0, -1))
    return next((place for place in places if place in ROOMS[package]), inside[0])


def parts_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).with_suffix("").parts


def upward(package: str, path: Path) -> list[str]:
    """What the file imports of rooms above its own."""
    order = ROOMS[package]
    room = room_of(parts_of(path))
    # A room's command stands above all rooms: it puts them together.
    own = len(order) if path.stem == "__main__" or room in OUTSIDE else order.index(room)
    found = []
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == package and len(parts) > 1 and (other := room_of(parts)) in order:
            if order.index(other) > own:
                found.append(name)
    return found


@pytest.mark.parametrize("package", ROOMS)
def test_every_module_has_a_room(package: str) -> None:
    assert {room_of(parts_of(path)) for path in modules(package)} - {
        *ROOMS[package],
        *OUTSIDE,
    } == set()


@pytest.mark.parametrize("package", ROOMS)
def test_no_import_points_upward(package: str) -> None:
    found = {str(path.relative_to(ROOT)): upward(package, path) for path in modules(package)}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("package", ROOMS)
def test_no_module_imports_a_command(package: str) -> None:
    for path in modules(package):
        assert not [name for name in imports(path) if name.endswith("__main__")], path


def test_an_import_that_is_turned_round_is_found() -> None:
    path = ROOT / "tuner" / "runs" / "ledger.py"
    assert upward("tuner", path) == []
    turned = ROOT / "tuner" / "search" / "driver.py"  # imports rooms below it
    order = ROOMS["tuner"]
    ROOMS["tuner"] = tuple(reversed(order))
    try:
        assert upward("tuner", turned) != []
    finally:
        ROOMS["tuner"] = order


def test_a_room_in_a_room_has_a_place_of_its_own() -> None:
    assert room_of(("tuner", "runs", "storage", "fence")) == "runs/storage"
    assert room_of(("tuner", "runs", "ledger")) == "runs"
    assert room_of(("tuner", "report", "soup", "draw")) == "report"


@pytest.mark.parametrize("place", UNKNOWN)
def test_what_a_room_must_not_know(place: str) -> None:
    for path in modules(place):
        known = {name.split(".")[0] for name in imports(path)}
        assert known & UNKNOWN[place] == set(), path


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_knows_nothing_of_the_rest(leaf: str) -> None:
    own = [n for n in imports(ROOT / "model" / f"{leaf}.py") if n.split(".")[0] == "model"]
    assert not [name for name in own if not name.startswith("model.common.")]


@pytest.mark.parametrize("package", ROOMS)
def test_no_room_is_crowded(package: str) -> None:
    for folder in {path.parent for path in modules(package)}:
        there = [path for path in folder.glob("*.py") if path.stem != "__init__"]
        assert len(there) <= MOST_MODULES, folder


@pytest.mark.parametrize("package", ROOMS)
def test_a_package_is_seen_at_a_glance(package: str) -> None:
    entries = {path.name for path in (ROOT / package).iterdir()} - {"__pycache__"}
    assert len(entries) <= MOST_ENTRIES[package], sorted(entries)
