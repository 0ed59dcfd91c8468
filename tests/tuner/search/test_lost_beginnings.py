"""Drivers that die, or are forced on, before their first trial: what the next one goes on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model.common.errors import InputError
from tests.tuner.search_runs import events, settings
from tuner import run_search
from tuner.runs.ledger import Ledger
from tuner.runs.storage.storage import Storage


class Killed(BaseException):
    pass


def killed(*given: Any) -> Any:
    raise Killed


def knowledge(run: Path, points: object) -> dict[str, Any]:
    return {"name": run.name, "from_tasks": {}, "starts": [], "results": []}


@pytest.fixture(autouse=True)
def nothing_trains(without_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.search.driver.make_engine", killed)


def test_a_warm_start_that_a_killed_driver_did_not_write_down_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.search.plan.open_run", lambda folder: folder)
    monkeypatch.setattr("tuner.search.plan.knowledge_of", knowledge)
    append = Ledger.append

    def dying(self: Ledger, event: str, **fields: Any) -> Any:
        if self.state.earlier:
            raise Killed
        return append(self, event, **fields)

    given = settings(storage_path=tmp_path, name="run", warm_start=["/a", "/b"])

    def drive(**more: Any) -> list[str]:
        with pytest.raises(Killed):
            run_search(**given, **more)
        return [e["name"] for e in events(tmp_path / "run") if e["event"] == "earlier"]

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", dying)
        assert drive() == ["a"]
    assert drive(resume=True) == ["a", "b"]
    monkeypatch.setattr("tuner.search.plan.knowledge_of", None)  # nobody asks again
    assert drive(resume=True) == ["a", "b"]


def test_a_damaged_ledger_in_storage_is_gone_on_with_by_force(tmp_path: Path) -> None:
    storage = Storage(f"file://{tmp_path}/there")
    given = settings(storage_path=storage.url, name="run", sampler="random")
    for resume in (False, True):
        with pytest.raises(Killed):
            run_search(**given, local_path=tmp_path / "a", resume=resume)
    first, second = (storage.read("run/ledger.jsonl") or b"").splitlines(keepends=True)
    storage.write("run/ledger.jsonl", first + second.replace(b"random", b"rAndom") + second)
    elsewhere = {**given, "local_path": tmp_path / "b", "resume": True}
    with pytest.raises(InputError, match="line 2: damaged .*go on from line 1 with --force"):
        run_search(**elsewhere)
    with pytest.raises(Killed):
        run_search(**elsewhere, force=True)
    here = tmp_path / "b" / "run"
    assert [event["epoch"] for event in events(here)] == [1, 3]  # 2 was forgotten
    assert storage.read("run/ledger.jsonl") == (here / "ledger.jsonl").read_bytes()
