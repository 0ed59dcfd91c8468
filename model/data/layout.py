"""Rows of token ids laid out as what an encoder takes: special tokens, segments, padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from model.common.errors import InputError
from model.data.tokens import Ids, Offsets, Tokens

Layout = Literal[
    "single",
    "cross",  # both sentences in one sequence, with separators and segments
    "concat",  # both in one sequence, end to end
    "bi",  # a sequence each
]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Matrix = NDArray[np.int64]


@dataclass(frozen=True)
class Template:
    """Where a tokenizer puts its special tokens, and how it numbers the segments of a pair."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    pair_prefix: tuple[int, ...]
    middle: tuple[int, ...]
    pair_suffix: tuple[int, ...]
    # Of pair_prefix, sentence 1, middle, sentence 2, pair_suffix.
    segments: tuple[tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]]

    def specials(self, layout: Layout) -> int:
        """How many special tokens one sequence of that layout holds."""
        if layout == "cross":
            return len(self.pair_prefix) + len(self.middle) + len(self.pair_suffix)
        return len(self.prefix) + len(self.suffix)


class Arrays(NamedTuple):
    input_ids: Matrix
    attention_mask: Matrix
    token_type_ids: Matrix


class Piece(NamedTuple):
    """A stretch of every row: the same few ids, or what each row has of `ids`."""

    ids: Ids | Sequence[int]
    segments: Sequence[int]
    starts: Offsets | None = None
    lengths: Offsets | None = None


def template_of(tokenizer: Any) -> Template:
    """Found by encoding probe texts, so it holds for any BERT-like tokenizer."""
    for first, second in (("a", "b"), ("one", "two"), ("1", "2"), (".", ",")):
        plain = tokenizer([first, second], add_special_tokens=False)["input_ids"]
        if all(plain):
            break
    else:
        raise InputError("tokenizer", ["gives no tokens for plain letters, digits or marks"])
    single = list(tokenizer(first)["input_ids"])
    both = tokenizer(first, second)
    pair = list(both["input_ids"])
    start = _find(plain[0], single, 0)
    one = _find(plain[0], pair, 0)
    two = _find(plain[1], pair, one + len(plain[0]))
    after = one + len(plain[0]), two + len(plain[1])
    kinds = list(both.get("token_type_ids") or [0] * len(pair))
    return Template(
        prefix=tuple(single[:start]),
        suffix=tuple(single[start + len(plain[0]) :]),
        pair_prefix=tuple(pair[:one]),
        middle=tuple(pair[after[0] : two]),
        pair_suffix=tuple(pair[after[1] :]),
        segments=(
            tuple(kinds[:one]),
            kinds[one],
            tuple(kinds[after[0] : two]),
            kinds[two],
            tuple(kinds[after[1] :]),
        ),
    )


def _find(part: Sequence[int], whole: Sequence[int], start: int) -> int:
    for place in range(start, len(whole) - len(part) + 1):
        if list(whole[place : place + len(part)]) == list(part):
            return place
    raise InputError("tokenizer", ["changes a text's tokens when it adds its special ones"])


def assemble(
    tokens: Tokens,
    rows: NDArray[np.int64],
    *,
    layout: Layout,
    template: Template,
    max_length: int,
    pad_id: int,
) -> Arrays:
    """The model inputs of these rows, padded to the longest of them.

    Pairs can be laid out in any way but `single`, single sentences only so. Rows beyond
    `max_length` are cut as the tokenizer's own `truncation=True` would cut them.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout '{layout}' is not one of {', '.join(LAYOUTS)}")
    room = max_length - template.specials(layout)
    if room < 1:
        raise ValueError(f"max_length {max_length} leaves no room for text in layout '{layout}'")
    if tokens.pair == (layout == "single"):
        raise ValueError(f"layout '{layout}' does not fit {'pairs' if tokens.pair else 'singles'}")
    starts1, lengths1 = tokens.offsets1[rows], tokens.lengths1[rows]
    starts2, lengths2 = tokens.offsets2[rows], tokens.lengths2[rows]
    if layout in ("cross", "concat"):
        lengths1, lengths2 = cut_longest_first(lengths1, lengths2, room)
    else:
        lengths1, lengths2 = np.minimum(lengths1, room), np.minimum(lengths2, room)
    first = Piece(tokens.ids1, (0,), starts1, lengths1)
    second = Piece(tokens.ids2, (0,), starts2, lengths2)
    if layout == "cross":
        head, kind1, between, kind2, tail = template.segments
        pieces = [
            Piece(template.pair_prefix, head),
            first._replace(segments=(kind1,)),
            Piece(template.middle, between),
            second._replace(segments=(kind2,)),
            Piece(template.pair_suffix, tail),
        ]
        return _fill(pieces, len(rows), pad_id)
    prefix = Piece(template.prefix, (0,) * len(template.prefix))
    suffix = Piece(template.suffix, (0,) * len(template.suffix))
    if layout == "concat":
        return _fill([prefix, first, second, suffix], len(rows), pad_id)
    width = int(np.maximum(lengths1, lengths2).max(initial=0)) + template.specials(layout)
    sides = [first, second] if layout == "bi" else [first]
    filled = [_fill([prefix, side, suffix], len(rows), pad_id, width) for side in sides]
    if layout == "single":
        return filled[0]
    return Arrays(*(np.concatenate(both) for both in zip(*filled, strict=True)))


def cut_longest_first(first: Offsets, second: Offsets, room: int) -> tuple[Offsets, Offsets]:
    """Lengths that fit into `room`: the longer is cut down to the shorter, then both alike."""
    short, long = np.minimum(first, second), np.maximum(first, second)
    fits = short + long <= room
    half = room // 2
    new_short = np.where(fits | (short <= half), short, half)
    new_long = np.where(fits, long, room - new_short)
    swapped = first > second
    return np.where(swapped, new_long, new_short), np.where(swapped, new_short, new_long)


def _fill(pieces: list[Piece], count: int, pad_id: int, least: int = 0) -> Arrays:
    """Write piece after piece into all rows at once; no loop over rows."""
    ends = np.zeros(count, np.int64)
    for piece in pieces:
        ends += len(piece.ids) if piece.lengths is None else piece.lengths
    width = int(ends.max(initial=least))
    ids = np.full((count, width), pad_id, np.int64)
    kinds = np.zeros((count, width), np.int64)
    flat_ids, flat_kinds = ids.reshape(-1), kinds.reshape(-1)
    place = np.arange(count, dtype=np.int64) * width  # where each row goes on
    for piece in pieces:
        if piece.lengths is None or piece.starts is None:
            for token, kind in zip(piece.ids, piece.segments, strict=True):
                flat_ids[place] = token
                flat_kinds[place] = kind
                place = place + 1
            continue
        goal = _spread(place, piece.lengths)
        flat_ids[goal] = np.asarray(piece.ids)[_spread(piece.starts, piece.lengths)]
        if piece.segments[0]:
            flat_kinds[goal] = piece.segments[0]
        place = place + piece.lengths
    mask = (np.arange(width) < ends[:, None]).astype(np.int64)
    return Arrays(ids, mask, kinds)


def _spread(starts: Offsets, lengths: Offsets) -> Offsets:
    """start, start + 1, ... for each of the stretches, end to end."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total, dtype=np.int64)
