"""The real command against a server on loopback that limits, breaks, cuts and talks nonsense."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model.common.errors import InputError
from model.config.parse import parse_settings
from model.data.__main__ import main
from model.data.columnar import open_arrow
from model.data.paraphrase.make import STREAK, output_lock
from model.data.paraphrase.near import normalised
from model.data.sources import load_augmentation
from model.tasks.task_set import load_task_set
from model.train import train

from .api import Api, other_words, serving, words
from .conftest import sentences, write_sst

ROOT = Path(__file__).parents[4]
KEY = "k3y-that-nobody-may-see"
VARIABLE = "MY_MODEL_ACCESS"  # a name that does not say what it holds
QUICK = ["--wait", "0.01", "--timeout", "20", "--parallel", "4"]


def arguments(api: Api, data: Path, out: Path, *more: str) -> list[str]:
    what = ["paraphrase", "--tasks", "cs224n:sst", "--data", str(data), "--task", "sst"]
    by = ["--base-url", api.url, "--model", "some-model", "--out", str(out)]
    return [*what, *by, *(more or ("--per-row", "3", *QUICK))]


def rows_of(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_arrow(out).to_pylist()
    return found


# --- 500 rows, a fifth of the answers bad, and a kill in the middle -------------------------------

TRAIN, DEV, TEST = sentences("train", 500), sentences("dev", 40), sentences("test", 40)
NUMBER = {sentence: number for number, sentence in enumerate(TRAIN)}
# What else than a good paraphrase the model says, by the last digit of the row's number.
SPOILT = {
    0: lambda number, good: DEV[number % 40].upper() + " !",
    1: lambda number, good: TEST[number % 40] + "s",
    2: lambda number, good: f"'{TRAIN[number]}.'",
    3: lambda number, good: good[0].title(),
    4: lambda number, good: KEY,
}
BAD = ("limit", "broken", "cut", "garbage", "no_json", "slow")


def spoilt(sentence: str, count: int) -> list[str]:
    good, number = other_words(sentence, count), NUMBER[sentence]
    make = SPOILT.get(number % 10)
    return good if make is None else [*good[:-1], make(number, good)]


def bad_days(sentence: str, attempt: int) -> str:
    """Every fifth request goes wrong, some rows' twice, none more often."""
    number = NUMBER[sentence]
    bad = number % 5 == 1 if attempt == 1 else number % 25 == 1 and attempt == 2
    return BAD[(number // 5 + attempt) % len(BAD)] if bad else "good"


@pytest.mark.slow
def test_a_killed_command_goes_on_with_nothing_twice_and_nothing_missing(tmp_path: Path) -> None:
    data = write_sst(tmp_path / "data", {"train": TRAIN, "dev": DEV, "test": TEST})
    out = tmp_path / "made" / "sst.arrow"
    answer_file = out.with_name("sst.arrow.answers.jsonl")
    environment = {**os.environ, VARIABLE: KEY}
    with serving(spoilt) as api:
        api.behaviour = bad_days
        flags = ["--per-row", "4", "--parallel", "16", "--wait", "0.01", "--timeout", "2"]
        flags += ["--seed", "7", "--key-variable", VARIABLE, "--price-in", "2", "--price-out", "10"]
        line = [sys.executable, "-m", "model.data", *arguments(api, data, out, *flags)]
        first = subprocess.Popen(
            line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        api.wait_for(lambda: api.answered >= 200)
        first.kill()
        said = first.communicate()[0].decode()
        assert not out.exists()
        kept = {
            event["key"] for event in map(json.loads, answer_file.read_text().splitlines()[1:-1])
        }
        assert 200 - 2 * 16 < len(kept) < 400  # no more than was under way is lost
        before = len(api.asked)
        found = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        again = Counter(api.asked[before:])
    # Nothing that was written down was asked for again.
    events = [json.loads(event) for event in answer_file.read_text().splitlines()[1:]]
    assert Counter(event["key"] for event in events).most_common(1)[0][1] == 1
    assert len(events) == 500 and len(again) <= 500 - len(kept)
    # Nothing is missing: of every row all that was good is there, and nothing else is.
    good = {
        other_words(sentence, 4)[place]: number
        for sentence, number in NUMBER.items()
        for place in range(4 if number % 10 not in SPOILT else 3)
    }
    rows = rows_of(out)
    assert {row["sentence1"]: int(row["id"][5:].split("~")[0]) for row in rows} == good
    assert len(rows) == len(good) == 1750 and len({row["id"] for row in rows}) == 1750
    assert all(row["label"] == good[row["sentence1"]] % 5 for row in rows)
    assert not {*map(normalised, DEV + TEST)} & {normalised(row["sentence1"]) for row in rows}
    # The card and the last lines count it all.
    card = out.with_name("sst.arrow.card.md").read_text()
    for count in ("| removed: the same as a row of dev | 50 |", "| paraphrases made | 2,000 |"):
        assert count in card
    assert "| seed | 7 |" in card and "| model | some-model |" in card
    assert "| removed: near to a row of test | 50 |" in card and "Write {count} paraph" in card
    assert "2,000 made, " in found.stdout and "cost 0." in found.stdout
    # The key was used, and is nowhere.
    assert api.keys == {f"Bearer {KEY}"}
    assert KEY not in said + found.stdout + found.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 6 and not any(KEY.encode() in path.read_bytes() for path in written)


# --- what a server may do -------------------------------------------------------------------------


def test_a_row_that_gets_no_answer_is_left_out_and_tried_again_later(
    api: Api, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {words("train 3"): "refused", words("train 7"): "garbage"}
    api.behaviour = lambda sentence, attempt: bad.get(sentence, "good")
    out = tmp_path / "sst.arrow"
    line = [*arguments(api, data, out), "--tries", "3"]
    assert main(line) == 1
    said = capsys.readouterr().out
    assert "2 requests left out" in said and "row 4: HTTP 400: content policy" in said
    assert "row 8: an answer without a list of sentences (3 tries)" in said
    assert api.tries[words("train 3")] == 1 and api.tries[words("train 7")] == 3
    assert (
        len(rows_of(out)) == 30
        and "| requests left out | 2 |" in (tmp_path / "sst.arrow.card.md").read_text()
    )
    bad.clear()
    api.asked.clear()
    assert main(line) == 0
    assert sorted(api.asked) == sorted([words("train 3"), words("train 7")])
    assert len(rows_of(out)) == 36
    whole = out.read_bytes()
    api.asked.clear()
    assert main(line) == 0 and api.asked == [] and out.read_bytes() == whole


def test_the_server_is_left_in_peace_for_as_long_as_it_asks(
    api: Api, data: Path, tmp_path: Path
) -> None:
    api.behaviour = lambda *_: "limit_a_second" if len(api.asked) == 1 else "good"
    line = arguments(api, data, tmp_path / "sst.arrow")
    assert main([*line, "--parallel", "1", "--rows", "3"]) == 0
    assert len(api.asked) == 4 and api.times[1] - api.times[0] >= 1


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [("unknown_key", "--key-variable"), ("elsewhere", "not followed")],
)
def test_what_no_try_can_mend_stops_the_command_at_once(
    behaviour: str,
    told: str,
    api: Api,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    api.behaviour = lambda *_: behaviour
    line = arguments(api, data, tmp_path / "sst.arrow")
    assert main([*line, "--key-variable", VARIABLE]) == 2
    said = "".join(capsys.readouterr())
    assert told in said and KEY not in said
    assert len(api.asked) <= 4 and api.paths == {"/v1/chat/completions"}
    assert not (tmp_path / "sst.arrow").exists()


def test_a_server_that_answers_nobody_is_not_asked_for_every_row(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {"train": sentences("train", 60), "dev": ["a dev row"], "test": ["a test row"]}
    data, out = write_sst(tmp_path / "data", rows), tmp_path / "sst.arrow"
    api.behaviour = lambda *_: "broken"
    line = [*arguments(api, data, out), "--tries", "1"]
    assert main(line) == 1
    said = capsys.readouterr().err
    assert f"{STREAK} requests in a row had no answer" in said and "goes on" in said
    assert len(api.asked) < 40
    api.behaviour = lambda *_: "good"
    assert main(line) == 0 and len(rows_of(out)) == 180


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Heard, also where whoever runs the tests has it ignored, as in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_command_goes_on(
    api: Api, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(sentence: str, attempt: int) -> str:
        if len(api.asked) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return "slow" if len(api.asked) >= 6 else "good"  # nobody waits for these

    api.behaviour = interrupt
    out = tmp_path / "sst.arrow"
    assert main(arguments(api, data, out)) == 130
    assert "the same command goes on" in capsys.readouterr().err and not out.exists()
    api.behaviour = lambda *_: "good"
    assert main(arguments(api, data, out)) == 0 and len(rows_of(out)) == 36


def test_an_answer_that_never_ends_is_cut_off(api: Api, data: Path, tmp_path: Path) -> None:
    api.behaviour = lambda sentence, attempt: "drip" if attempt == 1 else "good"
    line = [*arguments(api, data, tmp_path / "sst.arrow"), "--rows", "2", "--timeout", "0.5"]
    assert main([*line, "--tries", "50"]) == 0
    assert len(api.asked) >= 4


def test_fields_that_are_given_are_sent_and_no_others(api: Api, data: Path, tmp_path: Path) -> None:
    line = [*arguments(api, data, tmp_path / "one.arrow"), "--rows", "1"]
    assert main(line) == 0
    assert api.bodies.pop().keys() == {"model", "messages"} and api.keys == {None}
    line = [*arguments(api, data, tmp_path / "two.arrow"), "--rows", "1"]
    assert main([*line, "--temperature", "0.5", "--seed", "3", "--body", "max_tokens=800"]) == 0
    body = api.bodies.pop()
    assert (body["temperature"], body["max_tokens"]) == (0.5, 800) and body["seed"] > 0


# --- before anything is sent ----------------------------------------------------------------------


def test_a_dry_run_shows_the_cost_and_a_prompt_and_sends_nothing(
    api: Api, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "sst.arrow"
    line = [*arguments(api, data, out), "--dry-run", "--price-in", "1000", "--rows", "10"]
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "10 requests to send" in said and "tokens in and" in said and "cost about" in said
    assert "JSON list of 3 strings" in said and f"Sentence: {words('train 0')}" in said
    assert api.asked == [] and not out.parent.exists()


def test_a_template_can_be_shown_changed_and_given(
    api: Api, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["paraphrase", "--model", "m", "--base-url", api.url, "--show-prompt"]
    assert main(line) == 0
    mine = tmp_path / "mine.txt"
    mine.write_text("As {label} of {task}.\n---\n" + capsys.readouterr().out.split("---\n")[1])
    line = [*arguments(api, data, tmp_path / "sst.arrow"), "--template", str(mine)]
    assert main([*line, "--rows", "2"]) == 0
    said = sorted(body["messages"][0]["content"] for body in api.bodies)
    assert said == ["As 0 of sst.", "As 1 of sst."]


def test_every_fault_is_told_at_once(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = tmp_path / "mine.txt"
    template.write_text("Say {sentnce} so.")
    flags = "--per-row 0 --near 1.5 --tries many --body stream=true --side left".split()
    where = ["--base-url", "ftp://host", "--out", str(tmp_path / "sst.csv")]
    line = ["paraphrase", "--tasks", "cs224n", "--data", str(data), "--task", "ssst", *where]
    line += [*flags, "--template", str(template), "--key-variable", "NOT_SET_ANYWHERE"]
    assert main(line) == 2
    said = capsys.readouterr().err
    for fault in (
        "--per-row must be",
        "--near must be",
        "--tries must be",
        "'stream' is set by the command itself",
        "--side must be one of either, first, second",
        "--base-url must be http",
        "--model is missing",
        "must end in .arrow or .parquet",
        "{sentnce} is not a field; did you mean 'sentence'?",
        "did you mean 'sst'?",
        "--key-variable: names no environment variable",
    ):
        assert fault in said, fault


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--base-url", "https://me:hunter22@host/v1"], "password or a key"),
        (["--base-url", "https://host/v1?api_key=hunter22"], "password or a key"),
        (["--base-url", "http://host/v1", "--key-variable", VARIABLE], "to this machine only"),
        (["--base-url", "http://[::1", "--key-variable", VARIABLE], "is not an address"),
        (["--body", "api_key=hunter22"], "looks like a secret"),
        (["--body", "callback=https://me:hunter22@host/"], "'callback' looks like a secret"),
        (["--key-variable", "sk-hunter22"], "names no environment variable"),
    ],
)
def test_a_key_that_would_be_seen_is_refused_and_not_repeated(
    flags: list[str],
    told: str,
    api: Api,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    assert main([*arguments(api, data, tmp_path / "sst.arrow"), *flags]) == 2
    said = capsys.readouterr().err
    assert told in said and "hunter22" not in said and KEY not in said
    assert api.asked == []


def test_answers_to_another_question_are_not_taken(
    api: Api, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sst.arrow"
    line = [*arguments(api, data, out), "--rows", "2"]
    assert main(line) == 0
    assert main([*line, "--per-row", "5", "--model", "other"]) == 2
    said = capsys.readouterr().err
    assert "per_row 3, and now it is 5" in said and "'some-model', and now it is 'other'" in said
    api.asked.clear()
    assert main([*line, "--rows", "4", "--near", "0.9", "--parallel", "1"]) == 0  # these are free
    assert api.asked == [words("train 2"), words("train 3")]


def test_a_file_of_somebody_else_is_left_alone(
    api: Api, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sst.arrow"
    out.write_text("mine")
    assert main(arguments(api, data, out)) == 2
    assert "was not made by this command" in capsys.readouterr().err and out.read_text() == "mine"
    with output_lock(tmp_path / "two.arrow"):
        assert main(arguments(api, data, tmp_path / "two.arrow")) == 2
    assert "another process is making this file" in capsys.readouterr().err
    assert api.asked == []


@pytest.mark.parametrize("place", ["file/sst.arrow", "file/deeper/sst.arrow"])
def test_a_file_in_the_way_of_the_folder_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="a file stands where its folder should be"):
        with output_lock(tmp_path / place):
            pass


def test_what_goes_wrong_inside_is_not_taken_for_a_file_in_the_way(tmp_path: Path) -> None:
    own = output_lock(tmp_path / "sst.arrow")
    with pytest.raises(FileExistsError, match="something else"), own:
        raise FileExistsError("something else")


# --- what the file is for -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sst.arrow", "sst.parquet"])
def test_a_run_trains_on_what_was_made(name: str, api: Api, data: Path, tmp_path: Path) -> None:
    out = tmp_path / name
    assert main(arguments(api, data, out)) == 0
    tasks = load_task_set("cs224n:sst")
    assert len(load_augmentation(tasks["sst"], out).table) == 36
    if name.endswith("parquet"):  # the same path from here on
        return
    settings = {"encoder.name": "tiny", "batch.sizes": 8, "budget.examples": 32}
    config = parse_settings({**settings, "augment.sst": str(out)}, tasks)
    records = list(train(config, tasks, out=tmp_path / "run", data=data))
    assert records and 0 <= records[-1]["score"] <= 1
