"""A search on storage that is no folder: what goes there, what comes back, who may go on."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from model.common.errors import InputError
from model.tasks.task_set import load_task_set
from tests.tuner.made_up_runs import begin
from tests.tuner.s3_server import S3, s3_server
from tests.tuner.search_runs import curves_of, events, settings
from tuner import run_search
from tuner.cluster.__main__ import main
from tuner.ray_backend.trainable import SearchTrial
from tuner.runs.folder import write_run
from tuner.runs.ledger import Ledger, parse
from tuner.runs.state import RunState
from tuner.runs.storage.mirror import ALIVE, Mirror, is_over
from tuner.runs.storage.node_folder import NodeFolder
from tuner.runs.storage.remote import fetch_run, rival_of
from tuner.runs.storage.storage import Storage, StorageLost
from tuner.scoring.dev_predictions import DevPredictions
from tuner.search.finish import SearchResult

FIXED = {"sampler": "random", "early_stopping": False, "num_samples": 3, "keep": 1}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.runs.storage.storage.PAUSES", (0.01,))


class SeesDevices(SearchTrial):
    """Says which devices its process may use, as CUDA would see it."""

    def where(self) -> tuple[str, int, dict[str, Any]]:
        host, pid, more = super().where()
        return host, pid, {**more, "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}


@dataclass
class Searched:
    result: SearchResult
    url: str
    s3: S3
    local: Path
    warned: str = ""

    @property
    def folder(self) -> Path:
        return self.result.folder

    def stored(self) -> set[str]:
        return {key.removeprefix("exp/first/") for key in self.s3.keys("exp/first/")}


@pytest.fixture(scope="module")
def searched(
    shared_ray: Any, s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Searched]:
    """Two cores and one GPU that is none, with two trials on it."""
    import ray

    shared_ray.stop()
    local = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tuner.ray_backend.trainable.SearchTrial", SeesDevices)
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_worker_niceness", "0")
        ray.init(
            address="local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False
        )
        try:
            given = settings(storage_path=s3.url("exp"), local_path=local, name="first")
            two = {"max_concurrent_trials": 2, "gpus_per_trial": 0.5}
            with redirect_stderr(StringIO()) as warned:
                result = run_search(**{**given, **FIXED, **two})
        finally:
            ray.shutdown()
        yield Searched(result, s3.url("exp"), s3, local, warned.getvalue())


@pytest.mark.slow
def test_two_trials_share_a_gpu_and_see_it(searched: Searched) -> None:
    started = [event for event in events(searched.folder) if event["event"] == "started"]
    assert all(event["gpus"] == ["0"] and event["visible"] == "0" for event in started)
    first, second = started[:2]
    assert first["pid"] != second["pid"]
    ends = [event["time"] for event in events(searched.folder) if event["event"] == "finished"]
    assert second["time"] < min(ends)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU is a real one here")
def test_a_gpu_that_torch_does_not_see_is_named_once_for_its_machine(searched: Searched) -> None:
    assert searched.warned.count("so it trains on the CPU") == 1


@pytest.mark.slow
def test_the_run_is_in_storage(searched: Searched) -> None:
    stored = searched.stored()
    assert {"run.yaml", "space.yaml", "ledger.jsonl", "study.journal"} <= stored
    assert is_over(Storage(searched.url).inside("first").read(ALIVE))
    for name in ("run.yaml", "space.yaml", "ledger.jsonl"):
        mirrored = Storage(searched.url).inside("first").read(name)
        assert mirrored == (searched.folder / name).read_bytes()
    for trial in searched.result.state.trials:
        for name in ("config.yaml", "metrics.jsonl", "summary.json"):
            assert f"trials/{trial}/{name}" in stored


@pytest.mark.slow
def test_storage_keeps_the_checkpoints_that_are_kept_and_no_states(searched: Searched) -> None:
    stored = searched.stored()
    there = {tuple(n.split("/")[1:4:2]) for n in stored if n.split("/")[2:3] == ["checkpoints"]}
    home = (searched.folder / "trials").glob("*/checkpoints/*")
    assert there == {(place.parent.parent.name, place.name) for place in home}
    assert there
    assert not any("/state/" in name for name in stored)


@pytest.mark.slow
def test_what_is_read_later_is_at_home(searched: Searched) -> None:
    assert searched.result.complete
    ranked = searched.result.state.ranked()
    last = [(trial.id, trial.evaluations[-1]) for trial in ranked]
    assert len(DevPredictions.load(searched.folder, last, load_task_set("sample"))) == 3
    best = ranked[0]
    model = searched.folder / "trials" / best.id / "checkpoints" / best.best()["checkpoint"]
    assert (model / "model" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_folder_gives_the_same(searched: Searched, without_ray: None, tmp_path: Path) -> None:
    again = run_search(**{**settings(storage_path=tmp_path, name="first"), **FIXED})
    assert curves_of(again.folder) == curves_of(searched.folder)


@pytest.mark.slow
def test_another_machine_goes_on(searched: Searched, shared_ray: Any, tmp_path: Path) -> None:
    """The head is gone with its folder; what was mirrored is all there is."""
    shared_ray.start()
    other = Searched(searched.result, searched.s3.url("exp2"), searched.s3, tmp_path)
    for key in searched.s3.keys("exp/first/"):
        source = {"Bucket": "bucket", "Key": key}
        target = key.replace("exp/", "exp2/", 1)
        searched.s3.client.copy_object(Bucket="bucket", Key=target, CopySource=source)
    result = run_search(
        storage_path=other.url, local_path=tmp_path, name="first", resume=True, num_samples=4,
        quiet=True, max_concurrent_trials=1, cpus_per_trial=1,
    )  # fmt: skip
    assert result.complete
    assert len(result.state.trials) == 4
    before = curves_of(searched.folder)
    assert {trial: curves_of(result.folder)[trial] for trial in before} == before
    started = [e["trial"] for e in events(result.folder) if e["event"] == "started"]
    assert len(started) == 4  # nothing was trained again


@pytest.mark.slow
def test_a_run_that_exists_is_never_touched(searched: Searched, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a search already; go on with the same command"):
        run_search(**settings(storage_path=searched.url, local_path=tmp_path, name="first"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_can_be_fetched(
    searched: Searched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fetch", searched.url, "first", "--to", str(tmp_path)]) == 0
    kept = {path.relative_to(searched.folder) for path in searched.folder.glob("trials/*/*/*/*/*")}
    assert kept and all((tmp_path / "first" / path).exists() for path in kept)
    assert main(["fetch", searched.url, "first", "--to", str(tmp_path)]) == 2
    assert main(["fetch", searched.url, "nobody", "--to", str(tmp_path)]) == 2
    assert "holds no search" in capsys.readouterr().err


# --- without Ray --------------------------------------------------------------------------------


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(f"file://{tmp_path}/there")


def test_storage_that_does_not_answer_is_refused_before_anything_starts(tmp_path: Path) -> None:
    url = "s3://key:hush@bucket/x?endpoint_override=http://127.0.0.1:9&scheme=http"
    with pytest.raises(InputError) as error:
        run_search(**settings(storage_path=url, local_path=tmp_path / "here"))
    assert len(error.value.faults) == 1
    assert "hush" not in str(error.value)
    assert not (tmp_path / "here").exists()


def ledger_in(folder: Path, *words: str) -> bytes:
    folder.mkdir(parents=True, exist_ok=True)
    with Ledger(folder / "ledger.jsonl") as ledger:
        for word in words:
            ledger.append("end", reason=word)
    return (folder / "ledger.jsonl").read_bytes()


def how_of(storage: Storage, local: Path) -> Any:
    from tuner.runs.request import ExecutionOptions

    return ExecutionOptions(storage_path=storage.url, local_path=local, resume=True)  # type: ignore[arg-type]


def test_the_longer_ledger_is_gone_on_with(storage: Storage, tmp_path: Path) -> None:
    here = tmp_path / "here"
    short = ledger_in(here / "run", "one")
    shutil.copytree(here, tmp_path / "other")
    long = ledger_in(tmp_path / "other" / "run", "two")
    for name in ("run.yaml", "space.yaml"):
        storage.write(f"run/{name}", b"x: 1\n")
    storage.write("run/ledger.jsonl", short)
    fetch_run(how_of(storage, tmp_path / "other"), "run")
    assert (tmp_path / "other" / "run" / "ledger.jsonl").read_bytes() == long
    storage.write("run/ledger.jsonl", long)
    fetch_run(how_of(storage, here), "run")
    assert (here / "run" / "ledger.jsonl").read_bytes() == long
    assert (here / "run" / "run.yaml").exists()


def test_ledgers_that_differ_are_refused(storage: Storage, tmp_path: Path) -> None:
    ledger_in(tmp_path / "here" / "run", "one")
    storage.write("run/ledger.jsonl", ledger_in(tmp_path / "other" / "run", "two"))
    with pytest.raises(InputError, match="tell different stories; move that folder away"):
        fetch_run(how_of(storage, tmp_path / "here"), "run")


def test_a_run_that_was_never_there_is_not_begun_anew(storage: Storage, tmp_path: Path) -> None:
    ledger_in(tmp_path / "here" / "run", "one")
    (tmp_path / "here" / "run" / "trials" / "t0000" / "checkpoints").mkdir(parents=True)
    with pytest.raises(InputError, match="storage has nothing of this run"):
        fetch_run(how_of(storage, tmp_path / "here"), "run")


def test_a_driver_that_lives_is_a_rival_and_a_dead_one_is_none(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rival_of(storage) is None
    sign = {"host": "elsewhere", "pid": 1}
    storage.write(ALIVE, json.dumps({**sign, "beat": 1}).encode())
    assert rival_of(storage, patience=0.3) is None
    monkeypatch.setattr("tuner.runs.storage.mirror.BEAT", 0.05)
    monkeypatch.setattr("tuner.runs.storage.mirror.DELAY", 0.05)
    mirror = Mirror(replace(storage, judged=storage.read(ALIVE)), tmp_path)
    mirror.start(sign)
    found = rival_of(storage, patience=30)
    assert found is not None and found["host"] == "elsewhere"
    assert mirror.close() is None
    assert rival_of(storage) is None


def test_nothing_goes_before_the_ledger_that_says_so(storage: Storage, tmp_path: Path) -> None:
    mirror = Mirror(storage, tmp_path)
    storage.write("trials/t0001/checkpoints/step-00000001/state/state.json", b"1")
    seen = []
    remove = Storage.remove
    said = ledger_in(tmp_path, "one")

    def watched(self: Storage, paths: list[str]) -> None:
        seen.append(self.read("ledger.jsonl"))
        remove(self, paths)

    mirror.remove(["trials/t0001/checkpoints/step-00000001/state/state.json"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "remove", watched)
        mirror.settle()
    assert seen == [said]
    assert storage.files("trials") == {}


def test_the_request_in_storage_knows_of_no_driver_that_the_ledger_does_not(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever a driver is lost, another machine can go on with what is there."""
    epochs, write, put = [], Storage.write, Storage.put

    def looked_at() -> None:
        if (ledger := storage.read("ledger.jsonl")) is not None:
            begun = yaml.safe_load(storage.read("run.yaml") or b"")["epoch"]
            known = RunState.from_events(parse(ledger).events).epoch
            assert begun <= known
            epochs.append((begun, known))

    def written(self: Storage, path: str, content: bytes) -> None:
        write(self, path, content)
        looked_at()

    def copied(self: Storage, local: Path, path: str) -> None:
        put(self, local, path)
        looked_at()

    monkeypatch.setattr(Storage, "write", written)
    monkeypatch.setattr(Storage, "put", copied)
    with Ledger(tmp_path / "ledger.jsonl") as ledger:

        def drive() -> None:
            begin(ledger, epoch=ledger.state.epoch + 1)
            write_run(tmp_path, {"space": "default"}, {}, ledger.state.epoch)

        mirror, send = Mirror(storage, tmp_path), Mirror._send_ledger
        drive()
        mirror.settle()
        drive()
        mirror.settle()
        drive()
        with monkeypatch.context() as patch:
            patch.setattr(Mirror, "_send_ledger", lambda self: (send(self), drive()))
            mirror.settle()
        assert epochs[-1] == (3, 3)
        mirror.settle()
    assert epochs[0] == (1, 1) and epochs[-1] == (4, 4)


