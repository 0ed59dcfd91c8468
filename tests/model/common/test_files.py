from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from model.common import files
from model.common.errors import InputError
from model.common.files import (
    Document,
    atomic_folder,
    check_room,
    read_yaml,
    remove_folder,
    to_yaml,
    write_atomic,
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "a.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def faults_of(path: Path) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_yaml(path)
    assert caught.value.where == str(path)
    return caught.value.faults


# --- reading ------------------------------------------------------------------------------------


def test_every_key_knows_its_line(written: Callable[[str], Path]) -> None:
    document = read_yaml(written("about: x\n\nsmart:\n  # why\n  weight: 5\n  tasks: [a, b]\n"))
    assert document.data == {"about": "x", "smart": {"weight": 5, "tasks": ["a", "b"]}}
    assert document.lines == {
        ("about",): 1,
        ("smart",): 3,
        ("smart", "weight"): 5,
        ("smart", "tasks"): 6,
    }
    assert document.at("smart", "weight") == "line 5: "
    assert document.at("smart", "radius") == "line 3: "  # the nearest place above
    assert document.at("optim") == ""


def test_an_empty_file_is_an_empty_mapping(written: Callable[[str], Path]) -> None:
    assert read_yaml(written("# only a comment\n")).data == {}


def test_keys_given_twice_are_refused_all_at_once(written: Callable[[str], Path]) -> None:
    faults = faults_of(written("a: 1\nb: {c: 1, c: 2}\na: 2\n"))
    assert faults == [
        "line 2: 'c' is given twice; keep one of them",
        "line 3: 'a' is given twice; keep one of them",
    ]


def test_an_alias_that_points_at_where_it_stands_ends(written: Callable[[str], Path]) -> None:
    document = read_yaml(written("a: &x\n  b: 1\n  c: *x\n"))
    assert document.at("a", "c") == "line 3: "


def test_aliases_that_double_at_every_level_take_no_time(written: Callable[[str], Path]) -> None:
    levels = ["l0: &l0 {a: 1, b: 1}"]
    levels += [f"l{n}: &l{n} {{a: *l{n - 1}, b: *l{n - 1}}}" for n in range(1, 40)]
    began = time.process_time()
    document = read_yaml(written("\n".join(levels)))
    assert document.at("l39", "b") == "line 40: "
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- 1\n- 2\n", "must be a mapping of keys to values, but is a list"),
        ("hello\n", "must be a mapping of keys to values, but is a str"),
        ("a: 1\nb: [1, 2\n", "line 3: not valid YAML"),
        ("a: 1\n\tb: 2\n", "line 2: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "line 2: not valid YAML: but found another document"),
        ("a: !!python/object/apply:os.getcwd []\n", "line 1: not valid YAML: could not determine"),
        ("a: 2001-99-99\n", "not valid YAML: month must be in 1..12"),
        ("[" * 5000, "not valid YAML"),
        ("a: \x07\n", "not valid YAML"),
    ],
)
def test_what_is_not_a_yaml_mapping_is_told(
    written: Callable[[str], Path], text: str, fault: str
) -> None:
    (told,) = faults_of(written(text))
    assert told.startswith(fault)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    assert faults_of(tmp_path / "none.yaml") == ["no such file; check the path"]
    assert "is a folder, where a regular file is expected" in faults_of(tmp_path)[0]
    assert "null" in faults_of(tmp_path / "a\0b")[0]
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("a: é".encode("latin-1"))
    assert "cannot be read as UTF-8 text" in faults_of(latin)[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(
    st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>?%@`'\"#,. \n\t<=~01é\x00\ufeff"), max_size=40)
)
@example("? {a: 1}\n: 2")
@example("<<: [1]\na: *x")
@example("a: !!float x")
@example("&a : *a")
def test_no_text_makes_the_reader_fail(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(text.encode())
    try:
        document = read_yaml(path)
    except InputError as error:
        assert error.faults
        assert all(fault.strip() for fault in error.faults)
    else:
        assert isinstance(document, Document)
        assert isinstance(document.data, dict)


# Not the line and paragraph separators of Unicode, which PyYAML folds.
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]) | st.just("\n"))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.dictionaries(words, plain, max_size=4))
def test_what_is_written_reads_back(tmp_path: Path, data: dict[str, Any]) -> None:
    path = tmp_path / "back.yaml"
    path.write_bytes(to_yaml(data).encode())
    assert read_yaml(path).data == data


# --- writing ------------------------------------------------------------------------------------


class Broken(Exception):
    pass


def breaking(*_: object, **__: object) -> None:
    raise Broken


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "één")
    assert path.read_bytes() == "één".encode()
    write_atomic(path, b"\0two")
    assert path.read_bytes() == b"\0two"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    monkeypatch.setattr(os, call, breaking)
    with pytest.raises(Broken):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_is_killed_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    monkeypatch.setattr(os, "replace", breaking)
    monkeypatch.setattr(Path, "unlink", breaking)  # a killed process does not tidy up either
    with pytest.raises(Broken):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    (left,) = (item for item in tmp_path.iterdir() if item != path)
    assert left.name.startswith(".a.txt.") and left.suffix == ".tmp"


def test_operating_system_errors_of_a_write_come_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "none" / "a.txt", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path / "folder", "x")
    assert [item.name for item in tmp_path.iterdir()] == ["folder"]


def fill(folder: Path, word: str) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text(word)
    (folder / "b.txt").write_text(word)


def content(folder: Path) -> dict[str, str]:
    files = (item for item in folder.rglob("*") if item.is_file())
    return {item.relative_to(folder).as_posix(): item.read_text() for item in files}


def test_a_folder_appears_with_all_its_files(tmp_path: Path) -> None:
    goal = tmp_path / "deep" / "goal"
    with atomic_folder(goal) as partial:
        fill(partial, "x")
        assert not goal.exists()
    assert content(goal) == {"in/a.txt": "x", "b.txt": "x"}
    assert list(goal.parent.iterdir()) == [goal]


def test_a_folder_replaces_the_one_before(tmp_path: Path) -> None:
    goal = tmp_path / "goal"
    for word in ("old", "new"):
        with atomic_folder(goal) as partial:
            fill(partial, word)
    assert content(goal) == {"in/a.txt": "new", "b.txt": "new"}
    assert list(tmp_path.iterdir()) == [goal]


@pytest.mark.parametrize("error", [Broken, KeyboardInterrupt, OSError])
def test_a_folder_whose_filling_fails_leaves_nothing(
    tmp_path: Path, error: type[BaseException]
) -> None:
    with pytest.raises(error), atomic_folder(tmp_path / "goal") as partial:
        fill(partial, "x")
        raise error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("before", [False, True], ids=["new", "replacing"])
@pytest.mark.parametrize("fatal", range(1, 9))
def test_a_folder_whose_naming_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, before: bool, fatal: int
) -> None:
    goal = tmp_path / "goal"
    if before:
        with atomic_folder(goal) as partial:
            fill(partial, "old")
    real, calls = getattr(os, call), iter(range(1, 100))

    def once(*args: object) -> object:
        if next(calls) == fatal:
            raise Broken
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, once)
        try:
            with atomic_folder(goal) as partial:
                fill(partial, "new")
            failed = False
        except Broken:
            failed = True
    found = set(content(goal).values()) if goal.exists() else set()
    allowed = [{"new"}] if not failed else [{"old"} if before else set(), {"new"}]
    assert found in allowed  # a failed fsync of the parent comes after the new name
    assert [item for item in tmp_path.iterdir() if item != goal] == []


def test_a_removed_folder_is_gone_even_if_removing_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = tmp_path / "goal"
    goal.mkdir()
    fill(goal, "x")
    monkeypatch.setattr(files.shutil, "rmtree", lambda *_, **__: None)
    remove_folder(goal)
    assert not goal.exists()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".goal.") and left.suffix == ".old"
    remove_folder(goal)  # nothing there: nothing to do


def test_what_cannot_fit_is_told_with_the_place_and_the_room_missing(tmp_path: Path) -> None:
    check_room(tmp_path / "to" / "be", 1000)
    with pytest.raises(OSError, match="a checkpoint takes 1000000000000.0 MB, and .* MB are free"):
        check_room(tmp_path / "to" / "be", 10**18)
    assert not (tmp_path / "to").exists()
