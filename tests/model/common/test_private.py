"""Temporary folders that strangers have prepared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from model.common.private import by_handle, own_handle, private_folder
from tuner.runs.scratch import HELD, PREFIX, sweep

STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")


def test_a_private_folder_is_ours_alone_and_stays_the_same(tmp_path: Path) -> None:
    folder = private_folder("mine", tmp_path)
    assert folder == private_folder("mine", tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700 and folder.stat().st_uid == os.geteuid()


def stranger_folder(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)


@pytest.mark.parametrize(
    "kind", ["a link", "a file", "open to all", pytest.param("another user's", marks=as_root)]
)
def test_a_folder_that_somebody_prepared_is_not_used(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / f"mine-{os.geteuid()}"
    target = tmp_path / "target"
    target.mkdir()
    (target / "theirs").write_text("theirs")
    if kind == "a link":
        folder.symlink_to(target)
    elif kind == "a file":
        folder.touch()
    elif kind == "open to all":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        stranger_folder(folder)
    found = private_folder("mine", tmp_path)
    assert found != folder and found.parent == tmp_path
    assert list(found.iterdir()) == [] and found.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in target.iterdir()] == ["theirs"]
    with own_handle(folder) as handle:
        assert handle is None


@as_root
def test_scratch_of_another_user_is_passed_over(tmp_path: Path) -> None:
    evil, mine = tmp_path / f"{PREFIX}evil", tmp_path / f"{PREFIX}mine"
    stranger_folder(evil)
    for folder in (evil, mine):
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / HELD).touch()
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / HELD).touch()
    (victim / "file").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(victim)
    os.mkfifo(tmp_path / f"{PREFIX}pipe")
    sweep(tmp_path)
    assert (evil / HELD).exists() and not mine.exists()
    assert sorted(file.name for file in victim.iterdir()) == ["file", HELD]


def test_a_folder_swapped_for_a_link_between_lock_and_sweep_keeps_the_links_target_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, victim = tmp_path / f"{PREFIX}dead", tmp_path / "victim"
    for place in (folder, victim):
        place.mkdir(mode=0o700)
        (place / HELD).touch()
        (place / "file").touch()

    def swap(place: Path) -> None:  # at the worst moment: it is ours and locked
        folder.rename(tmp_path / "aside")
        folder.symlink_to(victim)

    monkeypatch.setattr("tuner.runs.scratch.end_orphans", swap)
    sweep(tmp_path)
    assert sorted(file.name for file in victim.iterdir()) == ["file", HELD]
    assert not (tmp_path / "aside" / "file").exists()


def test_a_handle_leads_to_its_folder_whatever_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    with own_handle(tmp_path / "a") as handle:
        assert handle is not None
        (tmp_path / "a").rename(tmp_path / "b")
        if Path("/proc/self/fd").exists():
            (by_handle(handle, tmp_path / "a") / "x").touch()
            assert (tmp_path / "b" / "x").exists()
