"""A teacher's answers in storage: whoever goes on elsewhere has them, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.runs.folder import LEDGER, RUN, SPACE, TEACHER, TEACHER_TEXTS
from tuner.runs.ledger import Ledger
from tuner.runs.request import ExecutionOptions
from tuner.runs.storage.mirror import Mirror
from tuner.runs.storage.remote import fetch_run
from tuner.runs.storage.storage import Storage


def fill(folder: Path) -> None:
    for name in (RUN, SPACE):
        (folder / name).write_text("x: 1\n")
    with Ledger(folder / LEDGER) as ledger:
        ledger.append("end", reason="complete")


def fetched(storage: Storage, local: Path) -> Path:
    options = ExecutionOptions(storage_path=storage.url, local_path=local, resume=True)  # type: ignore[arg-type]
    fetch_run(options, "run")
    return local / "run"


def test_a_run_that_is_taught_goes_on_elsewhere_with_the_same_answers(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    fill(here)
    mirror = Mirror(storage.inside("run"), here)
    mirror.settle()
    assert not (fetched(storage, tmp_path / "before") / TEACHER).exists()
    (here / TEACHER).parent.mkdir()
    (here / TEACHER).write_text("answers")
    (here / TEACHER_TEXTS).write_text("more")
    seen: list[bool] = []
    send = Mirror._send_ledger

    def watched(self: Mirror) -> None:
        seen.append(TEACHER in storage.inside("run").files())
        send(self)

    monkeypatch.setattr(Mirror, "_send_ledger", watched)
    mirror.settle()  # while the search runs: the machine may be lost at any time
    assert seen == [True]  # before the ledger speaks of who is taught by it
    after = fetched(storage, tmp_path / "after")
    assert (after / TEACHER).read_text() == "answers"
    assert (after / TEACHER_TEXTS).read_text() == "more"
