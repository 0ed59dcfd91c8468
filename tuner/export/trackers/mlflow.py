"""To MLflow: a run for the search, with a child run for each trial."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from model.common.errors import InputError
from model.common.files import sha256_of
from model.common.secrets import redact
from tuner.export.trackers.destination import Destination, digest_of, needed
from tuner.export.trackers.records import Outcome, Record, Snapshot

T = TypeVar("T")
KEY, OF, STATE = "stockpot.key", "stockpot.run", "stockpot.state"
FILES, MODEL = "stockpot.files", "stockpot.model"
PARENT = "mlflow.parentRunId"
STATUS: dict[Outcome, str] = {
    "running": "RUNNING",
    "finished": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}
# What MLflow takes at once, and of one text.
METRICS, PARAMS, PAGE = 1000, 100, 1000
LONGEST = 4000


class Mlflow(Destination):
    takes_files = True

    def __init__(self, uri: str | None, project: str) -> None:
        needed("mlflow", "mlflow")
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # two lines a run
        from mlflow import MlflowClient

        self.client = MlflowClient(tracking_uri=uri)
        self.project = project
        self.experiment = self._experiment()
        self.runs: dict[str, Any] | None = None  # as MLflow has them, by our keys

    def place(self) -> str:
        from mlflow.tracking import get_tracking_uri

        uri = getattr(self.client, "tracking_uri", None) or get_tracking_uri()
        return f"experiment '{self.project}' at {redact(str(uri))}"

    def write(self, now: Snapshot, changed: Iterable[Record]) -> None:
        if self.runs is None:
            self.runs = self._found(now.search.key)
        self._remove_others({now.search.key, *(each.key for each in now.trials.values())})
        before = self.runs.get(now.search.key)
        parent = self._write(now.search, {KEY: now.search.key, OF: now.search.key})
        # Made anew, the search's run has another id, and all trials belong to that.
        anew = before is not None and before.info.run_id != parent
        for trial in now.trials.values() if anew else changed:
            self._write(trial, {KEY: trial.key, OF: now.search.key, PARENT: parent})
        self._write_files(now.search.key, now.files)
        self._write_model(now.search.key, now.model)

    # --- what is there ------------------------------------------------------------------------

    def _experiment(self) -> str:
        found = self.client.get_experiment_by_name(self.project)
        if found is None:
            return str(self.client.create_experiment(self.project))
        if found.lifecycle_stage != "active":
            fault = f"MLflow's experiment '{self.project}' is deleted; restore it there, or name"
            raise InputError("--project", [f"{fault} another"])
        return str(found.experiment_id)

    def _found(self, search: str) -> dict[str, Any]:
        """Of two with one key, which two exports at once would leave, the earlier stays."""
        found: dict[str, Any] = {}
        for run in sorted(self._pages(search), key=lambda run: int(run.info.start_time)):
            key = run.data.tags.get(KEY, "")
            if key in found:
                self.client.delete_run(run.info.run_id)
            else:
                found[key] = run
        return found

    def _pages(self, search: str) -> Iterator[Any]:
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment], f"tags.`{OF}` = '{search}'", max_results=PAGE, page_token=token
            )
            yield from page
            if not (token := page.token):
                return

    def _remove_others(self, known: set[str]) -> None:
        """Of trials that the ledger does not have any more, as after a `--force`."""
        assert self.runs is not None
        for key in self.runs.keys() - known:
            self.client.delete_run(self.runs.pop(key).info.run_id)

    # --- one run --------------------------------------------------------------------------------

    def _write(self, record: Record, tags: dict[str, str]) -> str:
        """Its id. A run whose `STATE` fits is left alone; the tag is written last."""
        assert self.runs is not None
        digest = digest_of([asdict(record), tags])
        run = self.runs.get(record.key)
        if run is not None and run.data.tags.get(STATE) == digest:
            return str(run.info.run_id)
        there = self._points(run) if run is not None else set()
        if run is not None and contradicts(record, run.data.params, there):
            self.client.delete_run(run.info.run_id)
            run, there = None, set()
        if run is None:
            began = milliseconds(record.began)
            run = self.client.create_run(self.experiment, began, tags, record.name)
        self._fill(run, record, tags, there)
        self.client.set_tag(run.info.run_id, STATE, digest)
        self.runs[record.key] = self.client.get_run(run.info.run_id)
        return str(run.info.run_id)

    def _fill(self, run: Any, record: Record, tags: dict[str, str], there: set[Any]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        name, known = run.info.run_id, run.data
        params = {k: shortened(v) for k, v in record.params.items() if k not in known.params}
        wanted = {**{k: shortened(v) for k, v in record.tags.items()}, **tags}
        new = [RunTag(k, v) for k, v in wanted.items() if known.tags.get(k) != v]
        metrics = [
            Metric(key, value, milliseconds(time), step)
            for key, value, time, step in points_of(record)
            if (key, step, value) not in there
        ]
        for some in chunks([Param(k, v) for k, v in params.items()], PARAMS):
            self.client.log_batch(name, params=some)
        for some in chunks(metrics, METRICS):
            self.client.log_batch(name, metrics=some)
        for some in chunks(new, PARAMS):
            self.client.log_batch(name, tags=some)
        status = STATUS[record.outcome]
        if record.ended is not None and record.outcome != "running":
            self.client.set_terminated(name, status, milliseconds(record.ended))
        self.client.update_run(name, status, record.name)

    def _points(self, run: Any) -> set[tuple[str, int, float]]:
        return {
            (each.key, int(each.step), float(each.value))
            for name in run.data.metrics
            for each in self.client.get_metric_history(run.info.run_id, name)
        }

    # --- files ----------------------------------------------------------------------------------

    def _write_files(self, key: str, files: dict[str, bytes]) -> None:
        assert self.runs is not None
        run = self.runs[key]
        known = json.loads(run.data.tags.get(FILES, "{}"))
        digests = {
            name: hashlib.sha256(content).hexdigest()[:16] for name, content in files.items()
        }
        if digests == known:
            return
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                if known.get(name) != digests[name]:
                    path = Path(folder) / name
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(content)
                    inside = None if path.parent == Path(folder) else path.parent.name
                    self.client.log_artifact(run.info.run_id, str(path), inside)
        self._note(key, FILES, json.dumps(digests))

    def _write_model(self, key: str, files: dict[str, Path]) -> None:
        """By a tag of its own: its files are large, and a text of MLflow's is not."""
        assert self.runs is not None
        if not files:
            return
        digest = digest_of({name: sha256_of(path) for name, path in files.items()})
        run = self.runs[key]
        if run.data.tags.get(MODEL) == digest:
            return
        for name, path in files.items():
            self.client.log_artifact(run.info.run_id, str(path), str(Path(name).parent))
        self._note(key, MODEL, digest)

    def _note(self, key: str, tag: str, value: str) -> None:
        """What is there, once it is."""
        assert self.runs is not None
        name = self.runs[key].info.run_id
        self.client.set_tag(name, tag, value)
        self.runs[key] = self.client.get_run(name)


def points_of(record: Record) -> Iterator[tuple[str, float, float, int]]:
    for point in record.points:
        for name, value in point.values.items():
            yield name, value, point.time, point.step
    last = record.points[-1].step if record.points else 0
    for name, value in record.scores.items():
        yield name, value, record.scored, last


def contradicts(record: Record, params: dict[str, str], there: set[tuple[str, int, float]]) -> bool:
    """Whether MLflow has what the ledger says otherwise: it lets nobody change a parameter or a
    point. Scores may be made anew, and the later counts."""
    if any(params.get(k, shortened(v)) != shortened(v) for k, v in record.params.items()):
        return True
    wanted = {(name, step, value) for name, value, _, step in points_of(record)}
    return any(point not in wanted for point in there if point[0] not in record.scores)


def milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def shortened(value: object) -> str:
    return str(value)[:LONGEST]


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
