"""The card beside the file: what it was made from and with, and what became of it."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model import __version__
from model.data.paraphrase.jobs import JobPlan, ParaphraseJob
from model.data.paraphrase.make import CollectedAnswers
from model.data.paraphrase.select import Selection

NAMED = 20  # rows left out that are named


@dataclass(frozen=True)
class Prices:
    """For a million tokens, in whatever currency."""

    read: float = 0.0
    written: float = 0.0

    def __bool__(self) -> bool:
        return self.read > 0 or self.written > 0

    def cost(self, tokens: tuple[int, int]) -> float:
        return (self.read * tokens[0] + self.written * tokens[1]) / 1e6


def left_out(
    jobs: Sequence[ParaphraseJob], collected: CollectedAnswers
) -> list[tuple[ParaphraseJob, str]]:
    """Requests without an answer, and why."""
    reasons = (
        (job, collected.answers[job.key].reason) for job in jobs if job.key in collected.answers
    )
    return [(job, reason) for job, reason in reasons if reason]


def card(
    name: str,
    settings: Mapping[str, Any],
    plan: JobPlan,
    collected: CollectedAnswers,
    selection: Selection,
    prices: Prices,
) -> str:
    """Markdown. No sentence of the data is in it."""
    missing = left_out(plan.jobs, collected)
    rows = len({job.row.number for job in plan.jobs})
    lines = [
        f"# {name}",
        "",
        f"Paraphrases of the training rows of `{settings['task']}`, by a language model. Each row "
        f"has the label of the row that it says anew. Made with Stockpot {__version__}.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {key} | {_cell(value)} |" for key, value in settings.items()),
        f"| began | {collected.header.get('began', '')} |",
        "",
        "| what | rows |",
        "|---|---|",
        f"| training rows paraphrased | {rows:,} |",
        *_counts("left alone", plan.left_alone),
        f"| requests | {len(plan.jobs):,} |",
        f"| requests left out | {len(missing):,} |",
        f"| paraphrases made | {selection.made:,} |",
        f"| **kept** | **{len(selection.kept):,}** |",
        *_counts("removed", selection.removed),
        f"| tokens into the model | {collected.tokens[0]:,} |",
        f"| tokens out of it | {collected.tokens[1]:,} |",
    ]
    if prices:
        lines.append(f"| cost | {prices.cost(collected.tokens):,.2f} |")
    if missing:
        lines += ["", "## Left out", "", *_named(missing)]
    lines += ["", "## Prompt", "", "````", collected.header["prompt"], "````", ""]
    return "\n".join(lines)


def _counts(what: str, counts: Counter[str]) -> list[str]:
    return [f"| {what}: {reason} | {count:,} |" for reason, count in sorted(counts.items())]


def _named(missing: Sequence[tuple[ParaphraseJob, str]]) -> list[str]:
    lines = [
        f"- row {job.row.number + 1} ({_cell(job.row.id)}): {_cell(why)}" for job, why in missing
    ]
    more = [f"- and {len(lines) - NAMED:,} more"] if len(lines) > NAMED else []
    return [*lines[:NAMED], *more]


def _cell(value: Any) -> str:
    text = ", ".join(f"{key}={entry}" for key, entry in value.items()) if _is_map(value) else value
    return textwrap.shorten(str(text), 300).replace("|", "\\|")


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)
