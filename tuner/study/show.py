"""Which studies there are, and what one is: for a person to read."""

from __future__ import annotations

from model.cli.text import short
from tuner.study.reader import StudyRow, load_study, shipped_studies


def list_text() -> str:
    studies = [load_study(name) for name in shipped_studies()]
    width = max((len(study.name) for study in studies), default=0)
    return "\n".join(f"{study.name:<{width}}  {study.paper}: {study.about}" for study in studies)


def show_text(name: str) -> str:
    study = load_study(name)
    lines = [study.paper, study.about, "", f"tasks     {study.tasks}"]
    lines.append(f"examples  {study.examples:,} a training at scale 1, unless its row says")
    if study.evaluations:
        lines.append(f"scored    {study.evaluations} times a training")
    lines += ["", "rows"]
    for row in study.rows:
        lines += [f"  {row.label}", *(f"    {line}" for line in _row(row))]
    lines += ["", "held", *(f"  {key}: {value}" for key, value in study.held.items())]
    lines += ["", f"compared with '{study.against}'"]
    return "\n".join(lines)


def _row(row: StudyRow) -> list[str]:
    lines = [f"{key}: {value}" for key, value in row.settings.items()]
    if isinstance(row.examples, dict):
        lines.append("examples: " + ", ".join(f"{k} {n:,}" for k, n in row.examples.items()))
    elif row.examples:
        lines.append(f"examples: {row.examples:,}")
    if row.apart is not None:
        lines.append(f"a model for each of {', '.join(row.apart) or 'the tasks'}")
    if row.start:
        lines.append(f"starts from the model of '{row.start}'")
    if how := row.ensemble:
        words = ["greedy" if how.greedy else "the best", f"{how.models} models by {how.by}"]
        words += ["the better counting more"] if how.prior else []
        lines.append(f"{how.rule} of {' '.join(words)}")
    if not row.runs:
        lines.append("quoted by the paper: nothing to train")
    if row.paper:
        lines.append("paper: " + ", ".join(f"{k} {short(v)}" for k, v in row.paper.items()))
    if row.paper_also:
        lines.append("paper also: " + ", ".join(f"{k} {v}" for k, v in row.paper_also.items()))
    return lines
