"""Two drivers on one run in storage: one writes, and the other finds out and harms nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import types
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.common.errors import InputError
from model.training.checkpoint import MANIFEST
from tests.tuner.made_up_runs import begin, create
from tests.tuner.s3_server import S3
from tuner.runs.ledger import Ledger, read_events
from tuner.runs.state import RunState
from tuner.runs.storage import fence
from tuner.runs.storage.fence import (
    Amazon,
    Compared,
    FencedFile,
    Google,
    Superseded,
    backend_of,
    why_unfenced,
)
from tuner.runs.storage.mirror import ALIVE, Mirror, check_driver, is_over, is_signed, read_sign
from tuner.runs.storage.node_folder import NodeFolder
from tuner.runs.storage.remote import (
    RemoteCheckpointStore,
    RemoteRun,
    fetch,
    follow,
    forget_unknown,
)
from tuner.runs.storage.storage import Storage, StorageLost


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.runs.storage.storage.PAUSES", (0.01,))


def silent(line: str) -> None:
    pass


# --- one file -----------------------------------------------------------------------------------


def test_a_file_is_written_by_whoever_knows_what_is_in_it(storage: Storage) -> None:
    mine, other = FencedFile(storage, "a/x"), FencedFile(storage, "a/x")
    assert mine.read() is None and other.read() is None
    mine.write(b"1")
    mine.write(b"2")
    with pytest.raises(Superseded, match="another driver writes a/x in .*; this one stops"):
        other.write(b"other")
    assert storage.read("a/x") == b"2"
    assert other.read() == b"2"
    other.write(b"3")
    with pytest.raises(Superseded):
        mine.write(b"4")
    assert storage.read("a/x") == b"3"
    storage.remove(["a/x"])
    with pytest.raises(Superseded):
        other.write(b"5")
    assert storage.read("a/x") is None


def test_an_answer_that_got_lost_is_no_refusal(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = FencedFile(storage, "x")
    file.read()
    kind = type(file._backend)
    write, calls = kind.write, []

    def lossy(self: Any, content: bytes, tag: str | None) -> str | None:
        calls.append(content)
        found = write(self, content, tag)
        if len(calls) == 1:
            raise OSError("connection reset")  # after it was written
        return found

    monkeypatch.setattr(kind, "write", lossy)
    file.write(b"mine")
    assert len(calls) == 2 and storage.read("x") == b"mine"
    file.write(b"mine too")
    assert storage.read("x") == b"mine too"


def test_an_answer_that_is_missed_only_by_the_next_write_is_no_refusal_either(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = FencedFile(storage, "x"), FencedFile(storage, "x")
    file.read()
    kind = type(file._backend)
    write = kind.write

    def silent(self: Any, content: bytes, tag: str | None) -> str | None:
        write(self, content, tag)
        raise OSError("connection reset")  # whether it was written or refused

    with monkeypatch.context() as patch:
        patch.setattr(kind, "write", silent)
        for content in (b"1", b"1 2"):  # of which the first comes there
            with pytest.raises(StorageLost):
                file.write(content)
    assert storage.read("x") == b"1"
    file.write(b"1 2 3")
    assert storage.read("x") == b"1 2 3"
    other.read()
    with monkeypatch.context() as patch:
        patch.setattr(kind, "write", silent)
        with pytest.raises(StorageLost):
            file.write(b"1 2 3 4")
    with pytest.raises(Superseded):
        other.write(b"other")  # another driver's it never was
    other.read()
    other.write(b"other")
    with pytest.raises(Superseded):
        file.write(b"1 2 3 4 5")
    assert storage.read("x") == b"other"


def test_a_conflict_with_a_write_under_way_is_tried_again(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError

    file = FencedFile(Storage(s3.url(tmp_path.name)), "x")
    assert file.read() is None and isinstance(file._backend, Amazon)
    put, calls = file._backend.client.put_object, []

    def busy(**given: Any) -> Any:
        calls.append(given["Body"])
        if len(calls) == 1:
            raise ClientError({"Error": {"Code": "ConditionalRequestConflict"}}, "PutObject")
        return put(**given)

    monkeypatch.setattr(file._backend.client, "put_object", busy)
    file.write(b"mine")
    assert len(calls) == 2 and file.storage.read("x") == b"mine"


def test_a_folder_whose_lock_is_held_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.runs.storage.fence.PATIENCE", 0.01)
    file = FencedFile(Storage(f"file://{tmp_path}"), "x")
    file.read()
    with open(tmp_path / ".fence", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StorageLost, match="another process has held its lock"):
            file.write(b"1")
    assert not (tmp_path / "x").exists()
    file.write(b"1")
    assert file.storage.read("x") == b"1"


def test_each_kind_of_storage_has_its_conditions(s3: S3, tmp_path: Path) -> None:
    assert isinstance(backend_of(Storage(s3.url("y")), "x"), Amazon)
    assert isinstance(backend_of(Storage(f"file://{tmp_path}"), "x"), Compared)
    assert isinstance(backend_of(Storage("gs://bucket/y"), "x"), Compared)  # no client is here


@pytest.mark.parametrize("scheme", ["s3", "gs", "gcs", "file"])
def test_a_client_that_is_missing_is_told_once_with_how_to_install_it(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("boto3", "google.cloud"):
        monkeypatch.setitem(sys.modules, name, None)
    storage, said = Storage(f"{scheme}://{tmp_path}"), list[str]()
    monkeypatch.setattr("tuner.runs.storage.remote.Mirror", lambda *given: Nothing())
    with follow(storage, tmp_path, said.append):
        pass
    package = {"s3": "boto3", "file": None}.get(scheme, "google.cloud.storage")
    assert len(said) == (package is not None)
    assert all(f"without {package} two drivers" in line and "pip install" in line for line in said)


class Nothing:
    """In place of a mirror."""

    def start(self, sign: dict[str, Any], aside: bytes) -> None:
        pass

    def close(self) -> None:
        pass


def test_storage_without_conditions_is_looked_at_before(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(self: Any, content: bytes, tag: str | None) -> str | None:
        raise fence.Unable

    monkeypatch.setattr(Amazon, "write", unable)
    storage = Storage(s3.url(tmp_path.name))
    mine, other = FencedFile(storage, "x"), FencedFile(storage, "x")
    mine.read(), other.read()
    mine.write(b"1")
    with pytest.raises(Superseded):  # also by the write that finds out that there are no conditions
        other.write(b"2")
    assert storage.read("x") == b"1"
    other.read()
    other.write(b"2")
    with pytest.raises(Superseded):
        mine.write(b"3")
    assert storage.read("x") == b"2"


@pytest.mark.parametrize("ignored", [("IfMatch", "IfNoneMatch"), ("IfMatch",), ("IfNoneMatch",)])
def test_storage_that_takes_no_notice_of_conditions_is_looked_at_before_and_said_to_be_so(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: tuple[str, ...]
) -> None:
    write, said = Amazon.write, list[str]()
    storage = Storage(s3.url(tmp_path.name))
    assert why_unfenced(storage) is None

    def careless(self: Amazon, content: bytes, tag: str | None) -> str | None:
        if ("IfNoneMatch" if tag is None else "IfMatch") not in ignored:
            return write(self, content, tag)
        return str(self.client.put_object(**self.place, Body=content)["ETag"])

    monkeypatch.setattr(Amazon, "write", careless)
    with follow(storage, tmp_path, said.append) as remote:
        assert remote is not None
        other = FencedFile(remote.storage, "ledger.jsonl")
        other.read()
        other.write(b"ten lines of another driver")
        with pytest.raises(Superseded):
            remote.mirror._ledger.write(b"one line")
    assert storage.read("ledger.jsonl") == b"ten lines of another driver"
    assert list(storage.files()) == [ALIVE, "ledger.jsonl"]
    (line,) = said
    assert "takes no notice of conditions" in line and "in the same moment" in line


class Blobs:
    """As much of Google's client as is used, with its generations."""

    class PreconditionFailed(Exception):
        code = 412

    def __init__(self) -> None:
        self.there: dict[str, tuple[bytes, int]] = {}
        self.count = 0

    def bucket(self, name: str) -> Blobs:
        assert name == "bucket"
        return self

    def get_blob(self, key: str) -> Any:
        return self.blob(key) if key in self.there else None

    def blob(self, key: str) -> Any:
        def upload(content: bytes, if_generation_match: int) -> None:
            if self.there.get(key, (b"", 0))[1] != if_generation_match:
                raise Blobs.PreconditionFailed
            self.count += 1
            self.there[key] = content, self.count
            made.generation = self.count

        def download(if_generation_match: int) -> bytes:
            content, generation = self.there[key]
            assert generation == if_generation_match
            return content

        made = types.SimpleNamespace(
            generation=self.there.get(key, (b"", 0))[1],
            upload_from_string=upload,
            download_as_bytes=download,
        )
        return made


