"""The rows of outcome.py: a file of them, and the table that they make."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.common.files import write_atomic
from model.data.info import aligned

Row = dict[str, Any]
KEY = ("tasks", "budget", "encoder", "dev_rows", "arm", "seed")  # a cell of each is done once
CONDITIONS = KEY[:4]  # only cells that share these are compared
BASELINE = "default"
HELD_OUT = "held_out"
CROSS_FITTED = "cross_fitted"  # only rows of a soup's methods have it
# Of the lead over the best single on the held-out rows: what other rows of the kind would change.
ERROR = "held_out_error"  # only soups' rows have it, and of those not the oldest
BEST_SINGLE = "best single"
HEADINGS = ("seeds", HELD_OUT, f"to {BASELINE}", "worse", "dev", "seconds", "examples", "evaluated")


def read_rows(path: Path) -> list[Row]:
    """What is there; none where there is no file. A task set's columns are null in other rows."""
    if not path.exists():
        return []
    rows = pq.read_table(path).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def add_rows(path: Path, rows: Iterable[Row]) -> None:
    """Rows beside those that are there by now, or in the place of those with the same key."""
    every = {tuple(row[name] for name in KEY): row for row in [*read_rows(path), *rows]}
    names = dict.fromkeys(name for row in every.values() for name in row)
    columns = {name: [row.get(name) for row in every.values()] for name in names}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    write_atomic(path, sink.getvalue().to_pybytes())


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and its standard error; that of one value is not known."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.fmean(values), error


def differences(rows: Iterable[Row], baseline: Iterable[Row], name: str = HELD_OUT) -> list[float]:
    """Held-out score less the baseline's, seed by seed, where both have it."""
    theirs = {row["seed"]: row[name] for row in baseline}
    return [row[name] - theirs[row["seed"]] for row in rows if row["seed"] in theirs]


def table(rows: Sequence[Row]) -> str:
    """A table for each task set and budget, the best arm first; then one of each soup's methods."""

    def conditions(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in CONDITIONS)

    parts = []
    for (tasks, budget, encoder, dev_rows), some in groupby(
        sorted(rows, key=conditions), conditions
    ):
        heading = f"{tasks}, {budget:,} examples, {encoder}, chosen on {dev_rows:,} dev rows a task"
        every = list(some)
        arms = [row for row in every if CROSS_FITTED not in row]
        parts.append("\n".join([heading, *(f"  {line}" for line in arm_lines(arms))]))
        for name, methods in by_search(every).items():
            heading = f"{name}, by the methods of its soup"
            parts.append("\n".join([heading, *(f"  {line}" for line in method_lines(methods))]))
    return "\n\n".join(parts)


def by_search(rows: Iterable[Row]) -> dict[str, dict[str, list[Row]]]:
    """Rows of methods (`SEARCH:METHOD`), by the search and then by the method."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if CROSS_FITTED in row:
            search, _, method = row["arm"].partition(":")
            found.setdefault(search, {}).setdefault(method, []).append(row)
    return found


def method_lines(methods: Mapping[str, Sequence[Row]]) -> list[str]:
    """The best by the cross-fitted score first, each against the best single of the same seed."""
    single = methods.get(BEST_SINGLE, [])
    lines = [
        ["method", "seeds", "cross-fit", "to single", HELD_OUT, "to single", "worse"]
        + ["by > error", "models"]
    ]
    for name, some in sorted(methods.items(), key=lambda item: -mean(item[1], CROSS_FITTED)):
        fitted, held = (differences(some, single, of) for of in (CROSS_FITTED, HELD_OUT))
        compared = name != BEST_SINGLE and bool(held)
        lines.append(
            [
                name,
                str(len(some)),
                with_error([row[CROSS_FITTED] for row in some]),
                with_error(fitted, signed=True) if compared else "",
                with_error([row[HELD_OUT] for row in some]),
                with_error(held, signed=True) if compared else "",
                f"{sum(value < 0 for value in held)} of {len(held)}" if compared else "",
                surely_worse(some, single) if compared else "",
                f"{mean(some, 'models'):.1f}",
            ]
        )
    return aligned(lines, right=set(range(1, len(lines[0]))))


def surely_worse(rows: Sequence[Row], single: Sequence[Row]) -> str:
    """In how many of its seeds by more than the standard error, where that is known."""
    theirs = {row["seed"]: row[HELD_OUT] for row in single}
    known = [row for row in rows if ERROR in row and row["seed"] in theirs]
    far = sum(theirs[row["seed"]] - row[HELD_OUT] > row[ERROR] for row in known)
    return f"{far} of {len(known)}" if known else ""


def arm_lines(rows: Sequence[Row]) -> list[str]:
    by_arm: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        by_arm.setdefault(row["arm"], []).append(row)
    of_tasks = [name for name in rows[0] if name.startswith(f"{HELD_OUT}.")]
    names = [name.removeprefix(f"{HELD_OUT}.") for name in of_tasks]
    before, after = HEADINGS[:2], HEADINGS[2:]
    lines = [["arm", *before, *names, *after]]
    ranked = sorted(by_arm.items(), key=lambda item: -mean(item[1], HELD_OUT))
    for arm, some in ranked:
        apart = differences(some, by_arm.get(BASELINE, []))
        worse = f"{sum(value < 0 for value in apart)} of {len(apart)}"
        lines.append(
            [
                arm,
                str(len(some)),
                with_error([row[HELD_OUT] for row in some]),
                *(f"{mean(some, name):.3f}" for name in of_tasks),
                with_error(apart, signed=True) if arm != BASELINE and apart else "",
                worse if arm != BASELINE and apart else "",
                f"{mean(some, 'dev'):.3f}",
                *(f"{mean(some, name):,.0f}" for name in HEADINGS[-3:]),
            ]
        )
    return aligned(lines, right=set(range(1, len(lines[0]))))


def mean(rows: Iterable[Row], name: str) -> float:
    return statistics.fmean(row[name] for row in rows)


def with_error(values: Sequence[float], *, signed: bool = False) -> str:
    middle, error = mean_and_error(values)
    shown = f"{middle:+.4f}" if signed else f"{middle:.4f}"
    return shown if math.isnan(error) else f"{shown} ({error:.4f})"