def test_only_whole_lines_of_a_ledger_come_to_storage(storage: Storage, tmp_path: Path) -> None:
    whole = ledger_in(tmp_path, "one")
    more = ledger_in(tmp_path, "two")
    (tmp_path / "ledger.jsonl").write_bytes(more[:-9])  # as a driver writes it
    mirror = Mirror(storage, tmp_path)
    mirror.settle()
    assert storage.read("ledger.jsonl") == whole
    (tmp_path / "ledger.jsonl").write_bytes(more)
    mirror.settle()
    assert storage.read("ledger.jsonl") == more


def test_a_mirror_says_so_whatever_goes_wrong_and_goes_on_later(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.runs.storage.mirror.DELAY", 0.02)
    said, ledger = ledger_in(tmp_path, "one"), tmp_path / "ledger.jsonl"
    ledger.rename(tmp_path / "another")
    ledger.symlink_to(tmp_path / "another")
    storage.write("trials/t0001/x", b"1")
    mirror = Mirror(storage, tmp_path)
    mirror._claimed = True
    mirror.remove(["trials/t0001/x"])
    mirror._thread = threading.Thread(target=mirror._run, daemon=True)
    mirror._thread.start()
    while mirror.trouble is None and mirror._thread.is_alive():
        mirror._thread.join(0.01)
    assert mirror._thread.is_alive()
    assert mirror.trouble is not None and "is a symbolic link" in mirror.trouble
    assert "is a symbolic link" in str(mirror.close())
    assert "trials/t0001/x" in storage.files()
    (tmp_path / "another").replace(ledger)
    assert mirror.close() is None
    assert storage.read("ledger.jsonl") == said and storage.files("trials") == {}


def test_a_mirror_that_fails_says_so_and_goes_on_later(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_in(tmp_path, "one")
    mirror = Mirror(storage, tmp_path)
    mirror.remove(["gone"])
    with monkeypatch.context() as patch:

        def lost(self: Storage, path: str, content: bytes) -> None:
            raise StorageLost("away")

        patch.setattr(Storage, "write", lost)
        with pytest.raises(StorageLost):
            mirror.settle()
        assert "away" in str(mirror.close())
    assert mirror.close() is None
    assert "ledger.jsonl" in storage.files()


# --- a trial on its node ------------------------------------------------------------------------


def fill(out: Path, step: int) -> Path:
    place = out / "checkpoints" / f"step-{step:08d}"
    for name in ("model/model.safetensors", "state/state.json", "manifest.json"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f"{name} {step}")
    (out / "predictions").mkdir(exist_ok=True)
    (out / "predictions" / f"{step}.parquet").write_text("p")
    for name in ("config.yaml", "metrics.jsonl", ".lock"):
        (out / name).write_text(f"{name} {step}")
    return place


def test_storage_follows_a_trial_and_forgets_what_it_deletes(
    storage: Storage, tmp_path: Path
) -> None:
    node = NodeFolder(storage)
    try:
        out = node.fetch("t0001")
        first = fill(out, 1)
        node.send()
        there = storage.files("trials/t0001")
        assert len(there) == 6 and not any(".lock" in name for name in there)
        fill(out, 2)
        shutil.rmtree(first)
        node.send()
        names = {name.split("/")[3] for name in storage.files("trials/t0001/checkpoints")}
        assert names == {"step-00000002"}
        assert storage.read("trials/t0001/metrics.jsonl") == b"metrics.jsonl 2"
    finally:
        node.close()
    assert not out.exists()


def test_a_checkpoint_is_signed_last_and_unsigned_ones_are_not_gone_on_from(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, order = NodeFolder(storage), []
    put = Storage.put

    def noted(self: Storage, local: Path, path: str) -> None:
        order.append(path.split("/")[-1])
        if len(order) == 5:
            raise StorageLost("away")
        put(self, local, path)

    try:
        fill(node.fetch("t0001"), 1)
        with monkeypatch.context() as patch:
            patch.setattr(Storage, "put", noted)
            with pytest.raises(StorageLost):
                node.send()
        assert order[0] == "config.yaml" and order[-1] == "manifest.json"
        out = node.fetch("t0001")  # as another attempt would
        assert sorted(path.name for path in out.rglob("*")) == ["config.yaml"]
        fill(out, 1)
        node.send()
        again = node.fetch("t0001")
        assert (again / "checkpoints/step-00000001/state/state.json").exists()
        assert not (again / "predictions").exists()
    finally:
        node.close()
