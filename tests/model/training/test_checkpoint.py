from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from model.training import checkpoint as module
from model.training.checkpoint import (
    KEPT_STATES,
    MANIFEST,
    DamagedCheckpoint,
    checkpoint_name,
    checkpoints_in,
    clean_leftovers,
    is_checkpoint,
    load_latest,
    prune,
    save_checkpoint,
    verify,
)


def save(folder: Path, step: int, word: str = "") -> Path:
    def write_model(place: Path) -> None:
        place.mkdir()
        (place / "config.json").write_text(f"{{}} {step} {word}")
        (place / "model.safetensors").write_bytes(bytes([step % 256]) * 100)

    place = folder / checkpoint_name(step)
    tensors = {"a.exp_avg": torch.full((3, 2), float(step)), "a.step": torch.tensor(float(step))}
    save_checkpoint(place, write_model=write_model, tensors=tensors, state={"step": step})
    return place


def latest(folder: Path) -> tuple[int | None, list[str]]:
    told: list[str] = []
    found = load_latest(folder, told.append)
    if found is None:
        return None, told
    step = int(found.state["step"])
    assert found.folder == folder / checkpoint_name(step)
    assert found.tensors["a.exp_avg"].tolist() == [[step] * 2] * 3
    return step, told


def names(folder: Path) -> list[str]:
    return [place.name for place in checkpoints_in(folder)]


def test_a_checkpoint_reads_back(tmp_path: Path) -> None:
    place = save(tmp_path, 300)
    verify(place)
    found = load_latest(tmp_path, pytest.fail)
    assert found is not None
    assert found.state == {"step": 300}
    assert set(found.tensors) == {"a.exp_avg", "a.step"}
    assert found.tensors["a.step"] == 300


def test_the_youngest_is_used(tmp_path: Path) -> None:
    for step in (200, 1000, 300):
        save(tmp_path / str(step), step)  # each in a folder of its own, so that all stay
        shutil.move(tmp_path / str(step) / checkpoint_name(step), tmp_path)
    assert names(tmp_path) == ["step-00000200", "step-00000300", "step-00001000"]
    assert latest(tmp_path) == (1000, [])


def test_names_sort_beyond_eight_digits(tmp_path: Path) -> None:
    for step in (99_999_999, 100_000_000):
        (tmp_path / checkpoint_name(step)).mkdir()
    assert names(tmp_path) == ["step-99999999", "step-100000000"]


def test_no_folder_and_an_empty_one_hold_no_checkpoint(tmp_path: Path) -> None:
    assert latest(tmp_path / "none") == (None, [])
    assert latest(tmp_path) == (None, [])


def test_tensors_of_any_layout_are_saved_and_none_at_all(tmp_path: Path) -> None:
    place = tmp_path / checkpoint_name(1)
    tensors = {"t": torch.arange(6.0).view(2, 3).T.requires_grad_()}
    save_checkpoint(place, write_model=Path.mkdir, tensors=tensors, state={})
    found = load_latest(tmp_path, pytest.fail)
    assert found is not None
    assert found.tensors["t"].tolist() == [[0, 3], [1, 4], [2, 5]]
    save_checkpoint(
        tmp_path / checkpoint_name(2), write_model=Path.mkdir, tensors={}, state={"a": 1}
    )
    found = load_latest(tmp_path, pytest.fail)
    assert found is not None
    assert (found.state, found.tensors) == ({"a": 1}, {})


# --- damage -------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


FILES = [
    "model/config.json",
    "model/model.safetensors",
    "state/state.json",
    "state/tensors.safetensors",
]
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    **{f"flip {f}": (lambda p, f=f: flip(p / f), f"sha256 of {f} differs") for f in FILES},
    **{f"cut {f}": (lambda p, f=f: cut(p / f), f"sha256 of {f} differs") for f in FILES},
    **{f"remove {f}": (lambda p, f=f: (p / f).unlink(), f"{f} is missing") for f in FILES},
    "no manifest": (
        lambda p: (p / MANIFEST).unlink(),
        "manifest.json is missing or not readable",
    ),
    "half a manifest": (
        lambda p: (p / MANIFEST).write_text((p / MANIFEST).read_text()[:80]),
        "manifest.json is missing or not readable",
    ),
    "a manifest that is no mapping": (
        lambda p: (p / MANIFEST).write_text("[1]"),
        "manifest.json is missing or not readable",
    ),
    "no state": (lambda p: shutil.rmtree(p / "state"), "state/state.json is missing"),
    "no model": (lambda p: shutil.rmtree(p / "model"), "model/config.json is missing"),
    "nothing at all": (
        lambda p: [shutil.rmtree(p), p.mkdir()],
        "manifest.json is missing or not readable",
    ),
    "an empty manifest and no state": (
        lambda p: [(p / MANIFEST).write_text("{}"), shutil.rmtree(p / "state")],
        "state/state.json is missing",
    ),
}


