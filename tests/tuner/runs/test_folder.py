from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from model.common.errors import InputError
from model.common.files import size_of
from model.tasks.task_set import load_task_set
from tuner.ray_backend.session import loopback_only, one_environment
from tuner.runs.folder import (
    changes,
    code_fingerprint,
    encoder_fingerprint,
    fingerprints,
    own_folder,
    read_run,
    run_folder,
    write_run,
)
from tuner.runs.scratch import HELD, PREFIX, scratch_folder, sweep
from tuner.search.disk import Need, check_disk, disk_need, estimate_size, human
from tuner.space.space import load_space


@pytest.mark.parametrize("name", ["a", "run-1", "v1.2_final", "-x", "_", "x" * 64])
def test_a_run_lies_directly_in_its_storage(name: str, tmp_path: Path) -> None:
    assert run_folder(tmp_path, name).parent == tmp_path


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".x", "../x", "a/b", "/etc/x", "a\\b", "x" * 65, "a b", "a\n", "ü", "x\0"],
)
def test_a_hostile_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot name a run"):
        run_folder(tmp_path, name)


def test_a_folder_that_stays_empty_goes_again(tmp_path: Path) -> None:
    place = tmp_path / "a" / "b"
    with pytest.raises(InputError), own_folder(place):
        assert place.is_dir()
        raise InputError("x", ["y"])
    assert not (tmp_path / "a").exists() and tmp_path.exists()
    with own_folder(place):
        (place / "file").touch()
    assert (place / "file").exists()
    with own_folder(place):
        pass
    assert (place / "file").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be made"), own_folder(tmp_path / "file" / "x"):
        pass


def test_every_fingerprint_that_differs_is_named() -> None:
    before = fingerprints("d", load_task_set("sample"), "tiny")
    assert changes(before, before) == []
    now = fingerprints("e", load_task_set("cs224n"), "minilm")
    now["code"] = "other"
    now["packages"] = {**now["packages"], "torch": "9.9"}
    said = " ".join(changes(before, now))
    for word in ("the data", "the task set", "the encoder", "the code", "is 9.9 now"):
        assert word in said


def test_other_weights_are_another_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = load_task_set("sample")
    weights = tmp_path / "model.safetensors"

    def prints(content: str) -> dict[str, Any]:
        weights.write_text(content)
        return fingerprints("d", tasks, "tiny", str(tmp_path))

    before = prints("one")
    assert changes(before, prints("one")) == []
    assert changes(before, prints("two")) == ["the model of init_from changed since the run began"]
    # A Hub id by the commit of what is here of it.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--bert"
    for commit in ("0" * 40, "1" * 40):
        (repository / "snapshots" / commit).mkdir(parents=True)
        (repository / "snapshots" / commit / "config.json").touch()
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
        assert encoder_fingerprint("org/bert") == f"org/bert {commit}"
    assert encoder_fingerprint("org/other") == "org/other"


def test_the_code_has_one_fingerprint() -> None:
    assert code_fingerprint() == code_fingerprint()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_run(tmp_path, {"seed": 3}, {"data": "x"})
    assert read_run(tmp_path)["request"] == {"seed": 3}
    (tmp_path / "run.yaml").write_text("seed: 3\n")
    with pytest.raises(InputError, match="is this the folder of a run"):
        read_run(tmp_path)


# --- disk ---------------------------------------------------------------------------------------


def test_the_estimate_grows_with_what_is_kept_and_run_at_once() -> None:
    weight = estimate_size(load_space("default", None, {"encoder.name": "tiny"}))
    need = partial(disk_need, weight, tasks=3)
    one = need(slots=1, keep=1)
    assert need(slots=3, keep=1).running == 3 * one.running
    assert need(slots=1, keep=4).kept == one.kept + 3 * one.model
    assert need(slots=1, keep=1, soup=True).kept == one.kept + 2 * one.model
    assert need(slots=1, keep=2, finals=4).kept == need(slots=1, keep=2).kept + 6 * one.model
    assert one.peak == one.running + one.kept


