from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertTokenizer, PreTrainedTokenizerFast

from model.tasks.task_set import Task, load_task_set

WORDS = (
    "the a cat dog sat ran on under mat road big small not but and far from here one two".split()
)


@pytest.fixture
def bert_tokenizer(tmp_path: Path) -> Any:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, ".", ",", "##s", "##ed"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return BertTokenizer(vocab=vocabulary, model_max_length=16)


@pytest.fixture
def roberta_tokenizer() -> Any:
    """Two separators in the middle and no segments."""
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *WORDS, ".", ","]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )


@pytest.fixture(params=["bert", "roberta"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_tokenizer")


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Task]:
    """A task by its settings, through a task file as a user would write it."""

    def make(**settings: Any) -> Task:
        plain: dict[str, Any] = {
            "classes": 3,
            "format": "glue",
            "files": {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"},
            "columns": {"id": "id", "text": "text", "label": "label"},
        }
        if "binary" in settings or "regression" in settings:
            del plain["classes"]
        if settings.get("format") in ("hub", "sample"):
            del plain["files"]
        import yaml

        path = tmp_path / "tasks.yaml"
        path.write_text(yaml.safe_dump({"tasks": {"mood": {**plain, **settings}}}))
        return load_task_set(str(path))["mood"]

    return make
