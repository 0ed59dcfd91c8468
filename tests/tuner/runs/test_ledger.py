from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.common.errors import InputError
from tests.tuner.made_up_runs import begin, close, create, evaluate, live_through
from tuner.runs import ledger as module
from tuner.runs.ledger import Ledger, RunState, check_ledger, decode, encode, read_events
from tuner.runs.lock import Deposed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def ledger(path: Path) -> Ledger:
    ledger = Ledger(path)
    begin(ledger)
    return ledger


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[dict[str, Any]]]:
    """A ledger of some length, as bytes and as events."""
    path = tmp_path_factory.mktemp("life") / "ledger.jsonl"
    live_through(path, moves=60, seed=1)
    return path.read_bytes(), read_events(path)


def silent(message: str) -> None:
    pass


# --- writing ------------------------------------------------------------------------------------


def test_what_is_appended_is_read_back(path: Path) -> None:
    with Ledger(path) as ledger:
        begin(ledger, name="a\nb \ud800 é", extra={"deep": [1, None, True, {"x": 0.1}]})
        trial = create(ledger, settings={"batch.sizes": (16, 16, 10)})
        state = ledger.state
    run, created = read_events(path)
    assert run["name"] == "a\nb \ud800 é"
    assert run["extra"] == {"deep": [1, None, True, {"x": 0.1}]}
    assert created["trial"] == trial and created["settings"] == {"batch.sizes": [16, 16, 10]}
    assert state == RunState.from_events([run, created])
    assert len(path.read_bytes().splitlines()) == 2


def test_a_line_is_plain_json_with_its_checksum_last(path: Path, ledger: Ledger) -> None:
    data = json.loads(path.read_text())
    assert list(data)[:2] == ["event", "time"] and list(data)[-1] == "crc"


def test_every_line_is_on_disk_before_append_returns(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def sync(file: int) -> None:
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", sync)
    create(ledger)
    assert synced == [path.stat().st_size]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan")])
def test_a_number_that_is_not_finite_is_refused_by_name(
    path: Path, ledger: Ledger, value: float
) -> None:
    create(ledger)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"'tasks\.mood\.loss\[1\]' is -?(nan|inf)"):
        tasks = {"mood": {"loss": [0.0, value]}}
        ledger.append("evaluated", trial="t0000", examples=1, score=0.5, tasks=tasks)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("event", "fields", "message"),
    [
        ("finish", {}, "is not an event; did you mean 'finished'"),
        ("finished", {}, "'trial' is missing"),
        ("finished", {"trial": "t0000", "crc": 1}, "'crc' is not for the caller"),
        ("finished", {"trial": "t0009"}, "trial 't0009' was never created"),
        ("finished", {"trial": "t0000", "x": np.float32(1)}, "'x' is a float32; only plain"),
        ("finished", {"trial": "t0000", "x": {1: 2}}, "x: 1 must be text"),
        ("finished", {"trial": "t0000", "x": Path("a")}, "'x' is a .*Path; only plain"),
        ("evaluated", {"trial": "t0000", "examples": 1, "score": None}, "'score' must be a number"),
        ("evaluated", {"trial": "t0000", "examples": True, "score": 1}, "'examples' must be"),
    ],
)
def test_an_event_that_is_not_one_is_refused(
    path: Path, ledger: Ledger, event: str, fields: dict[str, Any], message: str
) -> None:
    create(ledger)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        ledger.append(event, **fields)
    assert path.read_bytes() == before


def test_a_trial_is_not_created_twice(ledger: Ledger) -> None:
    create(ledger)
    with pytest.raises(ValueError, match="trial 't0000' exists already"):
        create(ledger, trial="t0000")


@pytest.mark.parametrize("again", ["finished", "stopped", "failed"])
def test_a_closed_trial_is_never_closed_again(path: Path, ledger: Ledger, again: str) -> None:
    trial = create(ledger)
    close(ledger, trial, "stopped")
    before = path.read_bytes()
    close(ledger, trial, again)
    evaluate(ledger, trial, 100, 0.5)
    assert path.read_bytes() == before
    assert ledger.state.trials[trial].status == "stopped"
    assert ledger.append("removed", trial=trial, checkpoints=["c1"]) is not None


