from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.data.batches import (
    Assembler,
    TaskStream,
    batches_per_pass,
    eval_batches,
    join,
    pass_order,
)
from model.data.layout import cut_longest_first, template_of
from model.data.tokens import Tokens, encode_texts

WORDS = "the a cat dog sat ran on under mat road big small not but and far from here".split()
LABELS = np.arange(40, dtype=np.float32)


def on_meta(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("meta")


def texts(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 12))) for _ in range(count)]


def pairs(tokenizer: Any, count: int = 40) -> tuple[list[str], list[str], Tokens]:
    first, second = texts(count, 1), texts(count, 2)
    return first, second, encode_texts(first, second, tokenizer)


def expected(tokenizer: Any, *given: list[str], length: int) -> tuple[Any, Any, Any]:
    """What the tokenizer itself makes of the same texts."""
    made = tokenizer(*given, truncation=True, max_length=length, padding=True)
    ids = np.array(made["input_ids"])
    kinds = np.array(made.get("token_type_ids", np.zeros_like(ids)))
    return ids, np.array(made["attention_mask"]), kinds


@pytest.mark.parametrize("length", [5, 8, 9, 12, 15, 40])
def test_cross_layout_equals_the_tokenizers_own_pairs(tokenizer: Any, length: int) -> None:
    first, second, tokens = pairs(tokenizer)
    batch = Assembler.of(tokenizer, length).batch(tokens, np.arange(40), layout="cross")
    ids, mask, kinds = expected(tokenizer, first, second, length=length)
    assert np.array_equal(batch.input_ids.numpy(), ids)
    assert np.array_equal(batch.attention_mask.numpy(), mask)
    assert np.array_equal(batch.token_type_ids.numpy(), kinds)
    assert batch.parts == 1 and batch.input_ids.dtype == torch.int64
    assert torch.isnan(batch.labels).all()


def test_bert_segments_are_told_apart_and_roberta_has_none(
    bert_tokenizer: Any, roberta_tokenizer: Any
) -> None:
    for tokenizer, most in ((bert_tokenizer, 1), (roberta_tokenizer, 0)):
        _, _, tokens = pairs(tokenizer)
        batch = Assembler.of(tokenizer, 30).batch(tokens, np.arange(40), layout="cross")
        assert batch.token_type_ids.max() == most
    assert template_of(roberta_tokenizer).middle == (2, 2)
    assert template_of(bert_tokenizer).segments == ((0,), 0, (0,), 1, (1,))


@pytest.mark.parametrize("length", [4, 7, 40])
def test_single_layout_equals_the_tokenizers_own(tokenizer: Any, length: int) -> None:
    first = texts(40, 3)
    tokens = encode_texts(first, None, tokenizer)
    batch = Assembler.of(tokenizer, length).batch(
        tokens, np.arange(40), layout="single", labels=LABELS
    )
    ids, mask, kinds = expected(tokenizer, first, length=length)
    assert np.array_equal(batch.input_ids.numpy(), ids)
    assert np.array_equal(batch.attention_mask.numpy(), mask)
    assert np.array_equal(batch.token_type_ids.numpy(), kinds)
    assert batch.labels.tolist() == LABELS.tolist() and batch.labels.dtype == torch.float32


@pytest.mark.parametrize("length", [6, 40])
def test_bi_layout_is_both_sentences_alone_one_above_the_other(tokenizer: Any, length: int) -> None:
    first, second, tokens = pairs(tokenizer)
    rows = np.array([3, 30, 7])
    batch = Assembler.of(tokenizer, length).batch(tokens, rows, layout="bi", labels=LABELS)
    chosen = [first[row] for row in rows] + [second[row] for row in rows]
    ids, mask, _ = expected(tokenizer, chosen, length=length)
    assert batch.parts == 2 and batch.labels.tolist() == [3, 30, 7]
    assert np.array_equal(batch.input_ids.numpy(), ids)
    assert np.array_equal(batch.attention_mask.numpy(), mask)
    assert not batch.token_type_ids.any()


def test_concat_layout_has_nothing_between_the_sentences(tokenizer: Any) -> None:
    first, second, tokens = pairs(tokenizer)
    batch = Assembler.of(tokenizer, 40).batch(tokens, np.arange(40), layout="concat")
    joined = [f"{a} {b}" for a, b in zip(first, second, strict=True)]
    ids, mask, _ = expected(tokenizer, joined, length=40)
    assert np.array_equal(batch.input_ids.numpy(), ids)
    assert np.array_equal(batch.attention_mask.numpy(), mask)
    assert not batch.token_type_ids.any()
    short = Assembler.of(tokenizer, 9).batch(tokens, np.arange(40), layout="concat")
    assert short.input_ids.shape[1] == 9


def test_padding_goes_to_the_longest_of_the_batch_only(bert_tokenizer: Any) -> None:
    tokens = encode_texts(["cat", "the cat sat on the mat", "a dog"], None, bert_tokenizer)
    assembler = Assembler.of(bert_tokenizer, 64)
    assert assembler.batch(tokens, np.array([0, 2]), layout="single").input_ids.shape == (2, 4)
    assert assembler.batch(tokens, np.array([0, 1]), layout="single").input_ids.shape == (2, 8)


