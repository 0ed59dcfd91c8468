"""A run's folder from a stranger: nothing outside of it is read, written or deleted."""

from __future__ import annotations

import json
import math
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.common.errors import InputError
from model.common.files import MOST_YAML, read_yaml
from model.common.untrusted import (
    MOST_ROWS,
    held,
    inside,
    open_regular,
    parse_json,
    read_json,
    read_parquet,
    refuse_unreadable,
)
from model.evaluation.model_folder import read_heads, read_model
from model.modules.encoder import load_encoder
from model.training.checkpoint import DamagedCheckpoint, verify
from tests.tuner.made_up_runs import begin, close, create, evaluate
from tuner.engine.engine import Engine, Limits
from tuner.engine.stages import stages_of
from tuner.engine.study_file import StudyFile
from tuner.export.tensorboard.board import Board
from tuner.export.trackers.records import snapshot
from tuner.predict.predictor import load_predictor
from tuner.runs.folder import read_run, refuse_strange, write_run
from tuner.runs.ledger import Ledger, encode, read_events, read_state
from tuner.runs.lines import FIRST
from tuner.runs.lock import RunLock
from tuner.runs.open import open_run
from tuner.runs.request import ExecutionOptions
from tuner.runs.retention import CheckpointStore, wanted
from tuner.runs.trial_table import trial_table
from tuner.scoring.summarise import summarise
from tuner.search.checks import refuse_or_allow
from tuner.search.plan import stages_of_run
from tuner.soup.ensemble_file import ENSEMBLE, read_ensemble

RESUME = ExecutionOptions(resume=True)
RUN = {
    "event": "run",
    "version": "1",
    "name": "theirs",
    "objectives": ["overall"],
    "num_samples": 3,
    "seed": 0,
    "sampler": "tpe",
    "resumed": False,
}
CREATED = {
    "event": "created",
    "trial": "t0000",
    "number": 0,
    "params": {},
    "settings": {},
    "origin": "sampler",
    "seed": 0,
}
EVALUATED = {
    "event": "evaluated",
    "trial": "t0000",
    "examples": 100,
    "score": 0.5,
    "checkpoint": "step-00000001",
}


def silent(line: str) -> None:
    pass


def write_ledger(path: Path, *events: dict[str, Any]) -> None:
    """With checksums and numbers as they should be, whatever the events say."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content, before = b"", FIRST
    for number, event in enumerate(events, 1):
        line = encode({"event": event["event"], "time": float(number), **event}, number, before)
        before = line[-11:-3].decode()
        content += line
    path.write_bytes(content)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Somebody's checkpoints beside the run."""
    place = tmp_path / "victim"
    for name in ("checkpoints/step-00000001/model", "checkpoints/step-00000001/state", "model"):
        (place / name).mkdir(parents=True)
        (place / name / "mine").write_text("mine")
    return place


def files_of(place: Path) -> list[str]:
    return sorted(str(file) for file in place.rglob("*"))


# --- ids and paths out of files -----------------------------------------------------------------


@pytest.mark.parametrize("how", ["up", "absolute", "a NUL", "empty", "a dot"])
def test_a_trial_whose_id_is_a_path_is_refused_and_nothing_outside_is_touched(
    tmp_path: Path, victim: Path, how: str
) -> None:
    names = {"up": "../../../victim", "absolute": str(victim), "a NUL": "t0000\0", "empty": ""}
    name, run = names.get(how, "."), tmp_path / "runs" / "theirs"
    write_run(run_at(run), {"space": "default"}, {"packages": {}})
    failed = {"event": "failed", "trial": name, "kind": "code", "reason": "so"}
    write_ledger(run / "ledger.jsonl", RUN, CREATED | {"trial": name}, failed)
    before = files_of(tmp_path)
    for attempt in (
        lambda: Ledger(run / "ledger.jsonl", silent),
        lambda: refuse_or_allow(run, RESUME),
    ):
        with pytest.raises(InputError, match="line 2: not an event that this version knows"):
            attempt()
    assert read_state(run / "ledger.jsonl", silent).trials == {}
    with Ledger(run / "ledger.jsonl", silent, cut_back=True) as ledger:
        assert not ledger.state.trials
    assert [file for file in files_of(tmp_path) if "ledger" not in file] == [
        file for file in before if "ledger" not in file
    ]