def test_a_disk_that_is_too_small_is_refused_with_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: real._replace(free=1000))
    need = Need(model=400, running=1500, kept=500)
    with pytest.raises(InputError, match=r"about 2.0 kB, and 1.0 kB are free"):
        check_disk(need, tmp_path / "not" / "there")
    # What the run has already is part of what it needs.
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "model").write_bytes(bytes(1000))
    (tmp_path / "trials" / "again").hardlink_to(tmp_path / "trials" / "model")
    assert size_of(tmp_path) == 1000
    check_disk(need, tmp_path)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (23_000_000, "23 MB"), (4.2e12, "4.2 TB")],
)
def test_sizes_are_for_people(size: float, text: str) -> None:
    assert human(int(size)) == text


# --- scratch ------------------------------------------------------------------------------------


def test_scratch_goes_with_its_search_and_with_the_next_after_a_crash(tmp_path: Path) -> None:
    with scratch_folder() as mine:
        abandoned = tmp_path / f"{PREFIX}dead"
        abandoned.mkdir()
        (abandoned / HELD).touch()
        (abandoned / "session").touch()
        foreign = tmp_path / f"{PREFIX}something"
        foreign.mkdir()
        sweep(tmp_path)
        assert not abandoned.exists()
        assert foreign.exists()  # nobody knows whose that is
        sweep(mine.parent)
        assert mine.exists()
    assert not mine.exists()
    with pytest.raises(RuntimeError), scratch_folder() as mine:
        raise RuntimeError
    assert not mine.exists()


def test_scratch_that_is_written_to_while_it_goes_is_swept_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"{PREFIX}dying"
    folder.mkdir()
    (folder / HELD).touch()
    real = Path.rmdir

    def late(place: Path) -> None:  # a last line of a dying process comes in between
        (place / "last-words").touch()
        real(place)

    monkeypatch.setattr(Path, "rmdir", late)
    sweep(tmp_path)
    assert folder.exists()
    monkeypatch.undo()
    sweep(tmp_path)
    assert not folder.exists()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs handles of processes")
def test_processes_of_a_ray_without_a_driver_are_ended_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.runs.scratch.short_temporary_folder", lambda: tmp_path)

    def writing_to(file: Path, *command: str) -> subprocess.Popen[bytes]:
        with open(file, "wb") as log:
            return subprocess.Popen([*command, "3600"], executable="sleep", stdout=log)

    with scratch_folder() as living:
        abandoned = tmp_path / f"{PREFIX}dead"
        abandoned.mkdir()
        (abandoned / HELD).touch()
        orphan = writing_to(abandoned / "agent.log", "ray::Agent")
        others = [
            writing_to(living / "agent.log", "ray::Agent"),  # its driver lives
            writing_to(tmp_path / "ray.log", "ray::IDLE"),  # of another Ray
            writing_to(abandoned / "notes", "less"),  # no process of Ray's
        ]
        try:
            sweep(tmp_path)
            assert orphan.wait(300) == -signal.SIGKILL
            assert [process.poll() for process in others] == [None] * 3
        finally:
            for process in (orphan, *others):
                process.kill()
                process.wait()
        assert living.exists() and not abandoned.exists()


def test_loopback_is_for_the_start_of_our_own_ray_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import ray_constants

    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    for given in (None, "1"):
        monkeypatch.delenv(name, raising=False)
        if given:
            monkeypatch.setenv(name, given)
        before = ray_constants.ENABLE_RAY_CLUSTER
        with loopback_only():
            assert os.environ[name] == "0" and not ray_constants.ENABLE_RAY_CLUSTER
        assert os.environ.get(name) == given
        assert ray_constants.ENABLE_RAY_CLUSTER == before


class Anything:
    pass


def test_trials_of_our_own_ray_ask_for_no_environment_of_their_own(
    shared_ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_ray.stop()  # whose own environment holds for as long as it runs

    from ray.tune.execution.class_cache import _ActorClassCache

    def asked_for() -> dict[str, str]:
        made = _ActorClassCache().get(Anything)  # type: ignore[no-untyped-call]
        variables: dict[str, str] = made._default_options["runtime_env"].get("env_vars", {})
        return variables

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    with one_environment():
        assert asked_for() == {}
    assert asked_for()["AWS_ACCESS_KEY_ID"] == "x"  # as a cluster's machines need it
