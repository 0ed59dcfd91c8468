"""Prediction files as a course or a leaderboard wants them, where a task file asks for one.

    predictions: {file: "mood-{split}-output.csv", column: Predicted_Mood}

gives a header `id`, space, tab, space, the column's name, space; and a row per example of its id,
a comma between spaces, the answer, and a space. A class is a whole number, a binary answer 0.0 or
1.0, a regression its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from model.common.typed import show
from model.tasks.yaml_reader import YamlSection

KEY = "predictions"


@dataclass(frozen=True)
class PredictionFile:
    file: str  # its name, with {split} in it
    column: str

    def name(self, split: str) -> str:
        return self.file.replace("{split}", split)

    def text(self, ids: Iterable[str], values: Iterable[float], kind: str) -> str:
        rows = (f"{i} , {answer(v, kind)} \n" for i, v in zip(ids, values, strict=True))
        return f"id \t {self.column} \n" + "".join(rows)


def answer(value: float, kind: str) -> str:
    if kind == "classes":
        return str(int(value))
    return str(float(value)) if kind == "binary" else str(np.float32(value))


def read_prediction_file(part: YamlSection) -> PredictionFile | None:
    """A task's wish for a file, if it has one; faults are noted."""
    if KEY not in part.data:
        return None
    inner = part.part(KEY, '{file: "NAME-{split}.csv", column: TITLE}')
    if inner is None:
        return None
    inner.refuse_unknown({"file", "column"})
    file, column = inner.word("file"), inner.word("column")
    if file is not None and ("{split}" not in file or "/" in file or "\\" in file):
        rule = "a file's name with {split} in it, and no folder"
        inner.fault(f"'file' must be {rule}, but is {show(file)}", "file")
    if column is not None and any(sign in column for sign in "\t\r\n"):
        inner.fault("'column' must be one line without tabs", "column")
    return PredictionFile(file, column) if file and column else None