def run_at(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize(
    "field",
    [{"checkpoint": "../../x"}, {"predictions": "/etc/passwd"}, {"predictions": "a/../../b"}],
)
def test_names_of_files_in_an_evaluation_stay_in_its_trial(
    tmp_path: Path, field: dict[str, str]
) -> None:
    write_ledger(tmp_path / "ledger.jsonl", RUN, CREATED, EVALUATED | field)
    with pytest.raises(InputError, match="line 3: not an event that this version knows"):
        Ledger(tmp_path / "ledger.jsonl", silent)


@pytest.mark.parametrize("where", ["trials", "trials/t0000", "trials/t0000/checkpoints"])
def test_nothing_is_deleted_through_a_link(tmp_path: Path, victim: Path, where: str) -> None:
    run = run_at(tmp_path / "run")
    link = run / where
    link.parent.mkdir(parents=True, exist_ok=True)
    target = victim if where.endswith("t0000") else victim / "checkpoints"
    if where == "trials":
        target = run_at(tmp_path / "elsewhere")
        victim.rename(target / "t0000")
    link.symlink_to(target)
    write_ledger(run / "ledger.jsonl", RUN, CREATED, EVALUATED)
    before = files_of(tmp_path)
    store = CheckpointStore(run)
    for attempt in (
        lambda: store.delete("t0000", ["step-00000001"]),
        lambda: store.drop_states("t0000"),
    ):
        with pytest.raises(InputError, match="leads out of it"):
            attempt()
    for refused in (lambda: refuse_or_allow(run, RESUME), lambda: open_run(run)):
        with pytest.raises(InputError, match=f"{where} is a link"):
            refused()
    assert files_of(tmp_path) == before


def test_members_of_an_ensemble_and_signed_files_stay_in_their_run(
    tmp_path: Path, victim: Path
) -> None:
    (victim / "model" / "stockpot.json").write_text("{}")
    run = run_at(tmp_path / "run")
    write_ledger(run / "ledger.jsonl", RUN)
    folder = run_at(run / "soups" / "mine")
    for model in ("../../../victim/model", str(victim / "model")):
        members = [{"model": model, "weight": 1}]
        answers = {"mood": {"rule": "mean", "members": members}}
        (folder / ENSEMBLE).write_text(json.dumps({"format": 1, "answers": answers}))
        with pytest.raises(InputError, match="mood: .* leads out of it"):
            read_ensemble(folder)
    (folder / "manifest.json").write_text(json.dumps({"../../../victim/model/mine": "0"}))
    with pytest.raises(DamagedCheckpoint, match="manifest.json is missing or not readable"):
        verify(folder)


@given(st.lists(st.sampled_from(["..", ".", "a", "b/c", "", "/", "\0", "x" * 300]), max_size=6))
def test_a_path_is_inside_or_refused(parts: list[str]) -> None:
    root = Path("/nowhere/run")
    try:
        found = inside(root, "/".join(parts))
    except InputError:
        return
    assert Path(os.path.normpath(found)).is_relative_to(root)


# --- events -------------------------------------------------------------------------------------

WRONG: dict[str, list[dict[str, Any]]] = {
    "a trial that is a number": [CREATED | {"trial": 7}],
    "a trial in Arabic digits": [CREATED | {"trial": "t\u0660\u0660\u0660\u0660"}],
    "a trial that nobody counted to": [CREATED | {"trial": "t999999999999"}],
    "a point that nobody counted to": [CREATED | {"number": 10**9}],
    "settings that are a list": [CREATED | {"settings": [1]}],
    "a number of words": [CREATED | {"number": "one"}],
    "a field is missing": [{k: v for k, v in CREATED.items() if k != "settings"}],
    "a score of words": [CREATED, EVALUATED | {"score": "high"}],
    "a score of null": [CREATED, EVALUATED | {"score": None}],
    "examples below zero": [CREATED, EVALUATED | {"examples": -1}],
    "examples of a thousand digits": [CREATED, EVALUATED | {"examples": 10**1000}],
    "an interval of one": [CREATED, EVALUATED | {"interval": [0.1]}],
    "tasks that are a list": [CREATED, EVALUATED | {"tasks": [1]}],
    "a task without its value": [CREATED, EVALUATED | {"tasks": {"mood": {}}}],
    "values that are words": [CREATED, EVALUATED | {"values": {"overall": "x"}}],
    "a time of words": [CREATED, {"event": "finished", "trial": "t0000", "time": "now"}],
    "a time beyond all calendars": [{"event": "end", "reason": "so", "time": 1e300}],
    "rungs that are numbers": [RUN | {"rungs": [1, 2]}],
    "no objectives": [RUN | {"objectives": []}],
    "a promotion that nobody knows": [RUN | {"promotion": "by luck"}],
    "removed checkpoints as text": [
        CREATED,
        {"event": "removed", "trial": "t0000", "checkpoints": "abc"},
    ],
    "a level of words": [CREATED, {"event": "promoted", "trial": "t0000", "level": "top"}],
    "an attempt that is a list": [CREATED, {"event": "started", "trial": "t0000", "attempt": []}],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_event_of_wrong_values_is_named_by_its_line(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "ledger.jsonl"
    write_ledger(path, RUN, *WRONG[wrong])
    line = 1 + len(WRONG[wrong])
    with pytest.raises(InputError, match=f"line {line}: not an event that this version knows"):
        Ledger(path, silent)
    told: list[str] = []
    assert len(read_events(path, told.append)) == line - 1
    assert len(told) == 1 and f"line {line}: not an event" in told[0]


@pytest.mark.parametrize(
    "value", ["[" * 200_000 + "]" * 200_000, '{"a":' * 60 + "1" + "}" * 60, "NaN", "1e999"]
)
def test_json_that_is_too_deep_or_not_finite_is_no_event(tmp_path: Path, value: str) -> None:
    import zlib

    path = tmp_path / "ledger.jsonl"
    body = f'{{"event":"end","time":1.0,"reason":"so","x":{value}}}'.encode()
    path.write_bytes(body[:-1] + b',"crc":"%08x"}\n' % zlib.crc32(body))
    with pytest.raises(InputError, match="line 1: not an event that this version knows"):
        Ledger(path, silent)
    with pytest.raises(ValueError):
        parse_json(body)


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["t0000", "t0001", "overall", "mood", 100, 0.5]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)
GOOD = [RUN, CREATED, CREATED | {"trial": "t0001", "number": 1}, EVALUATED,
        {"event": "started", "trial": "t0000", "attempt": 0},
        {"event": "frozen", "trial": "t0001", "examples": 3},
        {"event": "promoted", "trial": "t0001", "level": 1},
        {"event": "removed", "trial": "t0000", "checkpoints": ["step-00000001"]},
        {"event": "stopped", "trial": "t0001", "examples": 3, "rung": 3, "reason": "low"},
        {"event": "finished", "trial": "t0000"}]  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_an_event_says_it_is_taken_or_refused_in_words(
    data: st.DataObject, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    events = [dict(event) for event in GOOD]
    for _ in range(data.draw(st.integers(1, 3))):
        event = data.draw(st.sampled_from(events))
        event[data.draw(st.sampled_from([*event, "of", "level", "tasks", "interval"]))] = data.draw(
            ANY
        )
    write_ledger(path, *(e if isinstance(e["event"], str) else e | {"event": "x"} for e in events))
    try:
        with Ledger(path, silent) as ledger:
            state = ledger.state
    except InputError as error:
        assert "Traceback" not in str(error) and len(str(error)) < 20_000
        state = read_state(path, silent)
    wanted(state, 3)
    state.ranked()
    state.counts()


# --- the same, for everybody who makes something of a ledger ------------------------------------

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(scope="module", params=["0.2.0", "0.2", "0.1"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recorded")
    with tarfile.open(FIXTURES / f"run-{request.param}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return next(place.iterdir())


@pytest.fixture(scope="module")
def whole(recorded: Path) -> list[dict[str, Any]]:
    return read_events(recorded / "ledger.jsonl")


@pytest.fixture(scope="module")
def as_recorded(whole: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Its events, without their ends: a trial is left to do."""
    found = [e for e in whole if e["event"] not in ENDS]
    return [e if "num_samples" not in e else e | {"num_samples": 8} for e in found]


ENDS = ("end", "finished", "stopped")


def make_all_of(run: Path) -> None:
    """What a search that goes on, its summary and its trackers make of a ledger."""
    refuse_or_allow(run, RESUME)
    opened = open_run(run, silent)
    summarise(opened.state, run, opened.tasks)
    trial_table(opened.state)
    snapshot(opened)
    with Ledger(run / "ledger.jsonl", silent) as ledger:
        Board(run, opened.space, silent).follow(ledger)
        space = opened.space
        wanted = stages_of(opened.request, examples=space.examples, budget=space.budget)
        engine = Engine(
            ledger=ledger,
            space=space,
            tasks=opened.tasks,
            folder=run,
            store=CheckpointStore(run),
            data=None,
            limits=Limits(slots=9, threads=1),
            stages=stages_of_run(ledger.state, wanted),
            extra={},
            study=StudyFile(run / "study.journal", ledger.state, space, silent),
            warn=silent,
            log=silent,
        )
        while engine.next_job():
            pass


def one_event(event: str, **fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda e: e | fields if e["event"] == event else e


ODD: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "rungs of nothing": one_event("run", rungs=[[0, 0], [0, 0]]),
    "a level above all": one_event("created", level=1 << 52),
    "a level above the rungs": one_event("created", level=60),
    "a list for a sampler": one_event("created", params={"optim.learning_rate": [1]}),
    "values for a sampler": one_event("created", params={"optim.learning_rate": {"a": 1}}),
    "a sampler that nobody knows": one_event("run", sampler="nobody"),
    "seconds of words": one_event("evaluated", evaluation_seconds="x"),
    "rates of words": one_event("evaluated", learning_rates="x"),
    "rates that are a number": one_event("evaluated", learning_rates=3),
    "a norm of words": one_event("evaluated", gradient_norm="x"),
    "best of numbers": one_event("evaluated", best=[1]),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_fields_of_an_event_are_refused_in_words_by_all_who_use_it(
    odd: str, recorded: Path, as_recorded: list[dict[str, Any]]
) -> None:
    write_ledger(recorded / "ledger.jsonl", *as_recorded)
    make_all_of(recorded)
    write_ledger(recorded / "ledger.jsonl", *map(ODD[odd], as_recorded))
    with suppress(InputError):
        make_all_of(recorded)


@pytest.mark.timeout(60)
def test_a_race_without_end_takes_no_memory(recorded: Path, whole: list[dict[str, Any]]) -> None:
    race = {"event": "planned", "rungs": [[1, 1]], "num_samples": 1, "race": [1, 1 << 52]}
    write_ledger(recorded / "ledger.jsonl", *whole, race | {"time": 2e9})
    make_all_of(recorded)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_an_event_says_engine_summary_and_trackers_take_it_or_refuse_in_words(
    data: st.DataObject, recorded: Path, as_recorded: list[dict[str, Any]]
) -> None:
    events = [dict(event) for event in as_recorded]
    for _ in range(data.draw(st.integers(1, 2))):
        event = data.draw(st.sampled_from(events))
        key = data.draw(st.sampled_from(sorted(event.keys() - {"event"})))
        event[key] = data.draw(ANY | st.integers(0, 99) | st.floats(0, 1))
    write_ledger(recorded / "ledger.jsonl", *events)
    with suppress(InputError):
        make_all_of(recorded)


@pytest.mark.parametrize(
    "part",
    [
        "request: {1: 2}\nfingerprints: {packages: {}}",
        "request: {set: {1: 2}}\nfingerprints: {packages: {}}",
        "request: {space: default}\nfingerprints: {packages: {1: x}}",
        "request: {space: default}\nfingerprints: {packages: {torch: [1]}}",
        "request: {space: default}\nfingerprints: {packages: {}, data: .nan}",
    ],
)
def test_a_run_file_of_wrong_values_is_one_sentence(tmp_path: Path, part: str) -> None:
    (tmp_path / "run.yaml").write_text(part)
    with pytest.raises(InputError, match="is not what a search writes"):
        read_run(tmp_path)


# --- files that are none ------------------------------------------------------------------------


def pipe(place: Path) -> None:
    os.mkfifo(place)


STRANGE: dict[str, Callable[[Path], None]] = {
    "a pipe": pipe,
    "a folder": lambda place: place.mkdir(),
    "a symbolic link": lambda place: place.symlink_to("/nowhere/at/all"),
}


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("file", ["lock", "ledger.jsonl", "run.yaml"])
@pytest.mark.timeout(60)
def test_a_file_that_is_no_regular_one_is_one_sentence_and_never_waited_for(
    tmp_path: Path, kind: str, file: str
) -> None:
    write_ledger(tmp_path / "ledger.jsonl", RUN)
    (tmp_path / file).unlink(missing_ok=True)
    STRANGE[kind](tmp_path / file)
    readers: dict[str, Callable[[], Any]] = {
        "lock": lambda: RunLock(tmp_path / "lock", silent).acquire(),
        "ledger.jsonl": lambda: Ledger(tmp_path / "ledger.jsonl", silent),
        "run.yaml": lambda: read_run(tmp_path),
    }
    with pytest.raises(InputError, match=f"is {kind}, where a regular file is expected") as told:
        readers[file]()
    assert len(told.value.faults) == 1
    if kind != "a folder":
        with pytest.raises(InputError, match=f"{file} is a link, a pipe or a device"):
            refuse_strange(tmp_path)


@pytest.mark.parametrize(
    "content",
    ['{"pid": 1, "host": "h", "started": "s", "since": NaN}', '{"pid": "x"}', "[]", "[" * 90_000,
     '{"pid": 1, "host": "h", "started": "s", "since": 1e400}', "\0" * 50],
)  # fmt: skip
def test_a_lock_of_nonsense_is_taken_over_in_words(tmp_path: Path, content: str) -> None:
    (tmp_path / "lock").write_text(content + "\n")
    told: list[str] = []
    try:
        with RunLock(tmp_path / "lock", told.append):
            pass
        assert len(told) == 1 and "a lock left by a crash; taken over" in told[0]
    except InputError as error:
        assert "has 90,001 bytes" in str(error)


def test_json_files_are_bounded_and_finite(tmp_path: Path) -> None:
    for text in ('{"a": NaN}', "[" * 90_000, '{"a": Infinity}', "\xff", ""):
        (tmp_path / "x.json").write_text(text, encoding="latin-1")
        with pytest.raises(InputError, match="cannot be read as JSON"):
            read_json(tmp_path / "x.json")
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "nobody")
    assert math.isclose(parse_json(b'{"a": 1.5}')["a"], 1.5)


# --- copies -------------------------------------------------------------------------------------


def lived(folder: Path) -> Iterator[bytes]:
    """The ledger of a run after each of its two drivers."""
    for number in range(2):
        with Ledger(folder / "ledger.jsonl", silent) as ledger:
            begin(ledger, resumed=bool(number), epoch=ledger.state.epoch + 1)
            write_run(folder, {"space": "default"}, {"packages": {}}, ledger.state.epoch)
            trial = create(ledger)
            evaluate(ledger, trial, 100, 0.5)
            close(ledger, trial, "finished")
        yield (folder / "ledger.jsonl").read_bytes()


def test_an_older_copy_of_the_ledger_is_refused(tmp_path: Path) -> None:
    older, newer = lived(tmp_path)
    refuse_or_allow(tmp_path, RESUME)
    (tmp_path / "ledger.jsonl").write_bytes(older)
    with pytest.raises(
        InputError, match="is older than run.yaml: .* 2 drivers, and the ledger of 1"
    ):
        refuse_or_allow(tmp_path, RESUME)
    refuse_or_allow(tmp_path, ExecutionOptions(resume=True, force=True))
    (tmp_path / "ledger.jsonl").write_bytes(newer)
    refuse_or_allow(tmp_path, RESUME)


def test_an_open_handle_is_of_a_regular_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a device"):
        open_regular(Path("/dev/null"))


# --- deeper in the folder -----------------------------------------------------------------------


@pytest.mark.parametrize("where", ["soup/config.json", "trials/t0000/checkpoints/a/model/x", "a/b"])
@pytest.mark.timeout(60)
def test_a_pipe_anywhere_in_a_run_is_named_and_never_waited_for(tmp_path: Path, where: str) -> None:
    write_run(run_at(tmp_path), {"space": "default"}, {"packages": {}})
    write_ledger(tmp_path / "ledger.jsonl", RUN)
    (tmp_path / where).parent.mkdir(parents=True)
    pipe(tmp_path / where)
    for attempt in (
        lambda: open_run(tmp_path),
        lambda: refuse_or_allow(tmp_path, RESUME),
        lambda: load_predictor(tmp_path),
    ):
        with pytest.raises(InputError, match=f"{where} is a link, a pipe or a device"):
            attempt()


@pytest.mark.parametrize("file", ["config.json", "stockpot.json", "heads.safetensors"])
@pytest.mark.timeout(60)
def test_a_model_with_a_pipe_for_a_file_is_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / "stockpot.json").write_text("{}")
    (tmp_path / file).unlink(missing_ok=True)
    pipe(tmp_path / file)
    with pytest.raises(InputError, match="is a pipe"):
        refuse_unreadable(tmp_path)
    with pytest.raises(InputError):
        read_heads(tmp_path) if file == "heads.safetensors" else load_encoder(str(tmp_path))
    with pytest.raises(InputError):
        read_model(tmp_path)


@pytest.mark.timeout(60)
def test_a_signed_file_that_is_a_pipe_or_a_link_is_damage(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"model/x": "0"}))
    run_at(tmp_path / "model")
    pipe(tmp_path / "model" / "x")
    with pytest.raises(DamagedCheckpoint, match="x is missing|is a pipe"):
        verify(tmp_path)
    (tmp_path / "model" / "x").unlink()
    (tmp_path / "model" / "x").symlink_to(tmp_path / "manifest.json")
    with pytest.raises(DamagedCheckpoint, match="is a symbolic link"):
        verify(tmp_path)


def test_a_file_swapped_after_the_look_is_not_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "other").write_text("other")
    with held(tmp_path / "mine") as name:
        os.replace(tmp_path / "other", tmp_path / "mine")
        assert name.read_text() == "mine"


def test_yaml_and_tables_have_a_bound(tmp_path: Path) -> None:
    with open(tmp_path / "long.yaml", "wb") as file:
        file.truncate(MOST_YAML + 1)
    with pytest.raises(InputError, match="has 4,194,305 bytes"):
        read_yaml(tmp_path / "long.yaml")
    pipe(tmp_path / "pipe.yaml")
    with pytest.raises(InputError, match="is a pipe"):
        read_yaml(tmp_path / "pipe.yaml")
    one = pa.table({"task": pa.array([0], pa.int8())})
    with pq.ParquetWriter(tmp_path / "many.parquet", one.schema) as writer:
        many = pa.table({"task": pa.nulls(MOST_ROWS + 1, pa.int8())})
        writer.write_table(many)
    assert (tmp_path / "many.parquet").stat().st_size < 1 << 16
    with pytest.raises(InputError, match="has 16,777,217 rows"):
        read_parquet(tmp_path / "many.parquet", ["task"])
