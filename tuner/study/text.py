"""A study's table for a terminal: the paper's figures, ours beside them, and what is noise."""

from __future__ import annotations

from collections.abc import Sequence

from model.cli.text import clock, short
from tuner.scoring.tables import plus, table
from tuner.study.collect import Candidate
from tuner.study.compare import ScoreCell, Table
from tuner.study.reader import Study


def study_text(
    study: Study, result: Table, found: Sequence[Candidate], notes: Sequence[str], examples: int
) -> str:
    lines = [study.paper, study.about, ""]
    lines += _scores(study, result)
    lines += ["", *_trained(study, found)]
    if result.comparisons:
        lines += ["", f"against '{study.against}':", *_differences(result)]
    told = [f"{examples:,} examples a training; {study.examples:,} at scale 1"]
    seeds = f"{result.seeds} seeds" if result.seeds > 1 else "one seed"
    rows = ", ".join(f"{name} {count:,}" for name, count in result.rows.items())
    told.append(f"{seeds}; dev rows: {rows}")
    if result.seeds < 2:
        told.append("with one seed the noise between seeds is in no interval; --seeds 3 has it")
    if any(row.ensemble for row in study.rows):
        told.append("ensembles are chosen on the dev rows that score them, which flatters")
    return "\n".join([*lines, "", *(f"- {line}" for line in (*told, *notes))])


def _scores(study: Study, result: Table) -> list[str]:
    header = ["row"]
    for goal in result.goals:
        header += [f"{goal} paper", f"{goal} ours"]
    body = []
    for row in study.rows:
        cells = [row.label]
        for goal in result.goals:
            cells += [short(row.paper.get(goal)), _cell(result.cells.get((row.label, goal)))]
        body.append(cells)
    return table(header, body, {"row"}, "")


def _cell(cell: ScoreCell | None) -> str:
    return "-" if cell is None else f"{short(cell.value)} ± {short(cell.half)}"


def _trained(study: Study, found: Sequence[Candidate]) -> list[str]:
    """When the best came, how long it took, and scores on training rows; means over seeds."""
    body = []
    for row in study.rows:
        own = [one for one in found if one.row == row.label]
        if not own:
            continue
        if row.ensemble:
            used = {task: count for one in own[:1] for task, count in one.used.items()}
            told = ", ".join(f"{task} {count}" for task, count in used.items())
            body.append([row.label, "-", "-", f"models: {told}"])
            continue
        entries = [entry for one in own for entry in one.entries.values()]
        at = sum(int(entry["examples"]) for entry in entries) / len(entries)
        seconds = [float(entry.get("seconds") or 0) for entry in entries]
        body.append([row.label, f"{at:,.0f}", clock(sum(seconds) / len(seconds)), _train(own)])
    return table(["row", "best at", "time", "also"], body, {"row", "also"}, "") if body else []


def _train(own: Sequence[Candidate]) -> str:
    found: dict[str, list[float]] = {}
    for one in own:
        for task, entry in one.entries.items():
            of = entry["tasks"].get(task, {})
            if "train_value" in of:
                found.setdefault(f"{task} train", []).append(float(of["train_value"]))
            for metric, score in of.get("also", {}).items():
                found.setdefault(f"{task} {metric}", []).append(float(score["value"]))
    return ", ".join(f"{name} {short(sum(v) / len(v))}" for name, v in found.items())


def _differences(result: Table) -> list[str]:
    body = [
        [
            *(each.row, each.goal),
            "-" if each.paper is None else plus(each.paper),
            f"± {short(each.noise)}",
            f"{plus(each.ours)} ± {short(each.half)}",
            each.verdict,
        ]
        for each in result.comparisons
    ]
    header = ["row", "score", "paper", "noise", "ours", "so"]
    return table(header, body, {"row", "score", "so"}, "")
