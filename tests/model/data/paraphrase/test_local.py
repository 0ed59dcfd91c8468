"""Models of this machine: tiny ones with random weights, made here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from model.common.hub import quiet_transformers
from model.data.__main__ import main
from model.data.columnar import open_arrow
from model.data.sources import load_augmentation
from model.modules.encoder import tiny_tokenizer
from model.tasks.task_set import load_task_set


def save_model(kind: str, folder: Path) -> Path:
    tokenizer = tiny_tokenizer()
    size, ends = len(tokenizer), {"eos_token_id": 3, "pad_token_id": 0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: torch.nn.Module
        if kind == "seq2seq":
            shape = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
            model = T5ForConditionalGeneration(
                T5Config(vocab_size=size, decoder_start_token_id=0, **shape, **ends)
            )
        else:
            shape = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 512}
            model = GPT2LMHeadModel(GPT2Config(vocab_size=size, bos_token_id=2, **shape, **ends))
    if kind == "chat":
        tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %} now"
    with quiet_transformers():
        model.save_pretrained(folder)  # type: ignore[operator]
        tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "task"), [("seq2seq", "sentiment"), ("causal", "paraphrase"), ("chat", "sentiment")]
)
def test_a_local_model_makes_rows_and_goes_on_as_if_it_had_not_been_killed(
    kind: str, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made.arrow"
    folder = str(save_model(kind, tmp_path / "model"))
    line = ["paraphrase", "--tasks", "sample", "--task", task, "--model", folder, "--out", str(out)]
    line += ["--rows", "4", "--per-row", "3", "--seed", "5"]
    assert main([*line, "--dry-run"]) == 0
    assert ("\nparaphrase: " in capsys.readouterr().out) == (kind == "seq2seq")
    assert main(line) == 0
    rows = open_arrow(out).to_pylist()
    assert 4 <= len(rows) <= 12 and all(row["sentence1"].strip() for row in rows)
    assert len(load_augmentation(load_task_set("sample")[task], out).table) == len(rows)
    whole, answer_file = out.read_bytes(), out.with_name("made.arrow.answers.jsonl")
    lines = answer_file.read_bytes().splitlines(keepends=True)
    answer_file.write_bytes(b"".join(lines[:3]) + lines[3][:10])
    out.unlink()
    assert main(line) == 0 and out.read_bytes() == whole


def test_a_model_that_is_not_there_and_flags_of_a_server_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["paraphrase", "--task", "sentiment", "--out", str(tmp_path / "made.arrow")]
    line += ["--model", str(tmp_path / "nowhere"), "--parallel", "4", "--temperature", "0"]
    assert main(line) == 2
    said = capsys.readouterr().err
    assert "nowhere' cannot be loaded" in said and "--parallel is for a server" in said
    assert "--temperature must be > 0" in said