def test_threads_do_not_mix_their_lines(path: Path, ledger: Ledger) -> None:
    create(ledger)

    def write(start: int) -> None:
        for examples in range(start, start + 20):
            evaluate(ledger, "t0000", examples, 0.5)

    threads = [threading.Thread(target=write, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_events(path, _no_warning)) == 82
    assert len(ledger.state.trials["t0000"].evaluations) == 80


def _no_warning(message: str) -> None:
    raise AssertionError(message)


# --- a disk that is full ------------------------------------------------------------------------


def test_a_line_that_does_not_fit_is_taken_back(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write = path.read_bytes(), os.write
    room = iter([7, 5])

    def full(file: int, data: memoryview) -> int:
        for space in room:
            return write(file, data[:space])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left on device: .*ledger.jsonl"):
            create(ledger)
    assert path.read_bytes() == before
    assert not ledger.state.trials
    create(ledger)
    assert [event["event"] for event in read_events(path, _no_warning)] == ["run", "created"]


def test_a_line_that_cannot_be_taken_back_is_taken_back_before_the_next(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        patch.setattr(os, "ftruncate", broken)
        with pytest.raises(OSError, match="Input/output error"):
            create(ledger)
    create(ledger)
    assert [event["event"] for event in read_events(path, _no_warning)] == ["run", "created"]


def test_a_really_full_disk_leaves_the_ledger_whole(path: Path) -> None:
    """A limit on the file's size is the nearest thing to a full disk that needs no root."""
    script = """
import resource, signal, sys
from pathlib import Path
from tests.tuner.made_up_runs import begin, create
from tuner.runs.ledger import Ledger
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
ledger = Ledger(Path(sys.argv[1]))
begin(ledger)
try:
    while True:
        create(ledger)
except OSError as error:
    print(len(ledger.state.trials), error.filename)
"""
    found = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    trials, name = found.stdout.split()
    assert name == str(path) and int(trials) > 2
    assert len(read_events(path, _no_warning)) == int(trials) + 1


# --- what a crash leaves ------------------------------------------------------------------------


@settings(max_examples=150)
@given(data=st.data())
def test_any_prefix_of_the_bytes_is_an_earlier_state(
    life: tuple[bytes, list[dict[str, Any]]],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    content, events = life
    cut = data.draw(st.integers(0, len(content)))
    path = tmp_path_factory.mktemp("cut") / "ledger.jsonl"
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    torn = len(content[:cut].rpartition(b"\n")[2])

    warnings: list[str] = []
    assert read_events(path, warnings.append) == events[:whole]
    assert len(warnings) == bool(torn)

    with Ledger(path, warnings.append) as ledger:
        assert ledger.state == RunState.from_events(events[:whole], silent)
        begin(ledger, resumed=True)
    assert len(warnings) == 2 * bool(torn)
    assert len(read_events(path, _no_warning)) == whole + 1


def test_torn_bytes_are_counted_and_kept_beside(path: Path, ledger: Ledger) -> None:
    ledger.close()
    whole = path.read_bytes()
    for number, torn in enumerate([b'{"event":"crea', b"\0" * 40, b'{"event":"created"}\n']):
        path.write_bytes(whole + torn)
        warnings: list[str] = []
        Ledger(path, warnings.append).close()
        assert path.read_bytes() == whole
        assert path.with_name(f"ledger.torn-{number}").read_bytes() == torn
        zeros = (
            "its end is zeros, as a crash of the machine leaves; lines that stood there are lost"
        )
        why = zeros if b"\0" in torn else "the last line was cut short"
        assert warnings == [
            f"{path}: {why} ({len(torn)} bytes, kept in "
            f"ledger.torn-{number}); going on from the line before"
        ]


@settings(max_examples=200)
@given(data=st.data())
def test_a_flipped_bit_is_never_taken_for_truth(
    life: tuple[bytes, list[dict[str, Any]]],
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
) -> None:
    content, events = life
    place = data.draw(st.integers(0, len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    line = content[:place].count(b"\n") + 1
    path = tmp_path_factory.mktemp("flip") / "ledger.jsonl"
    path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])

    warnings: list[str] = []
    found = read_events(path, warnings.append)
    assert warnings and all(event in events for event in found)
    assert len(events) - 2 <= len(found) < len(events)  # a newline that is gone harms two
    if line < len(events) - 1:
        with pytest.raises(InputError, match=f"line {line}: damaged .*put back a copy"):
            Ledger(path, silent)
    assert not list(path.parent.glob("*.torn-*"))


def test_only_one_line_can_be_torn(path: Path, ledger: Ledger) -> None:
    """A bad line before the torn one was whole once, so it is damage and not a crash."""
    ledger.close()
    content = path.read_bytes() + b'{"event":"created"}\n{"event":"eval'
    path.write_bytes(content)
    with pytest.raises(InputError, match="line 2: damaged"):
        Ledger(path)
    assert path.read_bytes() == content


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


MOVES = {
    "removed": lambda lines: lines[:2] + lines[3:],
    "moved": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "turned round": lambda lines: lines[::-1],
    "repeated": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "without its number": lambda lines: [*lines[:2], encode(decode(lines[2][:-1])), *lines[3:]],
    "another ledger's": lambda lines: [
        *lines[:2],
        encode({"event": "end", "time": 1.0, "reason": "so"}, 3, "0123abcd"),
        *lines[3:],
    ],
}


@pytest.mark.parametrize("move", MOVES)
def test_lines_that_do_not_follow_are_named_and_refused_or_cut_back(
    path: Path, ledger: Ledger, move: str
) -> None:
    create(ledger)
    second = create(ledger)
    close(ledger, second, "finished")
    close(ledger, "t0000", "finished")
    ledger.close()
    path.write_bytes(b"".join(MOVES[move](lines_of(path))))
    content = path.read_bytes()
    with pytest.raises(InputError, match=r"line \d: does not follow the line before it") as told:
        Ledger(path, _no_warning)
    assert "put back a copy" in str(told.value)
    assert path.read_bytes() == content
    warnings: list[str] = []
    kept = read_events(path, warnings.append)  # an earlier state, and never another one
    assert len(warnings) == 1 and "left out, as all lines after it" in warnings[0]
    assert len(kept) == (0 if move == "turned round" else 3 if move == "repeated" else 2)
    if not kept:
        return
    assert "go on from line" in str(told.value) and "lines are lost" in str(told.value)
    with Ledger(path, warnings.append, cut_back=True) as ledger:
        assert ledger.state == RunState.from_events(kept)
        create(ledger)
    assert "lines are lost: " in warnings[-1] and "ledger.cut-0" in warnings[-1]
    assert (
        path.with_name("ledger.cut-0").read_bytes()
        == content[len(b"".join(content.splitlines(keepends=True)[: len(kept)])) :]
    )
    assert len(read_events(path, _no_warning)) == len(kept) + 1


@pytest.mark.parametrize("start", [b"", b"\n"])
def test_a_ledger_whose_first_line_is_damaged_is_never_cut_back_to_nothing(
    path: Path, ledger: Ledger, start: bytes
) -> None:
    create(ledger)
    create(ledger)
    ledger.close()
    content = start + b"x" + path.read_bytes()[1:]
    path.write_bytes(content)
    for attempt in (
        lambda: check_ledger(path, cut_back=True),
        lambda: Ledger(path, _no_warning, cut_back=True),
    ):
        with pytest.raises(InputError, match="damaged .*; put back a copy of the file") as told:
            attempt()
        assert "--force" not in str(told.value)
    assert path.read_bytes() == content
    assert not list(path.parent.glob("ledger.cut-*"))


def test_a_ledger_without_numbers_is_read_and_gone_on_with(path: Path) -> None:
    """As versions before 0.2 wrote it."""
    with Ledger(path) as ledger:
        begin(ledger)
        create(ledger)
    old = b"".join(encode(event) for event in read_events(path))
    path.write_bytes(old)
    with Ledger(path, _no_warning) as ledger:
        close(ledger, "t0000", "finished")
    assert path.read_bytes().startswith(old)
    assert json.loads(lines_of(path)[2])["line"] == 3
    assert len(read_events(path, _no_warning)) == 3
    lines = lines_of(path)
    path.write_bytes(b"".join([*lines[:1], lines[2]]))  # the last of the old ones is gone
    with pytest.raises(InputError, match="line 2: does not follow"):
        Ledger(path, silent)


# --- two writers --------------------------------------------------------------------------------


def test_a_second_writer_is_refused(path: Path, ledger: Ledger) -> None:
    with pytest.raises(InputError, match="another process is writing to it"):
        Ledger(path, silent)
    create(ledger)
    assert len(read_events(path, _no_warning)) == 2


def test_what_another_driver_wrote_is_never_cut_off(
    path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no locks, as two hosts on some shared folders."""
    monkeypatch.setattr("tuner.runs.ledger.lock_file", lambda file: True)
    with Ledger(path, silent) as other:
        for _ in range(5):
            create(other)
    after = path.read_bytes()
    for _ in range(2):
        with pytest.raises(Deposed, match="another process has written to it; this driver stops"):
            create(ledger)
    assert path.read_bytes() == after
    assert not ledger.state.trials


def test_a_ledger_that_was_replaced_is_not_written(path: Path, ledger: Ledger) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    with pytest.raises(Deposed, match="another file is in its place"):
        create(ledger)
    assert len(read_events(path, _no_warning)) == 1


def test_a_driver_without_its_lock_writes_nothing(path: Path) -> None:
    def gone() -> None:
        raise Deposed("taken over")

    with Ledger(path, mine=gone) as ledger, pytest.raises(Deposed, match="taken over"):
        begin(ledger)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("content", [b"\0" * 5000, b"something else\n", b"x", b"{}\n"])
def test_a_file_that_is_no_ledger_is_not_taken_for_an_empty_one(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match="line 1: damaged"):
        Ledger(path)
    assert path.read_bytes() == content


def test_a_missing_ledger_is_an_input_error(path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_events(path)
    with pytest.raises(InputError, match="is a folder, where a regular file is expected"):
        read_events(path.parent)


def test_lines_that_say_nothing_are_not_events() -> None:
    assert decode(encode({"event": "end", "time": 1.0, "reason": "time"})[:-1]) is not None
    assert decode(encode({"event": "end"})[:-1]) is None
    assert decode(encode({"event": "end", "time": 1.0})[:-1]) is None
    assert decode(b'[1],"crc":"00000000"}') is None


def test_a_killed_writer_leaves_every_line_that_it_was_told_of(path: Path) -> None:
    script = """
import sys
from pathlib import Path
from tests.tuner.made_up_runs import begin, create
from tuner.runs.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
begin(ledger)
while True:
    print(create(ledger), flush=True)
"""
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline().strip() for _ in range(25)]
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read().split()
    with Ledger(path, silent) as ledger:
        assert list(ledger.state.trials)[: len(told)] == told
        assert len(ledger.state.trials) <= len(told) + 1


def test_a_reader_does_not_disturb_the_writer(path: Path, ledger: Ledger) -> None:
    for count in range(1, 20):
        create(ledger)
        with open(path, "rb") as reader:
            reader.read(10)
            assert len(read_events(path, _no_warning)) == count + 1


# --- the state ----------------------------------------------------------------------------------


def test_the_state_knows_the_run(ledger: Ledger) -> None:
    state = ledger.state
    assert (state.name, state.num_samples, state.sampler, state.seed) == ("made-up", 12, "tpe", 3)
    ledger.append("end", reason="time")
    assert state.ended == "time"
    begin(ledger, resumed=True, num_samples=20)
    assert ledger.state.ended is None
    assert (state.starts, state.num_samples) == (2, 20)


def test_ids_and_numbers_follow_on_and_repeats_take_no_number(ledger: Ledger) -> None:
    for _ in range(3):
        create(ledger)
    repeat = create(ledger, number=None, origin="confirm", of="t0001")
    state = ledger.state
    assert repeat == "t0003"
    assert (state.next_id, state.next_number, state.missing) == ("t0004", 3, 9)
    assert [trial.id for trial in state.repeats] == ["t0003"]
    assert state.trials["t0003"].of == "t0001"
    create(ledger, trial="t12345")
    assert state.next_id == "t12346"


def test_the_best_evaluation_is_the_earlier_of_equals(ledger: Ledger) -> None:
    trial = create(ledger)
    for examples, score, mood in [(100, 0.5, 0.9), (200, 0.7, 0.2), (300, 0.7, 0.9)]:
        evaluate(ledger, trial, examples, score, mood=mood)
    found = ledger.state.trials[trial]
    best, mood_best = found.best(), found.best("mood")
    assert best is not None and best["examples"] == 200
    assert mood_best is not None and mood_best["examples"] == 100
    assert found.examples == 300
    with pytest.raises(KeyError, match="no objective 'nought'"):
        found.best("nought")


def test_a_part_done_again_counts_once(ledger: Ledger) -> None:
    trial = create(ledger)
    evaluate(ledger, trial, 100, 0.5)
    evaluate(ledger, trial, 200, 0.6)
    ledger.append("removed", trial=trial, checkpoints=["c000100", "c000200"])
    evaluate(ledger, trial, 100, 0.5)
    found = ledger.state.trials[trial]
    assert [entry["examples"] for entry in found.evaluations] == [100, 200]
    assert found.removed == {"c000200"}  # the other is there again
    assert len(ledger.state.reports) == 3


def test_attempts_and_pauses_are_known(ledger: Ledger) -> None:
    trial = create(ledger)
    ledger.append("started", trial=trial, attempt=0)
    ledger.append("paused", trial=trial, examples=10)
    assert ledger.state.trials[trial].paused
    ledger.append("started", trial=trial, attempt=1)
    found = ledger.state.trials[trial]
    assert (found.attempts, found.paused, found.status) == (2, False, "open")


def test_failures_in_a_row_leave_infrastructure_aside(ledger: Ledger) -> None:
    for how, kind in [
        ("failed", "code"),
        ("finished", ""),
        ("failed", "memory"),
        ("failed", "infrastructure"),
        ("failed", "code"),
    ]:
        close(ledger, create(ledger), how, kind)
    assert ledger.state.failures_in_a_row == ["t0002", "t0004"]
    assert ledger.state.counts() == {"open": 0, "finished": 1, "stopped": 0, "failed": 4}
    assert ledger.state.trials["t0002"].traceback == "Traceback"


def test_the_best_trial_is_a_finished_one_of_the_search(ledger: Ledger) -> None:
    assert ledger.state.best_trial() is None
    for score, how in [(0.6, "finished"), (0.9, "stopped"), (0.7, "finished"), (0.7, "finished")]:
        trial = create(ledger)
        evaluate(ledger, trial, 100, score)
        close(ledger, trial, how)
    repeat = create(ledger, number=None, origin="confirm", of="t0002")
    evaluate(ledger, repeat, 100, 0.99)
    close(ledger, repeat, "finished")
    close(ledger, create(ledger), "finished")  # without a single evaluation
    assert [trial.id for trial in ledger.state.ranked()] == ["t0002", "t0003", "t0000"]
    best = ledger.state.best_trial()
    assert best is not None and best.id == "t0002"


def test_events_of_a_newer_version_are_ignored_with_one_warning() -> None:
    warnings: list[str] = []
    event = {"event": "soup", "time": 1.0}
    state = RunState.from_events(
        [event, event, event | {"event": "end", "reason": "x"}], warnings.append
    )
    assert warnings == ["the ledger has 'soup' events, which this version does not know; ignored"]
    assert state.ended == "x"


def test_the_state_is_the_same_whether_lived_or_read(path: Path) -> None:
    lived = live_through(path, moves=80, seed=5)
    assert lived == RunState.from_events(read_events(path, _no_warning))
    assert len(lived.trials) > 8 and min(lived.counts().values()) > 0


def test_closing_the_ledger_twice_is_harmless(ledger: Ledger) -> None:
    ledger.close()
    ledger.close()
    assert module.Ledger is Ledger


@pytest.mark.parametrize("seed", range(4))
def test_what_the_state_remembers_is_what_a_walk_over_its_trials_finds(
    tmp_path: Path, seed: int
) -> None:
    live_through(tmp_path / "ledger.jsonl", moves=150, seed=seed, longer=True)
    state = RunState()
    for event in read_events(tmp_path / "ledger.jsonl"):
        state.apply(event)
        trials = list(state.trials.values())
        assert state.search_trials == [t for t in trials if t.of is None]
        assert state.repeats == [t for t in trials if t.is_repeat]
        for first in state.search_trials:
            runs = [t for t in trials if t.configuration == first.id and not t.is_repeat]
            assert state.runs_of(first.id) == runs
        assert state.open_trials == [t for t in trials if t.status == "open"]
        closed = [t for t in trials if t.closed_order is not None]
        assert list(state.closed_trials) == sorted(closed, key=lambda t: t.closed_order or 0)
        assert (
            state.next_number == max([-1, *(t.number for t in trials if t.number is not None)]) + 1
        )
        assert state.next_id == f"t{len(trials):04d}"
        ranked = [t for t in trials if t.status == "finished" and t.evaluations]
        ranked = [t for t in ranked if not t.is_repeat]
        ranked.sort(key=lambda t: (-(t.length or 0), -max(e["score"] for e in t.evaluations)))
        assert state.ranked() == ranked
        assert state.examples == sum(t.examples for t in trials)
        for status, count in state.counts().items():
            assert count == sum(t.status == status for t in state.search_trials)
    assert any(t.origin == "promoted" for t in trials) and state.repeats


def test_a_run_that_goes_on_with_another_objective_ranks_by_it(ledger: Ledger) -> None:
    begin(ledger)
    for mood, near in [(0.9, 0.1), (0.1, 0.9)]:
        name = create(ledger)
        evaluate(ledger, name, 100, 0.5, mood=mood, near=near)
        close(ledger, name, "finished")
    begin(ledger, resumed=True, objectives=["near"])
    assert [trial.id for trial in ledger.state.ranked()] == ["t0001", "t0000"]