def test_off_the_cpu_padding_goes_up_to_a_multiple_and_no_further_than_the_encoder(
    bert_tokenizer: Any,
) -> None:
    tokens = encode_texts(["cat", "the cat sat on the mat", "a dog"], None, bert_tokenizer)
    plain = Assembler.of(bert_tokenizer, 7)
    off = plain.on(torch.device("meta"))
    assert plain.on(torch.device("cpu")) == plain
    for rows, width in ((np.array([0, 2]), 7), (np.array([2]), 4)):  # what is not padded stays
        known, found = (each.batch(tokens, rows, layout="single") for each in (plain, off))
        assert found.input_ids.shape == (len(rows), width) and found.padded == known.padded
        assert torch.equal(found.input_ids[:, :4], known.input_ids)
        assert int(found.attention_mask.sum()) == int(known.attention_mask.sum())
        assert (found.input_ids[found.attention_mask == 0] == plain.pad_id).all()
    longer = replace(off, max_length=64).batch(tokens, np.array([0, 2]), layout="single")
    assert longer.input_ids.shape == (2, 8)
    there = [batch.map(on_meta) for batch in (known, found)]  # of one length: nothing is padded
    assert join(there, 0, 64).input_ids.shape == (2, 4)
    assert join([*there, longer.map(on_meta)], 0, 7).input_ids.shape == (4, 8)
    assert join([known, plain.batch(tokens, np.array([1]), layout="single")], 0, 64).padded


@pytest.mark.parametrize(
    ("layout", "length", "said"),
    [("cross", 3, "no room"), ("single", 40, "does not fit pairs"), ("best", 40, "is not one of")],
)
def test_a_layout_that_cannot_be_is_refused(
    bert_tokenizer: Any, layout: Any, length: int, said: str
) -> None:
    _, _, tokens = pairs(bert_tokenizer)
    with pytest.raises(ValueError, match=said):
        Assembler.of(bert_tokenizer, length).batch(tokens, np.arange(2), layout=layout)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 50))
def test_cutting_the_longest_first_is_cutting_one_token_at_a_time(
    a: int, b: int, room: int
) -> None:
    first, second = cut_longest_first(np.array([a]), np.array([b]), room)
    short, long = min(a, b), max(a, b)
    while short + long > room:
        short, long = (short, long - 1) if long > short else (short - 1, long)
    one, two = (long, short) if a > b else (short, long)
    assert (first[0], second[0]) == (one, two)


@settings(deadline=None)
@given(
    rows=st.integers(1, 300),
    size=st.integers(1, 40),
    key=st.lists(st.integers(-(2**70), 2**70), max_size=3).map(tuple),
    number=st.integers(0, 5),
)
def test_a_pass_takes_every_row_once_and_only_its_last_batch_is_short(
    rows: int, size: int, key: tuple[int, ...], number: int
) -> None:
    lengths = np.random.default_rng(rows).integers(0, 50, rows)
    order = pass_order(lengths, size, key, number)
    assert sorted(np.concatenate(order).tolist()) == list(range(rows))
    assert len(order) == batches_per_pass(rows, size)
    assert all(len(batch) == size for batch in order[:-1]) and len(order[-1]) <= size
    again = pass_order(lengths, size, key, number)
    assert all(np.array_equal(a, b) for a, b in zip(order, again, strict=True))


def test_passes_and_seeds_differ() -> None:
    lengths = np.arange(200) % 17
    orders = {
        tuple(np.concatenate(pass_order(lengths, 8, key, number)).tolist())
        for key in ((1,), (2,), (1, 0), (0, 1), (-1,))
        for number in range(3)
    }
    assert len(orders) == 15


def test_rows_of_like_length_go_together() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 4000)
    order = pass_order(lengths, 16, (0,), 0)
    padded = sum(len(batch) * lengths[batch].max() for batch in order)
    assert padded / lengths.sum() < 1.05
    # and yet short batches come neither first nor last
    means = [lengths[batch].mean() for batch in order]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


def stream(tokenizer: Any, size: int = 6) -> TaskStream:
    _, _, tokens = pairs(tokenizer)
    assembler = Assembler.of(tokenizer, 20)
    return TaskStream(tokens, LABELS, size, seed_key=(5, 1), layout="cross", assembler=assembler)


def test_asking_for_a_later_batch_is_resuming(bert_tokenizer: Any) -> None:
    whole, late = stream(bert_tokenizer), stream(bert_tokenizer)
    batches = [whole.batch(k) for k in range(20)]
    assert whole.per_pass == 7
    for k in (19, 3, 12):
        again = late.batch(k)
        assert np.array_equal(again.rows, batches[k].rows)
        assert torch.equal(again.input_ids, batches[k].input_ids)
        assert again.labels.tolist() == again.rows.tolist()
    for start in (0, 7):
        rows = np.concatenate([batch.rows for batch in batches[start : start + 7]])
        assert sorted(rows) == list(range(40))


def test_a_stream_needs_rows_labels_and_a_size(bert_tokenizer: Any) -> None:
    _, _, tokens = pairs(bert_tokenizer)
    assembler = Assembler.of(bert_tokenizer, 20)
    for labels, size in ((LABELS[:3], 4), (LABELS, 0)):
        with pytest.raises(ValueError, match="labels, batches of"):
            TaskStream(tokens, labels, size, seed_key=(), layout="bi", assembler=assembler)


def test_evaluation_takes_every_row_once_shortest_first(bert_tokenizer: Any) -> None:
    _, _, tokens = pairs(bert_tokenizer)
    rows = eval_batches(tokens, 16)
    assert [len(batch) for batch in rows] == [16, 16, 8]
    order = np.concatenate(rows)
    assert sorted(order) == list(range(40)) and (np.diff(tokens.lengths[order]) >= 0).all()


def test_a_batch_moves_whole(bert_tokenizer: Any) -> None:
    moved = stream(bert_tokenizer).batch(0).map(on_meta)
    kinds = {tensor.device.type for tensor in (moved.input_ids, moved.attention_mask, moved.labels)}
    assert kinds == {"meta"} == {moved.token_type_ids.device.type} and moved.parts == 1
