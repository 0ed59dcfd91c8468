"""A file of texts answered: Parquet with the sentences beside the answers, for a student."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from model.common.errors import InputError
from model.data.sources import read_sentences
from model.evaluation.predictions import join_tables, predictions_table, write_predictions
from tuner.predict.predictor import AnswerModels, Predictor

FILE = "texts.parquet"


def read_texts(
    path: Path, pairs: Mapping[str, bool], task: str | None = None
) -> tuple[list[tuple[str, ...]], list[str]]:
    """One or two texts a line, and who of the tasks takes them: those of pairs, or the others."""
    lines = [tuple(line.split("\t")) for line in read_sentences(path)]
    widths = {len(line) for line in lines}
    pair = widths == {2}
    names = [name for name, takes_pair in pairs.items() if takes_pair == pair]
    faults = []
    if not widths <= {1, 2} or len(widths) != 1:
        faults.append("must have one text in each line, or two with a tab between them")
    elif task is not None and task not in names:
        takes = "pairs; put a tab between the two" if not pair else "one text; remove the tabs"
        faults.append(f"'{task}' takes {takes}")
    elif not names:
        faults.append(f"no task here takes {'pairs' if pair else 'single texts'}")
    if faults:
        raise InputError(str(path), faults)
    return lines, names if task is None else [task]


def answer_file(
    predictor: Predictor,
    path: Path,
    task: str | None,
    out: Path,
    models: AnswerModels | None = None,
) -> Path:
    """Write the answers of all tasks that the texts fit, or of one; where they are."""
    pairs = {name: spec.pair for name, spec in predictor.tasks.items()}
    lines, names = read_texts(path, pairs, task)
    pair = pairs[names[0]]
    texts: Any = lines if pair else [line[0] for line in lines]
    parts, count = [], len(lines)
    for name, predictions in predictor.answer_texts(dict.fromkeys(names, texts), models).items():
        ids = [str(number) for number in range(1, count + 1)]
        table = predictions_table(name, ids, pa.nulls(count, pa.float64()), predictions)
        table = table.append_column("sentence1", pa.array([line[0] for line in lines]))
        seconds = [line[1] if pair else None for line in lines]
        parts.append(table.append_column("sentence2", pa.array(seconds, pa.string())))
    out.mkdir(parents=True, exist_ok=True)
    write_predictions(out / FILE, join_tables(parts))
    return out / FILE
