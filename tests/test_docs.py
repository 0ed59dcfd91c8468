"""What the documents say of the code is what the code says."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import model
from model.common.errors import InputError
from model.config.parse import describe_settings
from tuner.__main__ import COMMANDS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOW = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which tells of what was
TEXTS = [*PAGES, ROOT / "cluster.yaml", *(ROOT / "docs").rglob("*.yaml")]
TEXTS += [*(ROOT / "search_spaces").glob("*.yaml"), *(ROOT / "model").rglob("*.yaml")]


def names(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_the_page_of_settings_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "settings.md").read_text().endswith(describe_settings())


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", NOW, ids=names)
def test_every_module_and_folder_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"[\w./-]*\w\.py\b", text))
    named |= set(
        re.findall(r"`((?:model|tuner|tests|benchmarks|docs|search_spaces)/[\w/]*)`", text)
    )
    # A folder's parts, as `collect.py`, go by their bare names.
    missing = {name for name in named if not (ROOT / name).exists() and "/" in name}
    assert missing == set()


def test_no_page_and_no_error_says_to_install_what_no_index_has() -> None:
    """`install` says how an extra is installed."""
    code = [path for name in ("model", "tuner", "tests") for path in (ROOT / name).rglob("*.py")]
    told = [path for path in (*NOW, *code) if "'stockpot" + "[" in path.read_text()]
    assert told == []


# --- rooms ----------------------------------------------------------------------------------------


def rooms() -> set[str]:
    """Packages, and modules beside them, of `model` and `tuner`."""
    found = set()
    for package in ("model", "tuner"):
        for path in (ROOT / package).iterdir():
            if (path / "__init__.py").exists() or (path.suffix == ".py" and path.stem[:2] != "__"):
                found.add(f"{package}/{path.name}")
    return found


@pytest.mark.parametrize("page", [README, ARCHITECTURE], ids=names)
def test_a_table_names_every_room_and_no_other(page: Path) -> None:
    named = re.findall(r"^\| `((?:model|tuner)/[\w.]+)` \|", page.read_text(), flags=re.MULTILINE)
    assert set(named) == rooms()
    assert len(named) == len(set(named))


def test_the_picture_has_the_rooms_in_their_order() -> None:
    from tests.test_rooms import ROOMS

    picture = ARCHITECTURE.read_text().split("```mermaid")[1].split("```")[0]
    drawn = [line.split(" --> ") for line in picture.splitlines() if line.count(" --> ") > 2]
    # A room whose name is no mermaid name stands in quotes: storage["runs/storage"].
    shown = [tuple(re.sub(r'.*\["|"\]|\.py', "", room.strip()) for room in line) for line in drawn]
    assert shown == [ROOMS["model"], ROOMS["tuner"]]


# --- commands -------------------------------------------------------------------------------------


def parser_of(command: str) -> argparse.ArgumentParser:
    make: Callable[[], argparse.ArgumentParser] = import_module(COMMANDS[command][0]).make_parser
    return make()


def blocks(page: Path) -> Iterator[str]:
    """What stands between fences that name no language: commands, and what they print."""
    language: str | None = None
    lines: list[str] = []
    for line in page.read_text().splitlines():
        if not line.startswith("```"):
            lines.append(line)
        elif language is None:
            language, lines = line[3:], []
        else:
            if not language:
                yield "\n".join(lines)
            language = None


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """Every command of ours that the page shows, with its arguments."""
    for block in blocks(page):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            for part in line.split(" #")[0].split(" && "):
                start = r"(?:^|[\s'])(?:python -m (?:model|tuner)\.|stockpot )"
                if (found := re.search(rf"{start}(\w+)(.*)", part)) and "..." not in part:
                    yield found[1], found[2].split("'")[0].strip()


SHOWN = [(page, *command) for page in NOW for command in commands(page)]


@pytest.mark.parametrize(("page", "command", "given"), SHOWN)
def test_a_command_that_a_page_shows_is_one_and_has_these_flags(
    page: Path, command: str, given: str
) -> None:
    assert command in COMMANDS, f"{page.name}: there is no command {command}"
    try:
        parser_of(command).parse_args(shlex.split(given))
    except (SystemExit, InputError) as fault:
        pytest.fail(f"{page.name}: {command} {given}: {fault}")


def test_the_pages_show_every_command() -> None:
    assert len(SHOWN) > 30 and {command for _, command, _ in SHOWN} == set(COMMANDS)


def test_the_readme_says_what_it_is_and_has_the_two_commands() -> None:
    text = README.read_text()
    assert "hyperparameter search" in text.split("\n\n")[1].split(". ")[0]
    assert re.search(r"^make search\b", text, re.MULTILINE)
    assert re.search(r"^make test\b", text, re.MULTILINE)


# --- words and versions ---------------------------------------------------------------------------

STRANGE = re.compile(
    r"\b(?:dear|dearest|costliest|reckon\w*|crossed|cook\w*|tasting\w*|kitchen|dish|dishes|goods"
    r"|pantry|parcel\w*|seam|strays|pulse\w*|quicken\w*|unhurried|came to here|what \w+ came to)\b",
    re.IGNORECASE,
)
SOURCES = [*(ROOT / "model").rglob("*.py"), *(ROOT / "tuner").rglob("*.py")]
SOURCES = [path for path in SOURCES if path.parent.name != "sample"]  # made-up rows, of cooks too


@pytest.mark.parametrize("text", TEXTS, ids=names)
def test_the_words_are_those_of_the_field(text: Path) -> None:
    assert STRANGE.findall(text.read_text().replace("tuner.cook`", "")) == []


def test_so_are_those_of_messages_and_docstrings() -> None:
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert STRANGE.findall(node.value) == [], f"{names(source)}:{node.lineno}"


def test_the_files_for_github_fit_the_project() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == model.__version__ and citation["license"] == "Apache-2.0"
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    targets = {found for step in steps for found in re.findall(r"\bmake ([\w-]+)", step)}
    assert targets == {"test", "search", "dist"}
    installed = [step for step in steps if step.startswith(("pip ", "stockpot "))]
    assert len(installed) == 2 and all(step in README.read_text() for step in installed)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {hook["id"] for hook in hooks} == {"ruff", "ruff-format", "mypy"}
