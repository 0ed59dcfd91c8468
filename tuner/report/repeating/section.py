"""Section 6, how to repeat it: command, settings, fingerprints, versions."""

from __future__ import annotations

from typing import Any

from tuner.report.markup import code, folded, join, note, paragraph, table, tag
from tuner.report.repeating.collect import Repeating
from tuner.report.run import ReportedRun
from tuner.report.section import Section


def repeating_section(run: ReportedRun, repeating: Repeating, prefix: str) -> Section:
    parts: list[Any] = [
        paragraph(
            "The search, as long as the clock let it be:"
            if run.state.planned
            else "The search, as it was asked for:"
        ),
        code(repeating.search),
    ]
    if repeating.best:
        parts += [
            paragraph("The best trial's configuration, trained once by itself:"),
            code(repeating.best),
        ]
        rows = [list(pair) for pair in repeating.settings]
        parts.append(
            folded(
                f"its {len(rows)} settings that are not the defaults",
                table(["setting", "value"], rows, left={"setting", "value"}),
            )
        )
    parts += [
        folded("the search space", code(repeating.space)),
        tag("h3", "Made with"),
        table(
            ["what", "fingerprint"],
            [[name, tag("code", value)] for name, value in repeating.fingerprints],
            left={"what"},
            texts={"fingerprint"},
        ),
        table(
            ["package", "version"],
            [list(pair) for pair in repeating.versions],
            left={"package", "version"},
        ),
        note(
            "The same fingerprints and versions on the same kind of machine give the same "
            "trials; which of them run side by side decides what the sampler knew when it chose."
        ),
    ]
    return Section(f"{prefix}repeat", "How to repeat it", join(parts))