def test_googles_generations_are_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Blobs()
    client = types.ModuleType("google.cloud.storage")
    client.__dict__["Client"] = lambda: blobs
    for name in ("google", "google.cloud"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "google.cloud.storage", client)
    sys.modules["google.cloud"].__dict__["storage"] = client
    storage = Storage("gs://bucket/runs/a")
    assert isinstance(backend_of(storage, "x"), Google)
    mine, other = FencedFile(storage, "x"), FencedFile(storage, "x")
    assert mine.read() is None and other.read() is None
    mine.write(b"1")
    mine.write(b"2")
    with pytest.raises(Superseded):
        other.write(b"3")
    assert other.read() == b"2" and list(blobs.there) == ["runs/a/x"]
    other.write(b"3")
    with pytest.raises(Superseded):
        mine.write(b"4")


# --- two drivers --------------------------------------------------------------------------------


def driver(storage: Storage, folder: Path, name: str) -> tuple[Mirror, Ledger]:
    """One that took the run over from whoever had it."""
    folder.mkdir(exist_ok=True)
    if (there := storage.read("ledger.jsonl")) is not None:
        (folder / "ledger.jsonl").write_bytes(there)
    ledger = Ledger(folder / "ledger.jsonl", silent)
    begin(ledger, epoch=ledger.state.epoch + 1, driver=name)
    mirror = Mirror(replace(storage, judged=storage.read(ALIVE), driver=name), folder)
    mirror.claim({"host": "elsewhere", "pid": 1, "driver": name})
    mirror.settle()
    return mirror, ledger


