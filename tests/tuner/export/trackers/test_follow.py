"""An export beside a search that runs."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.tuner.export.trackers.runs import recorded, until
from tuner.export.__main__ import lock_of
from tuner.export.trackers.destination import Destination
from tuner.export.trackers.follow import Exporter, follow
from tuner.export.trackers.records import Record, Snapshot
from tuner.export.trackers.source import RunSource
from tuner.runs.folder import LOCK
from tuner.runs.lock import RunLock


class Noted(Destination):
    def __init__(self, failures: int = 0) -> None:
        self.changes: list[list[str]] = []
        self.failures = failures

    def write(self, now: Snapshot, changed: Iterable[Record]) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no way to the server")
        self.changes.append([record.tags["trial"] for record in changed])

    def place(self) -> str:
        return "nowhere"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return recorded(tmp_path)


def grow(run: Path, *counts: int) -> Callable[[float], None]:
    """What is called between two looks: the ledger has so many lines then."""
    whole = until(run, counts[0])
    left = list(counts[1:])

    def wait(seconds: float) -> None:
        if left:
            until(run, left.pop(0), whole)

    return wait


def test_only_what_changed_is_handed_over_and_the_end_is_the_ledger_s(run: Path) -> None:
    noted, said = Noted(), list[str]()
    last = follow(Exporter(RunSource(run), lambda: noted, said.append), grow(run, 4, 5, 12, 24))
    assert last.state.ended == "complete" and said == []
    assert noted.changes[:2] == [["t0000"], ["t0000"]]
    assert noted.changes[-1] == [] and noted.changes[2] == ["t0000", "t0001"]


def test_the_lock_of_an_export_is_where_nobody_else_can_prepare_one(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    lock = lock_of("csv", RunSource(run))
    assert lock == lock_of("csv", RunSource(run)) and lock.parent.parent == shared
    assert stat.S_IMODE(lock.parent.stat().st_mode) == 0o700
    lock.parent.rmdir()
    lock.parent.symlink_to(tmp_path)  # somebody was there before
    assert lock_of("csv", RunSource(run)).parent not in (lock.parent, tmp_path)


def test_it_waits_for_the_soup_and_the_report_of_a_driver_at_work(run: Path) -> None:
    lock, waits = RunLock(run / LOCK), list[float]()
    lock.acquire()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            (run / "report.html").write_text("another page")
            lock.release()

    last = follow(Exporter(RunSource(run), Noted, pytest.fail), wait)
    assert len(waits) >= 3 and last.files["report.html"] == b"another page"


def test_a_tool_that_is_away_for_a_while_gets_everything_later(run: Path) -> None:
    noted, said = Noted(failures=2), list[str]()
    follow(Exporter(RunSource(run), lambda: noted, said.append), grow(run, 5, 12, 24))
    assert said == ["not sent (no way to the server); trying again"]
    assert noted.changes[0] == ["t0000", "t0001", "t0002"]


def test_a_search_that_was_killed_is_told_once_and_waited_for(run: Path) -> None:
    said, waits, whole = list[str](), list[float](), until(run, 12)

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 4:  # resumed
            until(run, 24, whole)

    last = follow(Exporter(RunSource(run), Noted, said.append), wait)
    assert said == ["the search stopped without an end; waiting for its --resume"]
    assert last.state.ended == "complete"


def test_a_tool_that_is_away_in_the_end_is_an_error(run: Path) -> None:
    noted = Noted(failures=99)
    with pytest.raises(RuntimeError, match="no way"):
        follow(Exporter(RunSource(run), lambda: noted, lambda line: None), lambda seconds: None)
