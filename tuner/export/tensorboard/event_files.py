"""TensorBoard's event files, written record by record, and the records that Stockpot needs.

TensorBoard reads a file while it grows. Each call opens, appends and closes, so that nothing is
left in a buffer, no thread is needed, and a full disk is noticed by whoever writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event as Record  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]
from tensorboard.plugins.text.summary_v2 import text_pb  # type: ignore[import-untyped]
from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

from model.common.files import write_atomic
from model.common.run_files import CURVES

BOARD = "board"  # in the run's folder: what is no trial
VERSION = "brain.Event:2"
HISTORY, PICTURES = "history", "pictures"


class EventFile:
    """One file of a run, which is the folder that holds it."""

    def __init__(self, folder: Path, kind: str = HISTORY) -> None:
        # Never an old name: a TensorBoard that is open would go on where it stopped reading.
        self.path = Path(folder) / f"{CURVES}{time.time_ns()}.{kind}"

    def add(self, summary: Any, when: float, step: int = 0) -> None:
        records = [Record(wall_time=when, step=step, summary=summary)]
        if not self.path.exists():
            self._make_places()
            records.insert(0, Record(wall_time=when, file_version=VERSION))
        with open(self.path, "ab") as file:
            _write(file, records)

    def write(self, summaries: Iterable[Any], when: float, step: int = 0) -> None:
        """All that there will ever be in it, so that it is there whole or not at all."""
        self._make_places()
        records = [Record(wall_time=when, step=step, summary=summary) for summary in summaries]
        whole = BytesIO()
        _write(whole, [Record(wall_time=when, file_version=VERSION), *records])
        # Not beside it under a name like its own, which TensorBoard would read.
        write_atomic(self.path, whole.getvalue(), beside=self.path.suffix[1:])

    def _make_places(self) -> None:
        for place in (self.path.parent.parent, self.path.parent):
            place.mkdir(exist_ok=True)  # trials/<id>, and not all that may have gone above it


def _write(file: Any, records: Iterable[Any]) -> None:
    writer = RecordWriter(file)
    for record in records:
        writer.write(record.SerializeToString())


def files_in(folder: Path, kind: str = HISTORY) -> list[Path]:
    return sorted(Path(folder).glob(f"{CURVES}*.{kind}"))


def scalars(values: Mapping[str, float | None]) -> Any:
    """All in one record: an eighth of the time and a third of the bytes of one each."""
    found = [Summary.Value(tag=t, simple_value=v) for t, v in values.items() if v is not None]
    return Summary(value=found)


def picture(tag: str, png: bytes, width: int, height: int) -> Any:
    image = Summary.Image(encoded_image_string=png, width=width, height=height, colorspace=4)
    return Summary(value=[Summary.Value(tag=tag, image=image)])


def text(tag: str, markdown: str) -> Any:
    return text_pb(tag, markdown)