def test_a_driver_that_slept_harms_nothing_of_its_successor(
    storage: Storage, tmp_path: Path
) -> None:
    first, mine = driver(storage, tmp_path / "a", "a")
    create(mine)
    first.settle()
    second, theirs = driver(storage, tmp_path / "b", "b")  # and meanwhile the first one sleeps
    for _ in range(10):
        create(theirs)
    second.settle()
    storage.write("trials/t0000/checkpoints/step-00000001/state/state.json", b"1")
    after = {path: storage.read(path) for path in storage.files()}
    create(mine)
    first.remove(["trials/t0000/checkpoints/step-00000001/state/state.json"])
    with pytest.raises(Superseded, match="another driver writes .* this one stops"):
        first.settle()
    first.abandon()
    assert "another driver" in str(first.close())
    with pytest.raises(Superseded, match="in the hands of another driver .process 1 on elsewhere"):
        check_driver(first.patient)
    assert {path: storage.read(path) for path in storage.files()} == after
    assert len(read_events(tmp_path / "b" / "ledger.jsonl", silent)) == 13
    create(theirs)
    second.settle()
    assert second.close() is None
    assert storage.read("ledger.jsonl") == (tmp_path / "b" / "ledger.jsonl").read_bytes()
    assert is_over(storage.read(ALIVE))
    with pytest.raises(Superseded):  # also when its successor is through
        check_driver(first.patient)
    check_driver(second.patient)
    mine.close(), theirs.close()