def test_a_name_in_other_digits_is_no_checkpoints() -> None:
    assert is_checkpoint("step-00000120")
    assert not is_checkpoint("step-\u0660\u0660\u0660\u0660\u0660\u0661\u0662\u0660")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_passed_over(tmp_path: Path, damage: str) -> None:
    save(tmp_path, 100)
    place = save(tmp_path, 200)
    spoil, fault = DAMAGE[damage]
    spoil(place)
    told = f"checkpoint step-00000200 is damaged ({fault}); using step-00000100"
    assert latest(tmp_path) == (100, [told])


@pytest.mark.parametrize("damage", DAMAGE)
def test_without_a_predecessor_the_run_starts_anew(tmp_path: Path, damage: str) -> None:
    spoil, fault = DAMAGE[damage]
    spoil(save(tmp_path, 200))
    told = f"checkpoint step-00000200 is damaged ({fault}); using the start"
    assert latest(tmp_path) == (None, [told])


def test_any_flipped_bit_of_the_manifest_is_noticed_or_harmless(tmp_path: Path) -> None:
    save(tmp_path, 100)
    manifest = save(tmp_path, 200) / MANIFEST
    whole = manifest.read_bytes()
    for place in range(len(whole)):
        spoilt = bytearray(whole)
        spoilt[place] ^= 4
        manifest.write_bytes(spoilt)
        step, told = latest(tmp_path)
        if step != 200:
            assert step == 100
            assert "step-00000200 is damaged" in told[0]


def test_a_file_that_cannot_be_read_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 100)
    bad = save(tmp_path, 200) / "state" / "state.json"
    real = module.sha256_of

    def unreadable(path: Path, **links: bool) -> str:
        if path == bad:
            raise OSError(5, "Input/output error")
        return real(path, **links)

    monkeypatch.setattr(module, "sha256_of", unreadable)
    step, told = latest(tmp_path)
    assert step == 100
    assert "(state/state.json cannot be read: Input/output error); using step-00000100" in told[0]


