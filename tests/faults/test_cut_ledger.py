"""A ledger that lost its end, or all of it, and a machine that is lost: the real command."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.moments import Moment
from tests.tuner.search_runs import FIXED, Started, curves_of, run_here, state_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SAME = (*FIXED, "--num-samples", "3", "--seed", "5")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search whose only machine was lost on the way, and that was then brought to its end."""
    place = tmp_path_factory.mktemp("lost")
    psutil = pytest.importorskip("psutil")
    search = Started.start(place, *SAME, hold=[Moment("evaluated", nth=2)])
    search.wait_until_held()
    lose_machine(psutil.Process(search.process.pid))
    search.go_on()
    code, said = search.finish()
    assert code == 1, said
    assert "no machine is left" in said and "--resume --name default" in said
    assert "it hung" not in said
    done = run_here(place, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def lose_machine(driver: Any) -> None:
    """All that makes it one for Ray: who hands out the work, and who does it."""
    tree = driver.children(recursive=True)
    (raylet,) = [process for process in tree if process.name() == "raylet"]
    workers = [process for process in tree if process.name().startswith("ray::")]
    for process in (raylet, *workers):
        with contextlib.suppress(Exception):  # gone already
            process.send_signal(signal.SIGKILL)


def test_a_search_whose_machine_is_lost_stops_and_goes_on_later(storage: Path) -> None:
    state = state_of(storage / "default")
    assert state.counts() == {"open": 0, "finished": 3, "stopped": 0, "failed": 0}
    assert state.starts == 2


def test_a_ledger_cut_short_goes_on_from_its_last_whole_line(storage: Path) -> None:
    folder = storage / "default"
    ledger, whole = folder / "ledger.jsonl", curves_of(folder)
    lines = ledger.read_bytes().splitlines(keepends=True)
    created = [n for n, line in enumerate(lines) if b'"event":"created"' in line]
    ledger.write_bytes(b"".join(lines[: created[-1]]) + lines[created[-1]][:30])
    done = run_here(storage, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the last line was cut short (30 bytes" in done.stderr
    assert "does not know of t0002" in done.stderr
    assert (folder / "lost" / "t0002" / "config.yaml").exists()
    assert curves_of(folder) == whole
    assert len(state_of(folder).trials) == 3


def test_an_emptied_ledger_is_never_taken_for_a_new_run(storage: Path) -> None:
    folder = storage / "default"
    before = (folder / "ledger.jsonl").read_bytes()
    for left in (b"", before[:40]):
        (folder / "ledger.jsonl").write_bytes(left)
        done = run_here(storage, "--resume")
        assert done.returncode == 2
        assert "has not one whole line, but there are 3 trials" in done.stderr
        assert (folder / "ledger.jsonl").read_bytes() == left
    (folder / "ledger.jsonl").write_bytes(before)