@pytest.mark.parametrize("moment", ["_send", "_sign_off"])
def test_a_driver_that_sleeps_at_its_end_harms_nothing_of_its_successor(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    first, mine = driver(storage, tmp_path / "a", "a")
    create(mine)
    first.settle()
    for number in range(3):
        (tmp_path / "a" / f"page-{number}.html").write_text("of the first driver")
    went_on, others = getattr(first, moment), list[Any]()

    def sleeps(*given: Any) -> None:
        """After the proof that the run is its own, and before what follows from that."""
        if not given or any(name.startswith("page") for name in given[0]):
            if not others:
                others.append(driver(storage, tmp_path / "b", "b"))
        went_on(*given)

    monkeypatch.setattr(first, moment, sleeps)
    assert "another driver writes driver.json" in str(first.close())
    ((second, theirs),) = others
    pages = [path for path in storage.files() if path.startswith("page")]
    assert len(pages) == (1 if moment == "_send" else 3)  # the upload under way, and no other
    create(theirs)
    second.settle()
    assert second.close() is None
    mine.close(), theirs.close()


def test_a_write_of_the_driver_before_that_comes_after_the_claim_is_written_over(
    storage: Storage, tmp_path: Path
) -> None:
    first, mine = driver(storage, tmp_path / "a", "a")
    create(mine)
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "ledger.jsonl").write_bytes(storage.read("ledger.jsonl") or b"")
    second = Mirror(replace(storage, judged=storage.read(ALIVE), driver="b"), folder)
    second.claim({"host": "elsewhere", "pid": 2, "driver": "b"})
    first._ledger.write((tmp_path / "a" / "ledger.jsonl").read_bytes())  # it was long under way
    with Ledger(folder / "ledger.jsonl", silent) as theirs:
        begin(theirs, resumed=True, epoch=2, driver="b")
        here = (folder / "ledger.jsonl").read_bytes()
        there = storage.read("ledger.jsonl") or b""
        assert not here.startswith(there)
        # Had this one died here, it could still go on: the sign of life is its own.
        assert is_signed(storage.read(ALIVE), here, there)
        again = Mirror(replace(storage, judged=storage.read(ALIVE), driver="b"), folder)
        again.claim({"host": "elsewhere", "pid": 3, "driver": "c"})
        again.settle()
    assert storage.read("ledger.jsonl") == here
    assert not is_signed(storage.read(ALIVE), here, there) and not is_signed(None, here, there)
    mine.close()


def test_a_driver_that_finds_itself_deposed_says_so_and_sends_no_more(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.runs.storage.mirror.DELAY", 0.02)
    first, mine = driver(storage, tmp_path / "a", "a")
    second, theirs = driver(storage, tmp_path / "b", "b")
    first._claimed = True
    first._thread = thread = __import__("threading").Thread(target=first._run)
    thread.start()
    thread.join(30)  # it ends by itself
    assert not thread.is_alive() and first.deposed
    assert first.trouble is not None and "this one stops" in first.trouble
    assert read_sign(storage.read(ALIVE)) == {
        **{"host": "elsewhere", "pid": 1},
        **{"driver": "b", "ended": False},
    }
    mine.close(), theirs.close()


def test_of_two_drivers_that_begin_at_once_one_is_refused(storage: Storage, tmp_path: Path) -> None:
    driver(storage, tmp_path / "a", "a")[1].close()
    judged = replace(storage, judged=storage.read(ALIVE))  # both find the first one gone
    with follow(judged, tmp_path / "a", silent):
        with pytest.raises(InputError, match="another driver has just begun"):
            with follow(judged, tmp_path / "a", silent):
                pass


HARM = {
    "half a line": lambda whole: whole + b'{"event":"crea',
    "a damaged line": lambda whole: whole.replace(b'"t0000"', b'"t0009"', 1),
}


@pytest.mark.parametrize("gone_on", [False, True])
@pytest.mark.parametrize("harm", HARM)
def test_a_ledger_that_was_mended_here_takes_the_place_of_that_in_storage(
    storage: Storage, tmp_path: Path, harm: str, gone_on: bool
) -> None:
    first, mine = driver(storage, tmp_path / "a", "a")
    create(mine), create(mine)
    first.settle()
    mine.close()
    harmed = HARM[harm](storage.read("ledger.jsonl"))
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "ledger.jsonl").write_bytes(harmed)  # as it was fetched
    storage.write("ledger.jsonl", harmed + b"more\n" * gone_on)
    judged = replace(storage, judged=storage.read(ALIVE))
    with Ledger(folder / "ledger.jsonl", silent, cut_back=True) as ledger:
        if gone_on:
            with pytest.raises(InputError, match="another driver has gone on"):
                with follow(judged, folder, silent, ledger.aside):
                    pass
            return
        with follow(judged, folder, silent, ledger.aside):
            begin(ledger, epoch=2, driver="b")
    assert storage.read("ledger.jsonl") == (folder / "ledger.jsonl").read_bytes()
    (aside,) = folder.glob("ledger.torn-*" if harm == "half a line" else "ledger.cut-*")
    assert storage.read(aside.name) == aside.read_bytes()


