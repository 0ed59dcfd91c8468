"""What a row's answers look like: pictures of them, and a list of its worst mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from tuner.export.tensorboard.pictures import maps, pictures_of, png
from tuner.report.mistakes.collect import Mistake, Mistakes, Subject, mistakes_of
from tuner.report.mistakes.vectors import Cloud, collect_clouds
from tuner.runs.open import FinishedRun
from tuner.soup.record import slug

PICTURES, MISTAKES = "pictures", "mistakes.csv"


def write_pictures(
    folder: Path, label: str, run: FinishedRun, models: Mapping[str, Path]
) -> list[str]:
    """Of the answers in `dev.parquet` of the folder; what could not be drawn is told.

    An ensemble has no embeddings of its own: its answers are shown at those of the first of
    `models` of each task.
    """
    answers, place = folder / "dev.parquet", folder / PICTURES
    place.mkdir()
    drawn = {name: of.png for name, of in pictures_of(answers, run.tasks, label).items()}
    found = mistakes_of(Subject(label, answers, None), run)
    notes = [*found.notes]
    for result in found.results:
        subject = Subject(label, answers, models[result.task.name])
        clouds, fault = collect_clouds(Mistakes(subject, [result]), None)
        drawn |= {f"embeddings/{of.result.task.name}": _map(of, label) for of in clouds}
        notes += [fault] if fault else []
    for name, data in drawn.items():
        (place / f"{slug(name)}.png").write_bytes(data)
    csv.write_csv(mistakes_table(found.worst), folder / MISTAKES)
    return list(dict.fromkeys(notes))


def _map(cloud: Cloud, label: str) -> bytes:
    points = {"PCA": cloud.pca, "t-SNE": cloud.tsne}
    values = cloud.result.answers.values[cloud.rows]
    return png(maps(cloud.result.task, values, points, label)).png


def mistakes_table(worst: list[Mistake]) -> pa.Table:
    """Each task's, the worst first. Sentences are empty where the data are gone."""
    columns: dict[str, list[str]] = {
        "task": [each.task for each in worst],
        "id": [each.id for each in worst],
        "sentence1": [each.sentences[0] if each.sentences else "" for each in worst],
        "sentence2": [each.sentences[1] if len(each.sentences) > 1 else "" for each in worst],
        "true": [each.true for each in worst],
        "predicted": [each.said for each in worst],
        "how": [each.how for each in worst],
    }
    return pa.table(columns, pa.schema([(name, pa.string()) for name in columns]))
