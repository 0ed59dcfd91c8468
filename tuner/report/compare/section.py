"""Several runs side by side, in words and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.report.compare.collect import RunComparison, collect_comparison
from tuner.report.compare.draw import draw_comparison
from tuner.report.markup import Cell, Html, join, note, table, tag
from tuner.report.numbers import Estimate, count, duration
from tuner.report.pieces import pictures
from tuner.report.run import ReportedRun
from tuner.report.section import Section, apart, scored
from tuner.runs.state import Outcome


def comparison_section(runs: Sequence[ReportedRun]) -> Section:
    comparison = collect_comparison(runs)
    parts = [_sides(comparison), _pairs(comparison), pictures(draw_comparison(comparison))]
    if not comparison.same_tasks:
        parts.append(note("The runs have different tasks: their overall scores do not compare."))
    return Section("compare", "Side by side", join(parts))


SCORED: tuple[Outcome, ...] = ("finished", "promoted", "waiting", "pruned")


def _sides(comparison: RunComparison) -> Html:
    tasks = list(dict.fromkeys(name for side in comparison.sides for name in side.run.tasks.names))
    rows: list[list[Any]] = []
    for side in comparison.sides:
        best, summary = side.best, side.run.summary
        fitted = summary.cross_fit
        held = Estimate(fitted.cross_fitted, fitted.low, fitted.high) if fitted else None
        rows.append(
            [
                tag("b", side.name),
                best.name if best else "none has finished",
                Cell(scored(best.overall), best.overall.value) if best else "-",
                Cell(scored(held), held.value) if held else "-",
                *(scored(best.tasks.get(name)) if best else "-" for name in tasks),
                sum(summary.counts[end] for end in SCORED),
                count(summary.examples),
                duration(summary.seconds),
            ]
        )
    header = ["run", "best", "overall", "cross-fitted", *tasks, "trials", "examples", "time"]
    left = {"run", "best", "overall", "cross-fitted", *tasks}
    return table(header, rows, left=left)


def _pairs(comparison: RunComparison) -> Html:
    tasks = list(dict.fromkeys(name for side in comparison.sides for name in side.run.tasks.names))
    rows: list[list[Any]] = []
    for pair in comparison.pairs:
        found = pair.differences
        rows.append(
            [
                f"{pair.first} against {pair.second}",
                apart(found.overall) if found else tag("i", pair.why_not),
                *(apart(found.tasks.get(name)) if found else "-" for name in tasks),
            ]
        )
    left = {"", "overall", *tasks}
    return join(
        [
            tag("h3", "Differences on the same examples"),
            table(["", "overall", *tasks], rows, left=left, texts={"overall"}),
            note(
                "The best trial of the first run minus that of the second, resampled together over "
                "the dev rows that both answered, with 95 % intervals. A tie means that zero is "
                "inside."
            ),
        ]
    )