def test_several_damaged_ones_are_each_named(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        save(tmp_path, step)
    for step in (200, 300):
        flip(tmp_path / checkpoint_name(step) / "state" / "state.json")
    step, told = latest(tmp_path)
    assert step == 100
    assert [line.split("; ")[1] for line in told] == ["using step-00000200", "using step-00000100"]


def test_a_part_can_be_verified_by_itself(tmp_path: Path) -> None:
    place = save(tmp_path, 1)
    flip(place / "state" / "state.json")
    verify(place, "model/")
    with pytest.raises(DamagedCheckpoint, match=r"sha256 of state/state.json differs"):
        verify(place)


def test_saving_after_a_fallback_clears_the_damaged_future(tmp_path: Path) -> None:
    """Else two damaged ones would count as the two that keep their state."""
    for step in (100, 200, 300):
        save(tmp_path, step)
    for step in (200, 300):
        flip(tmp_path / checkpoint_name(step) / "state" / "state.json")
    assert latest(tmp_path)[0] == 100
    save(tmp_path, 150)
    prune(tmp_path, {checkpoint_name(100)})
    assert names(tmp_path) == ["step-00000100", "step-00000150"]
    assert latest(tmp_path) == (150, [])


# --- pruning ------------------------------------------------------------------------------------


def test_pruning_keeps_the_best_models_and_the_last_two_states(tmp_path: Path) -> None:
    for step in range(100, 700, 100):
        save(tmp_path, step)
    prune(tmp_path, {checkpoint_name(200), checkpoint_name(400), checkpoint_name(600)})
    assert names(tmp_path) == [checkpoint_name(step) for step in (200, 400, 500, 600)]
    kept = {place.name: (place / "state").is_dir() for place in checkpoints_in(tmp_path)}
    assert [name for name, state in kept.items() if state] == names(tmp_path)[-KEPT_STATES:]
    for place in checkpoints_in(tmp_path):
        verify(place, "model/")
    assert latest(tmp_path) == (600, [])


def test_a_model_kept_without_its_state_is_nothing_to_resume_from(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        save(tmp_path, step)
    prune(tmp_path, {checkpoint_name(100)})
    for step in (200, 300):
        flip(tmp_path / checkpoint_name(step) / "state" / "state.json")
    step, told = latest(tmp_path)
    assert step is None
    assert [line.split("; ")[1] for line in told] == ["using step-00000200", "using the start"]


def test_pruning_twice_changes_nothing(tmp_path: Path) -> None:
    for step in (100, 200, 300):
        save(tmp_path, step)
    for _ in range(2):
        prune(tmp_path, {checkpoint_name(100)})
        assert len(names(tmp_path)) == 3
    prune(tmp_path, ())
    assert names(tmp_path) == ["step-00000200", "step-00000300"]


def test_leftovers_are_cleaned_and_the_rest_stays(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    place = save(checkpoints, 100)
    for name in (".step-00000200.00ab00ab.tmp", ".step-00000050.00cd00cd.old"):
        (checkpoints / name / "model").mkdir(parents=True)
        (checkpoints / name / "model" / ".half.tmp").write_text("x")
    (place / ".state.00ef00ef.old").mkdir()
    (tmp_path / ".metrics.jsonl.12121212.tmp").write_text("x")
    (tmp_path / ".emacs.old").mkdir()
    (tmp_path / ".keep").write_text("x")
    (tmp_path / "a.tmp").write_text("x")
    clean_leftovers(tmp_path)
    left = sorted(item.relative_to(tmp_path).as_posix() for item in tmp_path.rglob("*"))
    inside = [f"checkpoints/step-00000100/{name}" for name in (MANIFEST, "model", "state", *FILES)]
    assert left == sorted(
        [".emacs.old", ".keep", "a.tmp", "checkpoints", "checkpoints/step-00000100", *inside]
    )
    assert latest(checkpoints) == (100, [])
    clean_leftovers(tmp_path / "none")


# --- interrupted saving -------------------------------------------------------------------------

PLACES: dict[str, Any] = {"replace": os, "fsync": os, "save_file": module, "sha256_of": module}


class Killed(BaseException):
    pass


def dying_at(call: str, fatal: int, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    """The n-th call fails. With `killed` nothing works from then on, tidying up included."""
    real: Iterator[Any] = getattr(PLACES[call], call)
    count = 0

    def dying(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count == fatal or (killed and count > fatal):
            raise Killed
        return real(*args)  # type: ignore[operator]

    monkeypatch.setattr(PLACES[call], call, dying)
    if killed:
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
        monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)


def calls_of_a_save(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> int:
    count = 0
    real = getattr(PLACES[call], call)

    def counting(*args: Any) -> Any:
        nonlocal count
        count += 1
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(PLACES[call], call, counting)
        save(tmp_path / "count", 200)
    return count


@pytest.mark.parametrize("killed", [False, True], ids=["raised", "killed"])
@pytest.mark.parametrize("call", PLACES)
def test_a_save_that_dies_anywhere_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, killed: bool
) -> None:
    total = calls_of_a_save(tmp_path, call, monkeypatch)
    assert total >= 1
    for fatal in range(1, total + 1):
        folder = tmp_path / str(fatal)
        save(folder, 100)
        with monkeypatch.context() as patch:
            dying_at(call, fatal, patch, killed)
            with pytest.raises(Killed):
                save(folder, 200)
        step, told = latest(folder)
        assert told == []  # never a partial one under its name
        assert step == 100 or (call == "fsync" and fatal == total and step == 200)
        if not killed:
            assert [item for item in folder.iterdir() if item.name.startswith(".")] == []
        clean_leftovers(folder)
        assert save(folder, 200).is_dir()
        assert latest(folder) == (200, [])


@pytest.mark.parametrize("call", PLACES)
def test_a_save_over_one_of_the_same_name_keeps_one_of_the_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    total = calls_of_a_save(tmp_path, call, monkeypatch) + (call == "replace")
    for fatal in range(1, total + 1):
        folder = tmp_path / str(fatal)
        save(folder, 200, "old")
        with monkeypatch.context() as patch:
            dying_at(call, fatal, patch, killed=False)
            with pytest.raises(Killed):
                save(folder, 200, "new")
        assert latest(folder) == (200, [])
        assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("call", ["replace"])
def test_a_prune_that_is_killed_anywhere_leaves_the_last_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    for fatal in range(1, 4):
        folder = tmp_path / str(fatal)
        for step in (100, 200, 300, 400, 500):
            save(folder, step)
        with monkeypatch.context() as patch:
            dying_at(call, fatal, patch, killed=True)
            with pytest.raises(Killed):
                prune(folder, {checkpoint_name(100)})
        assert latest(folder) == (500, [])
        clean_leftovers(folder)
        prune(folder, {checkpoint_name(100)})
        assert names(folder) == [checkpoint_name(step) for step in (100, 400, 500)]