def test_a_trial_of_a_deposed_driver_sends_nothing(storage: Storage, tmp_path: Path) -> None:
    first, mine = driver(storage, tmp_path / "a", "a")
    node = NodeFolder(first.patient)
    try:
        out = node.fetch("t0000")
        (out / "config.yaml").parent.mkdir(parents=True, exist_ok=True)
        (out / "config.yaml").write_text("a: 1\n")
        node.send()
        driver(storage, tmp_path / "b", "b")[1].close()
        (out / "config.yaml").write_text("a: 2\n")
        with pytest.raises(StorageLost, match="in the hands of another driver"):
            node.send()
    finally:
        node.close()
        mine.close()
    assert storage.read("trials/t0000/config.yaml") == b"a: 1\n"


@pytest.mark.parametrize("moment", ["put", "remove"])
def test_a_trial_whose_driver_is_deposed_while_it_sends_sends_no_more(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    first, mine = driver(storage, tmp_path / "a", "a")
    node = NodeFolder(first.patient)
    out = node.fetch("t0000")
    names = [f"checkpoints/step-00000001/{name}" for name in ("model/x", "state/x", MANIFEST)]
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text("a")
    if moment == "remove":
        node.send()
        shutil.rmtree(out / "checkpoints")
    went_on, done = getattr(Storage, moment), list[Any]()

    def slow(self: Storage, *given: Any) -> None:
        went_on(self, *given)
        done.append(given)
        if len(done) == 1:
            driver(storage, tmp_path / "b", "b")[1].close()

    monkeypatch.setattr(Storage, moment, slow)
    with closing(node), pytest.raises(StorageLost, match="in the hands of another driver"):
        node.send()
    mine.close()
    there = storage.files("trials")
    assert len(there) == (1 if moment == "put" else 2)  # what was under way, and no more
    assert not any(path.endswith(MANIFEST) for path in there)


def test_names_in_storage_do_not_lead_out_of_the_folder(s3: S3, tmp_path: Path) -> None:
    storage = Storage(s3.url(f"{tmp_path.name}/runs"))
    storage.inside("run").write("ledger.jsonl", b"")
    s3.client.put_object(
        Bucket="bucket", Key=f"{tmp_path.name}/runs/run/../../../../evil", Body=b"x"
    )
    with pytest.raises((InputError, StorageLost)):
        fetch(storage.url, "run", tmp_path / "deep" / "here", silent)
    assert not list(tmp_path.rglob("evil"))


def test_what_nobody_put_into_storage_is_passed_over(storage: Storage, tmp_path: Path) -> None:
    for path in ("trials/readme", "trials/t0000/checkpoints/a name/x"):
        storage.write(path, b"x")
    storage.write("trials/t0000/checkpoints/step-00000001/model/x", b"x")
    store = RemoteCheckpointStore(storage, Mirror(storage, tmp_path / "here"))
    assert store.checkpoints("t0000") == ["step-00000001"]
    RemoteRun(storage, tmp_path / "here", silent).fetch_models({})


def test_links_in_a_folder_of_storage_lead_nowhere(tmp_path: Path) -> None:
    """What is below them would else be taken for unknown trials, and removed."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("mine")
    storage = Storage(f"file://{tmp_path}/there")
    storage.write("ledger.jsonl", b"")
    for name in ("trials", "driver.json", ".space.yaml.tmp"):
        (tmp_path / "there" / name).symlink_to(tmp_path / "mine")
    (tmp_path / "there" / "again").symlink_to(tmp_path / "there")
    os.mkfifo(tmp_path / "there" / "run.yaml")
    assert storage.files() == {"ledger.jsonl": 0}
    attempts: list[Callable[[], Any]] = [
        lambda: forget_unknown(storage, RunState(), silent),
        lambda: storage.read("trials/letter"),
        lambda: storage.read("driver.json"),
        lambda: storage.read("run.yaml"),
        lambda: storage.write("trials/letter", b"theirs"),
        lambda: storage.write("space.yaml", b"theirs"),
        lambda: storage.remove(["trials/letter"]),
    ]
    for attempt in attempts:
        with pytest.raises(InputError, match=r"leads out of it|is a pipe"):
            attempt()
    assert (tmp_path / "mine" / "letter").read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"[" * 99_999, b'{"pid": "x", "host": 1}'])
def test_a_sign_of_life_of_nonsense_is_nobodys(content: bytes) -> None:
    assert read_sign(content) is None
