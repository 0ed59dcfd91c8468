"""A run to export, that of version 0.2, as its search left it or as it was in the middle."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from model.evaluation.model_folder import HEADS, SPEC
from tuner.export.hub.folder import CONFIG, TOKENIZER
from tuner.export.trackers.destination import Destination
from tuner.export.trackers.follow import Exporter
from tuner.export.trackers.records import Snapshot, snapshot
from tuner.export.trackers.source import RunSource
from tuner.runs.folder import LEDGER
from tuner.runs.lines import FIRST, encode
from tuner.runs.open import open_run
from tuner.soup.record import SOUP

FIXTURE = Path(__file__).parents[3] / "fixtures" / "run-0.2.tar.gz"
SECRET = "hunter2-hunter2"


def recorded(place: Path) -> Path:
    """Three trials, all finished, three evaluations each; with a report."""
    place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(place, filter="data")
    run = place / "v0-2"
    (run / "report.html").write_text(f"<p>a page with a {SECRET}</p>")
    return run


def lines_of(run: Path) -> list[bytes]:
    return (run / LEDGER).read_bytes().splitlines(keepends=True)


def until(run: Path, count: int, lines: list[bytes] | None = None) -> list[bytes]:
    """The same run when its ledger had so many lines; returns all."""
    whole = lines or lines_of(run)
    (run / LEDGER).write_bytes(b"".join(whole[:count]))
    return whole


def events_of(run: Path) -> list[dict[str, Any]]:
    own = ("line", "before", "crc")
    found = [json.loads(line) for line in lines_of(run)]
    return [{key: value for key, value in event.items() if key not in own} for event in found]


def write_events(run: Path, events: list[dict[str, Any]]) -> None:
    content, before = b"", FIRST
    for number, event in enumerate(events, 1):
        line = encode(event, number, before)
        content, before = content + line, line[-11:-3].decode()
    (run / LEDGER).write_bytes(content)


def without_last_trial(run: Path) -> str:
    """The same run, cut back as with a `--force`; the key of the trial that went."""
    key = snapshot_of(run).trials["t0002"].key
    write_events(run, [event for event in events_of(run) if event.get("trial") != "t0002"])
    return key


def add_soup(run: Path) -> None:
    """As much of a model folder as an export reads."""
    (run / SOUP).mkdir()
    for name in (CONFIG, TOKENIZER, SPEC):
        (run / SOUP / name).write_text(json.dumps({"_name_or_path": str(run)}))
    for name in ("model.safetensors", HEADS):
        save_file({"weight": torch.ones(3)}, run / SOUP / name)


def snapshot_of(run: Path) -> Snapshot:
    return snapshot(open_run(run))


def export(run: Path, destination: Destination) -> Snapshot:
    """As a new process would."""
    return Exporter(RunSource(run), lambda: destination, fail).once()


def fail(line: str) -> None:
    raise AssertionError(line)
