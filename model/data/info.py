"""What a task's data look like: sizes, labels, lengths, damage, and rows in two splits at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from model.data.rows import Split, labels_of
from model.data.tokens import encode_texts
from model.tasks.task_set import Task

NAMED = 5  # damaged rows and ids that are named


@dataclass(frozen=True)
class Overlap:
    """Rows of `later` that stand in `earlier` too."""

    earlier: str
    later: str
    ids: tuple[str, ...]


def overlaps(splits: dict[str, Split]) -> list[Overlap]:
    """Examples that stand in more than one split: the same text, pairs in either order."""
    keys = {name: _keys(split.table) for name, split in splits.items()}
    found = []
    for earlier, later in combinations(splits, 2):
        known = set(keys[earlier])
        ids = splits[later].table["id"].to_pylist()
        both = tuple(name for name, key in zip(ids, keys[later], strict=True) if key in known)
        if both:
            found.append(Overlap(earlier, later, both))
    return found


def _keys(table: pa.Table) -> list[tuple[str, ...]]:
    pairs = zip(table["sentence1"].to_pylist(), table["sentence2"].to_pylist(), strict=True)
    return [
        tuple(sorted(" ".join((text or "").lower().split()) for text in pair)) for pair in pairs
    ]


def describe_data(
    task: Task, splits: dict[str, Split], tokenizer: Any = None, told: Collection[str] = ()
) -> str:
    """A few aligned lines for one task, but for the damaged rows that are `told` already."""
    kind = {"classes": f"{task.classes} classes", "regression": f"{task.low:g} to {task.high:g}"}
    shape = "pairs" if task.pair else "single sentences"
    heading = f"{task.name}: {kind.get(task.kind, task.kind)}, {shape}, {task.metric}"
    header = ["split", "rows", "damaged", _label_heading(task), "words"]
    rows = [header + ["tokens"] * (tokenizer is not None)]
    for name, split in splits.items():
        cells = [name, f"{len(split.table):,}", f"{len(split.damaged):,}", _labels(task, split)]
        cells.append(_quantiles(_words(split.table)))
        if tokenizer is not None:
            cells.append(_quantiles(_tokens(split.table, tokenizer)))
        rows.append(cells)
    lines = [heading, *(f"  {line}" for line in aligned(rows, right={1, 2}))]
    for split in splits.values():
        damaged = [row for row in split.damaged if row not in told]
        lines += [f"  damaged: {row}" for row in damaged[:NAMED]]
        if len(damaged) > NAMED:
            lines.append(f"  damaged: and {len(damaged) - NAMED:,} more")
    for overlap in overlaps(splits):
        names = ", ".join(overlap.ids[:NAMED]) + (", ..." if len(overlap.ids) > NAMED else "")
        count = f"{len(overlap.ids):,} row{'s' if len(overlap.ids) > 1 else ''}"
        lines.append(f"  {count} of {overlap.later} also in {overlap.earlier}: {names}")
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]], right: set[int]) -> list[str]:
    """The columns of a table under one another; those of `right` flush right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _label_heading(task: Task) -> str:
    return "least, quartiles, most" if task.kind == "regression" else "labels"


def _labels(task: Task, split: Split) -> str:
    labels = labels_of(split.table)
    known = labels[~np.isnan(labels)]
    if not len(known):
        return "unlabelled"
    missing = f" ({len(labels) - len(known):,} unlabelled)" if len(known) < len(labels) else ""
    if task.kind == "regression":
        ends = np.quantile(known, [0, 0.25, 0.5, 0.75, 1])
        return " ".join(f"{end:.2f}" for end in ends) + missing
    values, counts = np.unique(known, return_counts=True)
    if len(values) > 10:
        rarest, commonest = counts.min() / len(known), counts.max() / len(known)
        shares = f"{len(values)} classes, {rarest:.1%} to {commonest:.1%} each"
    else:
        pairs = zip(values, counts / len(known), strict=True)
        shares = "  ".join(
            f"{task.source.label_name(value)}: {share:.1%}" for value, share in pairs
        )
    return shares + missing


def _words(table: pa.Table) -> NDArray[np.int64]:
    pairs = zip(table["sentence1"].to_pylist(), table["sentence2"].to_pylist(), strict=True)
    return np.array([sum(len((text or "").split()) for text in pair) for pair in pairs])


def _tokens(table: pa.Table, tokenizer: Any) -> NDArray[np.int64]:
    first = [text or "" for text in table["sentence1"].to_pylist()]
    second = [text or "" for text in table["sentence2"].to_pylist()]
    return encode_texts(first, second, tokenizer).lengths


def _quantiles(lengths: NDArray[np.int64]) -> str:
    """Median, 95th percentile, longest."""
    middle, long, most = np.quantile(lengths, [0.5, 0.95, 1])
    return f"{middle:.0f} / {long:.0f} / {most:.0f}"
