"""A run that is exported from storage, by a machine that has no copy of it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tuner.export.trackers.read_back import tables
from tests.tuner.export.trackers.runs import lines_of, recorded, snapshot_of
from tests.tuner.s3_server import s3_server
from tuner.export.__main__ import main
from tuner.export.trackers.follow import Exporter, follow
from tuner.export.trackers.source import StoredRun, source_of
from tuner.export.trackers.tables import TableFiles
from tuner.runs.folder import LEDGER
from tuner.runs.lock import LEASE
from tuner.runs.storage.mirror import ALIVE
from tuner.runs.storage.storage import Storage


@pytest.fixture(scope="module", params=["file", "s3"])
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], str]]:
    """The URL of a run in storage."""
    if request.param == "file":
        place = tmp_path_factory.mktemp("storage")
        yield lambda name: f"file://{place}/{name}"
        return
    with s3_server() as server:
        yield lambda name: server.url(f"runs/{name}")


@pytest.fixture
def stored(tmp_path: Path, runs: Callable[[str], str]) -> tuple[Path, Storage]:
    """A run here, and the same in storage."""
    run, storage = recorded(tmp_path), Storage(runs(tmp_path.name))
    for path in (*run.glob("*"), *run.glob("soup/*"), run / "trials/t0000/config.yaml"):
        if path.is_file():
            storage.put(path, path.relative_to(run).as_posix())
    return run, storage


def test_an_export_of_a_run_in_storage_is_that_of_its_folder(
    stored: tuple[Path, Storage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, storage = stored
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    here = snapshot_of(run)
    with source_of(storage.url) as source:
        source.refresh()
        there = snapshot_of(source.folder)
        assert (there.search, there.trials, there.files) == (here.search, here.trials, here.files)
        assert not (source.folder / "trials").exists()  # nothing that an export does not read
    for place, to in ((str(run), "here"), (storage.url, "there")):
        assert main([place, "--to", "csv", "--out", str(tmp_path / to), "--quiet"]) == 0
    assert tables(tmp_path / "here", "csv") == tables(tmp_path / "there", "csv")
    left = [path for path in scratch.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert left == []


def test_a_run_in_storage_is_followed_until_its_driver_has_gone(
    stored: tuple[Path, Storage], tmp_path: Path
) -> None:
    run, storage = stored
    whole, waits = lines_of(run), list[float]()
    storage.write(LEDGER, b"".join(whole[:12]))
    storage.write(ALIVE, b'{"beat": 1}')

    def wait(seconds: float) -> None:
        """As a driver at work, which makes a report after the last event."""
        waits.append(seconds)
        if len(waits) == 2:
            storage.write(LEDGER, b"".join(whole))
            storage.write(ALIVE, b'{"beat": 2}')
        if len(waits) == 4:
            storage.write("report.html", b"another page")
            sign = {"host": "there", "pid": 1, "beat": 3, "ended": True}
            storage.write(ALIVE, json.dumps(sign).encode())

    (tmp_path / "copy").mkdir()
    source, out = StoredRun(storage, tmp_path / "copy"), TableFiles(tmp_path / "out", "csv")
    last = follow(Exporter(source, lambda: out, pytest.fail), wait)
    assert 4 <= len(waits) < 9 and last.state.ended == "complete"
    assert last.files["report.html"] == b"another page"


def test_storage_that_is_away_for_a_while_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.runs.storage.storage.PAUSES", ())
    run, said = recorded(tmp_path), list[str]()
    (tmp_path / "copy").mkdir()
    source = StoredRun(Storage(f"file://{run}"), tmp_path / "copy")
    out = TableFiles(tmp_path / "out", "csv")
    read, failures = Storage.read, [OSError("no route"), OSError("no route")]

    def unsteady(storage: Storage, path: str) -> bytes | None:
        if failures:
            raise failures.pop()
        return read(storage, path)

    monkeypatch.setattr(Storage, "read", unsteady)
    last = follow(Exporter(source, lambda: out, said.append), lambda seconds: None)
    assert said == ["not sent (no route); trying again"] and last.state.ended == "complete"


def test_a_driver_whose_sign_of_life_stands_still_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, now = Storage(f"file://{tmp_path}/there"), [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    storage.write(ALIVE, b'{"beat": 1}')
    source = StoredRun(storage, tmp_path)
    assert not source.gone()
    now[0] = LEASE - 1
    storage.write(ALIVE, b'{"beat": 2}')
    assert not source.gone()
    now[0] += LEASE + 1
    assert source.gone()


def test_a_url_that_is_no_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--to", "csv", "--out", str(tmp_path / "out")]
    assert main([f"file://{tmp_path}/none", *out]) == 2
    assert "holds no search; give the URL of a run" in capsys.readouterr().err
    run = recorded(tmp_path)
    assert main([f"file://{run}", "--to", "csv"]) == 2
    assert "a run in storage needs --out FOLDER" in capsys.readouterr().err
    shutil.rmtree(run)
    assert not (tmp_path / "out").exists()
