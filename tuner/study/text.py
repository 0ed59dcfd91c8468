"""A study's table for a terminal: the paper's figures, ours beside them, and what is noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from model.cli.text import clock, short
from tuner.scoring.tables import plus, table
from tuner.study.collect import Candidate
from tuner.study.compare import RowComparison, ScoreCell, Table, scales
from tuner.study.reader import Study


def study_text(
    study: Study, result: Table, found: Sequence[Candidate], notes: Sequence[str]
) -> str:
    lines = [study.paper, study.about, ""]
    lines += _scores(study, result)
    lines += ["", *_trained(study, found)]
    if result.comparisons:
        lines += ["", f"against '{study.against}':", *_differences(result)]
    told = [_length(study, found)]
    told.append("best per task: the highest at any evaluation, which need not be the same one")
    counts = [cell.seeds for cell in result.cells.values()] or [0]
    seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    rows = ", ".join(f"{name} {count:,}" for name, count in result.rows.items())
    told.append(f"{f'{seeds} seeds' if max(counts) > 1 else 'one seed'}; dev rows: {rows}")
    if max(counts) < 2:
        told.append("with one seed the noise between seeds is in no interval; --seeds 3 has it")
    if any(each.short for each in result.comparisons):
        told.append("its noise is of the paper's dev rows; of its seeds short runs tell nothing")
    if any(row.ensemble for row in study.rows):
        told.append("ensembles are chosen on the dev rows that score them, which flatters")
    return "\n".join([*lines, "", *(f"- {line}" for line in (*told, *notes))])


def _length(study: Study, found: Sequence[Candidate]) -> str:
    lengths = {
        (of, study.row(one.row).length(task) or study.examples)
        for one in found
        for task, of in one.lengths.items()
    }
    if len(lengths) == 1:
        ((ours, full),) = lengths
        return f"{ours:,} examples a training; {full:,} at scale 1"
    return f"rows as long as the paper's, times {min(scales(study, found), default=1):.3g}"


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
    """When the best came, how long it took, and other scores; means over seeds. The paper's beside
    it, as it is written there."""
    header = ["row", "best at", "of", "time", "best per task", "also", "paper also"]
    body = []
    for row in study.rows:
        own = [one for one in found if one.row == row.label]
        if not own:
            continue
        if row.ensemble:
            used = {task: len(of) for one in own[:1] for task, of in one.weights.items()}
            told = ", ".join(f"{task} {count}" for task, count in used.items())
            body.append([row.label, *"----", f"models: {told}", _named(row.paper_also)])
            continue
        entries = [entry for one in own for entry in one.entries.values()]
        at = sum(int(entry["examples"]) for entry in entries) / len(entries)
        seconds = [float(entry.get("seconds") or 0) for entry in entries]
        of = dict.fromkeys(length for one in own for length in one.lengths.values())
        lengths = " / ".join(f"{length:,}" for length in of)
        cells = [row.label, f"{at:,.0f}", lengths, clock(sum(seconds) / len(seconds))]
        body.append([*cells, _best(own), _train(own), _named(row.paper_also)])
    # A column that nothing is in is left away.
    shown = [n for n in range(len(header)) if any(line[n] not in ("", "-") for line in body)]
    cut = [[line[n] for n in shown] for line in body]
    return table([header[n] for n in shown], cut, set(header) - {"best at", "of", "time"}, "")


def _named(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _best(own: Sequence[Candidate]) -> str:
    found: dict[str, list[float]] = {}
    for one in own:
        for task, value in one.best.items():
            found.setdefault(task, []).append(value)
    return _named({task: short(sum(of) / len(of)) for task, of in found.items()})


def _train(own: Sequence[Candidate]) -> str:
    found: dict[str, list[float]] = {}
    for one in own:
        for task, entry in one.entries.items():
            of = entry["tasks"].get(task, {})
            if "train_value" in of:
                found.setdefault(f"{task} train", []).append(float(of["train_value"]))
            for metric, score in of.get("also", {}).items():
                found.setdefault(f"{task} {metric}", []).append(float(score["value"]))
    return _named({name: short(sum(v) / len(v)) for name, v in found.items()})


def _differences(result: Table) -> list[str]:
    body = [
        [
            f"{each.row}, {each.goal}",
            f"{plus(each.ours)} ± {short(each.half)}",
            "-" if each.paper is None else plus(each.paper),
            _noise(each),
            each.verdict,
        ]
        for each in result.comparisons
    ]
    header = ["row, score", "ours", "paper", "its noise", "so"]
    return table(header, body, {"row, score", "so"}, "")


def _noise(of: RowComparison) -> str:
    if of.noise is None:
        return "-"
    return f"inside ± {short(of.noise)}" if of.paper_is_noise else f"± {short(of.noise)}"
