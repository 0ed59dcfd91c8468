"""Text tokenised once: cached by content, and mapped from disk rather than loaded.

Each sentence is kept without special tokens, so every way of encoding pairs shares one file;
processes on one machine share its pages.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from model.common.errors import InputError
from model.common.files import write_atomic

FORMAT = b"stockpot tokens 1"  # change it with anything that changes the ids or the layout
CHECK = b"sha256"
PER_CALL = 4096  # sentences given to the tokenizer at once
Ids = NDArray[np.int32]
Offsets = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token ids of both sentences of every row, end to end; row i is ids[offsets[i]:offsets[i+1]].

    Of single sentences the second half is empty.
    """

    ids1: Ids
    offsets1: Offsets
    ids2: Ids
    offsets2: Offsets
    pair: bool

    def __len__(self) -> int:
        return len(self.offsets1) - 1

    @cached_property
    def lengths1(self) -> Offsets:
        return np.diff(self.offsets1)

    @cached_property
    def lengths2(self) -> Offsets:
        return np.diff(self.offsets2)

    @cached_property
    def lengths(self) -> Offsets:
        """Tokens of a row, both sentences together, without special tokens."""
        return self.lengths1 + self.lengths2


def default_cache() -> Path:
    return Path(os.environ.get("STOCKPOT_CACHE") or Path.home() / ".cache" / "stockpot")


def tokenise(table: pa.Table, tokenizer: Any, cache_dir: Path | None = None) -> Tokens:
    """The tokens of a table of texts, from the cache when it has them."""
    folder = Path(cache_dir) if cache_dir is not None else default_cache()
    path = folder / f"{cache_key(table, tokenizer)}.arrow"
    if (tokens := _open(path)) is not None:
        return tokens
    batch = _encode(table, tokenizer)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, _file_of(batch))
    except OSError as error:
        remedy = "set STOCKPOT_CACHE to a folder that can be written"
        raise InputError(str(folder), [f"tokens cannot be cached here ({error}); {remedy}"]) from (
            error
        )
    if (tokens := _open(path)) is None:
        raise OSError(f"{path} does not read back as it was written")
    return tokens


def encode_texts(firsts: Sequence[str], seconds: Sequence[str] | None, tokenizer: Any) -> Tokens:
    """Tokens of texts at hand, in memory; for prediction, where a cache would only grow."""
    blank = [""] * len(firsts)
    pair = seconds is not None
    return _views(_ids(firsts, tokenizer), _ids(seconds or blank, tokenizer), pair)


def cache_key(table: pa.Table, tokenizer: Any) -> str:
    """One name per (texts, tokenizer, layout): nothing else decides what the tokens are."""
    digest = hashlib.sha256(FORMAT)
    digest.update(fingerprint(tokenizer).encode())
    for name in ("sentence1", "sentence2"):
        texts = table[name].combine_chunks().cast(pa.large_string())
        digest.update(f"{len(texts)} {texts.null_count}".encode())
        sizes = pc.fill_null(pc.binary_length(texts), 0)
        digest.update(sizes.to_numpy(zero_copy_only=False).astype(np.int64).tobytes())
        digest.update("".join(text or "" for text in texts.to_pylist()).encode())
    return digest.hexdigest()


def fingerprint(tokenizer: Any) -> str:
    """All that decides how the tokenizer splits and numbers words."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        # These two only remember how it was last called.
        state.pop("truncation", None)
        state.pop("padding", None)
    else:
        settings = {key: repr(value) for key, value in tokenizer.init_kwargs.items()}
        state = [type(tokenizer).__name__, sorted(tokenizer.get_vocab().items()), settings]
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _encode(table: pa.Table, tokenizer: Any) -> pa.RecordBatch:
    columns = {}
    for number in ("1", "2"):
        texts = [text or "" for text in table[f"sentence{number}"].to_pylist()]
        columns[f"ids{number}"] = _ids(texts, tokenizer)
    pair = table["sentence2"].null_count < len(table)
    arrays = [columns["ids1"], columns["ids2"]]
    notes = {CHECK: _checksum(arrays, pair), b"pair": str(pair).encode()}
    schema = pa.schema([(name, array.type) for name, array in columns.items()], metadata=notes)
    return pa.record_batch(arrays, schema=schema)


def _ids(texts: Sequence[str], tokenizer: Any) -> pa.LargeListArray:
    parts: list[Ids] = []
    lengths: list[int] = []
    for start in range(0, len(texts), PER_CALL):
        some = texts[start : start + PER_CALL]
        if not any(some):
            lengths += [0] * len(some)
            continue
        rows = tokenizer(
            list(some),
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,  # a row beyond the model's length is cut later, where it is laid out
        )["input_ids"]
        counts = [len(row) for row in rows]
        parts.append(np.fromiter(chain.from_iterable(rows), np.int32, count=sum(counts)))
        lengths += counts
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
    values = np.concatenate(parts) if parts else np.empty(0, np.int32)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


def _file_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)  # one batch, so that each column is one stretch of the file
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _checksum(arrays: Sequence[pa.LargeListArray], pair: bool) -> bytes:
    digest = hashlib.sha256(FORMAT + str(pair).encode())
    for array in arrays:
        digest.update(array.offsets.to_numpy())
        digest.update(array.values.to_numpy())
    return digest.hexdigest().encode()


def _open(path: Path) -> Tokens | None:
    """The file's tokens; None where there is none, or it is not what was written."""
    try:
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            batch = reader.get_batch(0)
        batch.validate(full=True)
        notes = reader.schema.metadata or {}
        pair = notes.get(b"pair") == b"True"
        arrays = [batch.column("ids1"), batch.column("ids2")]
        if notes.get(CHECK) != _checksum(arrays, pair):
            return None
        return _views(arrays[0], arrays[1], pair)
    except (pa.ArrowException, OSError, ValueError, KeyError, AttributeError):
        return None


def _views(first: pa.LargeListArray, second: pa.LargeListArray, pair: bool) -> Tokens:
    """No copies: the arrays are the mapped file, or whatever memory `first` and `second` are."""
    return Tokens(
        ids1=first.values.to_numpy(),
        offsets1=first.offsets.to_numpy(),
        ids2=second.values.to_numpy(),
        offsets2=second.offsets.to_numpy(),
        pair=pair,
    )
