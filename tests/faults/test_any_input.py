"""Whatever a file holds, it is taken or refused in words: never another exception."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.common.errors import InputError
from model.config.parse import parse_layers, read_settings
from model.tasks.task_set import load_task_set
from tests.tuner.made_up_runs import begin, create
from tuner.runs.folder import read_run
from tuner.runs.ledger import Ledger, encode, parse, read_events
from tuner.runs.lines import OWN
from tuner.runs.state import CLOSING, RunState
from tuner.space.space import load_space

ROOT = Path(__file__).parents[2]
SAME_FOLDER = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_config(path: Path) -> Any:
    return parse_layers([read_settings(path)], load_task_set("sample"))


def read_run_file(path: Path) -> Any:
    path.replace(path.with_name("run.yaml"))
    return read_run(path.parent)


READERS: dict[str, tuple[Callable[[Path], Any], Path]] = {
    "space": (lambda path: load_space(str(path)), ROOT / "search_spaces" / "default.yaml"),
    "tasks": (lambda path: load_task_set(str(path)), ROOT / "model/tasks/task_sets/cs224n.yaml"),
    "config": (read_config, ROOT / "model/config/presets/paper-001.yaml"),
    "run": (read_run_file, ROOT / "search_spaces" / "default.yaml"),
}

# Words that mean something in these files, so that a draw gets past the first look.
WORDS = st.sampled_from(
    "about tasks base parameters start_from when float int choice log step settings name kind "
    "classes binary regression files train dev columns text label metric loss smart.weight "
    "batch.sizes encoder.name seed optim.learning_rate schedule.name budget asked fingerprints "
    "cs224n sample 0 1 -1 1e308 .nan .inf null true ~ '' 2026-11-16".split()
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), WORDS, st.dates()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def taken_or_refused(reader: str, content: bytes, folder: Path) -> None:
    path = folder / "mine.yaml"
    path.write_bytes(content)
    try:
        READERS[reader][0](path)
    except InputError as error:
        assert error.faults and all(error.faults)
        assert "Traceback" not in str(error)


@pytest.mark.parametrize("reader", READERS)
@SAME_FOLDER
@given(data=st.dictionaries(WORDS, VALUES, max_size=5))
def test_any_values(reader: str, data: dict[str, Any], tmp_path: Path) -> None:
    taken_or_refused(reader, yaml.safe_dump(data, allow_unicode=True).encode(), tmp_path)


@functools.cache
def good(reader: str) -> bytes:
    return READERS[reader][1].read_bytes()


@pytest.mark.parametrize("reader", READERS)
@SAME_FOLDER
@given(data=st.data())
def test_any_change_to_a_good_file(reader: str, data: st.DataObject, tmp_path: Path) -> None:
    content = good(reader)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        end = min(len(content), start + data.draw(st.integers(0, 20)))
        put = data.draw(
            st.binary(max_size=4) | st.sampled_from([b"\n", b": ", b"- ", b"[", b"&a "])
        )
        content = content[:start] + put + content[end:]
    taken_or_refused(reader, content, tmp_path)


@pytest.mark.parametrize("reader", READERS)
@SAME_FOLDER
@given(content=st.binary(max_size=60))
def test_any_bytes(reader: str, content: bytes, tmp_path: Path) -> None:
    taken_or_refused(reader, content, tmp_path)


# --- ledgers ------------------------------------------------------------------------------------

Deed = tuple[str, int]
DEEDS = st.lists(
    st.tuples(st.sampled_from(["created", "started", "evaluated", *CLOSING]), st.integers(0, 4)),
    max_size=25,
)


def live(ledger: Ledger, deeds: list[Deed]) -> None:
    """A run of any history that a search could write."""
    begin(ledger)
    for deed, number in deeds:
        trial = f"t{number:04d}"
        if deed == "created":
            create(ledger)
        elif trial not in ledger.state.trials:
            continue
        elif deed == "started":
            ledger.append(deed, trial=trial, attempt=number)
        elif deed == "evaluated":
            ledger.append(deed, trial=trial, examples=number * 10, score=number / 7)
        else:
            more = {"examples": 3, "rung": 1, "reason": "so", "kind": "code"}
            ledger.append(deed, trial=trial, **more)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=DEEDS, share=st.floats(0, 1))
def test_any_prefix_of_any_ledger_is_an_earlier_state(
    deeds: list[Deed], share: float, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    path.unlink(missing_ok=True)
    with Ledger(path, lambda line: None) as ledger:
        live(ledger, deeds)
        after = ledger.state
    content = path.read_bytes()
    events = read_events(path)
    assert RunState.from_events(events, print) == after
    cut = int(share * len(content))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    told: list[str] = []
    with Ledger(path, told.append) as ledger:
        assert ledger.state == RunState.from_events(events[:whole], print)
        assert len(told) == (not content[:cut].endswith(b"\n") and cut > 0)
        live(ledger, deeds[::-1])  # and it can go on
        after = ledger.state
    assert RunState.from_events(read_events(path), print) == after


@given(content=st.binary(max_size=200))
def test_any_bytes_are_a_ledger_or_are_damaged(content: bytes) -> None:
    found = parse(content)
    assert 0 <= found.whole <= len(content)
    if content.strip() and not found.damaged:
        assert content[: found.whole].strip() or content[found.whole :].startswith(
            b"{"[: len(content)]
        )


@given(data=st.dictionaries(st.text(max_size=5), SCALARS.filter(lambda v: not hasattr(v, "year"))))
def test_any_event_survives_its_line(data: dict[str, Any]) -> None:
    fields = {k: v for k, v in data.items() if k not in OWN and not _is_long(v)}
    event = {**fields, "event": "of a newer version", "time": 1.0}
    event = {"event": event.pop("event"), "time": event.pop("time"), **event}
    try:
        line = encode(event)
    except ValueError:  # nan and inf are no JSON
        return
    (read,) = parse(line).events
    assert {k: v for k, v in read.items() if k not in OWN} == json.loads(json.dumps(event))


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and value.bit_length() > 62
