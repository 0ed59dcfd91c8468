"""Input at the ends of what is possible: next to nothing, far too much, and files that lie."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model.common.errors import InputError
from model.config.parse import parse_settings
from model.data.sources import load_split
from model.evaluation.model_folder import read_heads
from model.modules.encoder import load_encoder, load_tokenizer
from model.tasks.task_set import TaskSet, load_task_set
from model.train import train
from tests.tuner.made_up_runs import begin
from tuner.runs.ledger import Ledger, encode
from tuner.space.space import load_space

HEADER = "id\ttext\tlabel\n"


def tasks_in(folder: Path, kinds: dict[str, Any], train_rows: str, dev_rows: str) -> TaskSet:
    (folder / "train.tsv").write_text(HEADER + train_rows, encoding="utf-8")
    (folder / "dev.tsv").write_text(HEADER + dev_rows, encoding="utf-8")
    files = {"train": "train.tsv", "dev": "dev.tsv"}
    columns = {"id": "id", "text": "text", "label": "label"}
    tasks = {
        name: {**kind, "format": "glue", "files": files, "columns": columns}
        for name, kind in kinds.items()
    }
    (folder / "tasks.yaml").write_text(json.dumps({"tasks": tasks}))
    return load_task_set(str(folder / "tasks.yaml"))


def trained(folder: Path, tasks: TaskSet, examples: int = 16) -> list[dict[str, Any]]:
    settings = {"encoder.name": "tiny", "encoder.max_length": 32, "batch.sizes": 4}
    budget = {"budget.examples": examples, "budget.eval_every": examples}
    config = parse_settings(settings | budget, tasks)
    return list(train(config, tasks, out=folder / "run", warn=lambda line: None))


# --- next to nothing, and much ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "label"), [({"classes": 3}, 2), ({"binary": True}, 1), ({"regression": [0, 5]}, 3)]
)
def test_one_row_of_one_class_can_be_trained_on(
    tmp_path: Path, kind: dict[str, Any], label: int
) -> None:
    """Its score may say nothing, and is a number all the same."""
    tasks = tasks_in(tmp_path, {"mood": kind}, f"1\tfine\t{label}\n", f"2\twell\t{label}\n")
    (record,) = trained(tmp_path, tasks)
    assert -1 <= record["score"] <= 1 and record["examples"] >= 16


def test_a_sentence_of_100000_characters_is_cut_to_the_encoders_length(tmp_path: Path) -> None:
    rows = f"1\t{'word ' * 20_000}\t1\n2\t{'x' * 100_000}\t0\n"
    tasks = tasks_in(tmp_path, {"mood": {"binary": True}}, rows, rows)
    assert len(trained(tmp_path, tasks)) == 1


def test_thirty_tasks_have_a_space_and_train(tmp_path: Path) -> None:
    rows = "1\tfine\t1\n2\tpoor\t0\n"
    tasks = tasks_in(tmp_path, {f"task{n}": {"binary": True} for n in range(30)}, rows, rows)
    assert len(trained(tmp_path, tasks, 120)[0]["tasks"]) == 30
    space = load_space("default", str(tmp_path / "tasks.yaml"))
    assert sum(parameter.key.startswith("loss.weights") for parameter in space.parameters) == 30


# --- text files ---------------------------------------------------------------------------------


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    tasks = tasks_in(tmp_path, {"mood": {"binary": True}}, "", "")
    (tmp_path / "dev.tsv").write_bytes("\ufeffid\ttext\tlabel\n1\tfine\t1\n".encode())
    assert load_split(tasks.tasks[0], "dev", tmp_path).table["id"].to_pylist() == ["1"]


def test_a_line_break_in_quotes_is_two_rows_that_are_named(tmp_path: Path) -> None:
    tasks = tasks_in(tmp_path, {"mood": {"binary": True}}, "", "")
    text = 'id\ttext\tlabel\n1\t"fine\nindeed"\t1\n2\tgood\t1\n'
    (tmp_path / "dev.tsv").write_text(text)
    split = load_split(tasks.tasks[0], "dev", tmp_path)
    assert split.table["sentence1"].to_pylist() == ["good"]
    assert len(split.damaged) == 2 and "dev.tsv row 1" in split.damaged[0]


# --- models that lie ----------------------------------------------------------------------------


def lying(header: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header


BEYOND = {"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}
LIES = {
    "a header longer than the file": lying(b"{}", 1 << 40),
    "a header of no end": lying(b"{}", (1 << 64) - 1),
    "a tensor beyond the file": lying(json.dumps(BEYOND).encode()),
    "deep": lying(b"[" * 100_000),
    "nothing": b"",
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.timeout(60)
def test_tensors_that_are_not_there_cost_no_memory(tmp_path: Path, lie: str) -> None:
    (tmp_path / "heads.safetensors").write_bytes(LIES[lie])
    with pytest.raises(InputError, match="cannot be read"):
        read_heads(tmp_path)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    made: Any = load_encoder("tiny")
    made.save_pretrained(tmp_path)
    load_tokenizer("tiny").save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.timeout(120)
def test_a_tokenizer_that_is_too_long_or_too_deep_is_refused(encoder: Path) -> None:
    (encoder / "tokenizer.json").write_text("[" * 200_000)
    with pytest.raises(InputError, match="cannot be loaded"):
        load_tokenizer(str(encoder))
    os.truncate(encoder / "tokenizer.json", (1 << 26) + 1)
    with pytest.raises(InputError, match="has 67,108,865 bytes"):
        load_tokenizer(str(encoder))


@pytest.mark.parametrize(
    "lie", [{"num_hidden_layers": 10**9}, {"hidden_size": 10**9}, {"vocab_size": 10**12}]
)
@pytest.mark.timeout(120)
def test_a_configuration_of_a_giant_is_refused(encoder: Path, lie: dict[str, int]) -> None:
    config = json.loads((encoder / "config.json").read_text())
    (encoder / "config.json").write_text(json.dumps(config | lie))
    with pytest.raises(InputError, match=f"{next(iter(lie))} of its configuration is"):
        load_encoder(str(encoder))


def rename_weights(folder: Path, name: str) -> None:
    listed = {"weight_map": {"embeddings.word_embeddings.weight": name}}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(listed))


def add_template(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    os.mkfifo(folder / "additional_chat_templates" / "mine.jinja")


ELSEWHERE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "weights above": (lambda f: rename_weights(f, "../pipe"), "name files of its own folder"),
    "weights anywhere": (lambda f: rename_weights(f, "/dev/tty"), "name files of its own folder"),
    "a template that is a pipe": (add_template, "is a pipe"),
    "an adapter": (
        lambda f: (f / "adapter_config.json").write_text('{"base_model_name_or_path": "a/b"}'),
        "holds an adapter of another model",
    ),
}


@pytest.mark.parametrize("how", ELSEWHERE)
@pytest.mark.timeout(60)
def test_a_model_that_leads_elsewhere_is_refused(encoder: Path, how: str) -> None:
    """By itself transformers would wait for the pipe, or load what the adapter names."""
    harm, said = ELSEWHERE[how]
    harm(encoder)
    with pytest.raises(InputError, match=said):
        load_encoder(str(encoder))


# --- a long ledger, another locale --------------------------------------------------------------


def test_a_ledger_of_50000_events_opens_in_seconds(tmp_path: Path) -> None:
    """With room for slow machines."""
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, lambda line: None) as ledger:
        begin(ledger)
        number, before = ledger._lines, ledger._before
    lines = []
    for trial in range(10_000):
        name = f"t{trial:04d}"
        created = {"number": trial, "params": {}, "settings": {}, "origin": "sampler", "seed": 0}
        for event, more in (
            ("created", created),
            ("started", {"attempt": 0}),
            ("evaluated", {"examples": 100, "score": 0.5}),
            ("removed", {"checkpoints": []}),
            ("finished", {}),
        ):
            number += 1
            told = {"event": event, "time": 1.7e9, "trial": name, **more}
            lines.append(encode(told, number, before))
            before = lines[-1][-11:-3].decode()
    with open(path, "ab") as file:
        file.writelines(lines)
    began = time.process_time()
    with Ledger(path, lambda line: None) as ledger:
        assert len(ledger.state.trials) == 10_000
    assert time.process_time() - began < 60


def test_another_locale_changes_nothing(tmp_path: Path) -> None:
    """Names and sentences beyond ASCII, where Python would take files for ASCII."""
    rows = "1\tgrün\t1\n2\tläßt\t0\n"
    tasks_in(tmp_path, {"stimmung": {"classes": ["schön", "übel"]}}, rows, rows)
    command = [sys.executable, "-m", "model.data", "info", "--tasks", str(tmp_path / "tasks.yaml")]
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env=os.environ | plain, check=False)
    assert done.returncode == 0, done.stderr
    assert b"stimmung" in done.stdout and b"Traceback" not in done.stderr
