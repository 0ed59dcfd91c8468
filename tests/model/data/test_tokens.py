from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from model.common.errors import InputError
from model.data import tokens as module
from model.data.rows import SCHEMA
from model.data.tokens import (
    Tokens,
    cache_key,
    default_cache,
    encode_texts,
    fingerprint,
    tokenise,
)

TEXTS = ["the cat sat on the mat.", "a dog", "", "big cats and small dogs ran far from here"]
OTHERS = ["the dog ran", "one, two", "not here", ""]


def table_of(first: list[str], second: list[str] | None = None) -> pa.Table:
    rows = [
        {"id": str(n), "sentence1": text, "sentence2": second[n] if second else None, "label": 0.0}
        for n, text in enumerate(first)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def rows_of(tokens: Tokens) -> list[tuple[list[int], list[int]]]:
    ends = zip(
        tokens.offsets1, tokens.offsets1[1:], tokens.offsets2, tokens.offsets2[1:], strict=False
    )
    return [(tokens.ids1[a:b].tolist(), tokens.ids2[c:d].tolist()) for a, b, c, d in ends]


def test_tokens_are_the_tokenizers_own_without_special_ones(tokenizer: Any, tmp_path: Path) -> None:
    tokens = tokenise(table_of(TEXTS, OTHERS), tokenizer, tmp_path)
    plain = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    others = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in OTHERS]
    assert rows_of(tokens) == list(zip(plain, others, strict=True))
    assert tokens.pair and len(tokens) == 4
    assert tokens.lengths.tolist() == [len(a) + len(b) for a, b in rows_of(tokens)]
    assert rows_of(encode_texts(TEXTS, OTHERS, tokenizer)) == rows_of(tokens)


def test_single_sentences_have_an_empty_second_half(bert_tokenizer: Any, tmp_path: Path) -> None:
    tokens = tokenise(table_of(TEXTS), bert_tokenizer, tmp_path)
    assert not tokens.pair and tokens.lengths2.tolist() == [0, 0, 0, 0] and len(tokens.ids2) == 0


def test_the_second_time_comes_from_the_cache_and_is_mapped(
    bert_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(TEXTS, OTHERS)
    first = tokenise(table, bert_tokenizer, tmp_path)
    monkeypatch.setattr(module, "_encode", None)  # calling it would fail
    before = pa.total_allocated_bytes()
    again = tokenise(table, bert_tokenizer, tmp_path)
    assert rows_of(again) == rows_of(first)
    assert pa.total_allocated_bytes() - before < 1024
    for array in (again.ids1, again.offsets1, again.ids2, again.offsets2):
        assert not array.flags.owndata and not array.flags.writeable
    maps = Path("/proc/self/maps")  # where the system tells
    (file,) = tmp_path.glob("*.arrow")
    assert not maps.exists() or str(file) in maps.read_text()


def test_anything_that_changes_the_tokens_changes_the_key(
    bert_tokenizer: Any, roberta_tokenizer: Any
) -> None:
    table = table_of(TEXTS, OTHERS)
    key = cache_key(table, bert_tokenizer)
    others = [
        cache_key(table, roberta_tokenizer),
        cache_key(table_of(TEXTS), bert_tokenizer),
        cache_key(table_of(OTHERS, TEXTS), bert_tokenizer),
        cache_key(table_of([*TEXTS[:3], "x"], OTHERS), bert_tokenizer),
        cache_key(table_of(["ab", "c"]), bert_tokenizer),
        cache_key(table_of(["a", "bc"]), bert_tokenizer),
    ]
    assert len({key, *others}) == 7
    assert cache_key(table_of(TEXTS, OTHERS), bert_tokenizer) == key
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert cache_key(chunked, bert_tokenizer) == key


def test_how_the_tokenizer_was_last_called_does_not_change_the_key(bert_tokenizer: Any) -> None:
    table = table_of(TEXTS)
    key = cache_key(table, bert_tokenizer)
    bert_tokenizer(TEXTS, truncation=True, max_length=5, padding=True)
    assert cache_key(table, bert_tokenizer) == key


@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped", "rubbish"])
def test_a_damaged_cache_file_is_rebuilt(bert_tokenizer: Any, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "cache"
    table = table_of(TEXTS * 50, OTHERS * 50)
    good = rows_of(tokenise(table, bert_tokenizer, cache))
    (file,) = cache.iterdir()
    content = file.read_bytes()
    ids = np.array(good[0][0], np.int32).tobytes()
    at = content.index(ids)
    spoilt = {
        "truncated": content[: len(content) // 2],
        "emptied": b"",
        "flipped": content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
        "rubbish": b"ARROW1\0\0" + b"\xff" * 100,
    }[damage]
    file.unlink()
    file.write_bytes(spoilt)
    assert rows_of(tokenise(table, bert_tokenizer, cache)) == good
    assert file.read_bytes() == content and len(list(cache.iterdir())) == 1


def test_long_rows_are_kept_whole_without_a_warning(
    bert_tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        tokens = tokenise(table_of(["cat " * 40]), bert_tokenizer, tmp_path)
    assert tokens.lengths.tolist() == [40] and not caplog.records


def test_many_rows_are_tokenised_in_several_calls(
    bert_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows_of(tokenise(table_of(TEXTS * 5, OTHERS * 5), bert_tokenizer, tmp_path / "a"))
    monkeypatch.setattr(module, "PER_CALL", 3)
    parts = rows_of(tokenise(table_of(TEXTS * 5, OTHERS * 5), bert_tokenizer, tmp_path / "b"))
    assert parts == whole


def test_the_cache_folder_can_be_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("STOCKPOT_CACHE")
    assert default_cache() == Path.home() / ".cache" / "stockpot"


def test_a_cache_that_cannot_be_written_is_told(bert_tokenizer: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="set STOCKPOT_CACHE"):
        tokenise(table_of(TEXTS), bert_tokenizer, tmp_path / "file")


def test_an_empty_table_has_no_tokens(bert_tokenizer: Any, tmp_path: Path) -> None:
    tokens = tokenise(table_of([]), bert_tokenizer, tmp_path)
    assert len(tokens) == 0 and len(tokens.lengths) == 0


def test_a_tokenizer_without_a_backend_is_known_by_its_words_and_settings() -> None:
    class Slow:
        def __init__(self, words: list[str], **settings: Any) -> None:
            self.words, self.init_kwargs = words, settings

        def get_vocab(self) -> dict[str, int]:
            return {word: number for number, word in enumerate(self.words)}

    plain = fingerprint(Slow(["a", "b"], lower=True))
    assert plain == fingerprint(Slow(["a", "b"], lower=True))
    assert plain != fingerprint(Slow(["b", "a"], lower=True))
    assert plain != fingerprint(Slow(["a", "b"], lower=False))
