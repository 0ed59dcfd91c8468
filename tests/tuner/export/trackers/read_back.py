"""What each tool has of an export, read back by the tool's own client."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tuner.engine.study import quiet

MLFLOW = "needs pip install '.[mlflow]'"
WANDB = "needs pip install '.[wandb]'"
AIM = "needs pip install '.[aim]'"
TRACKIO = "needs pip install trackio, which wants an older Pillow"


# --- tables ---------------------------------------------------------------------------------------


def tables(folder: Path, kind: str) -> dict[str, list[dict[str, Any]]]:
    """By pyarrow."""
    import pyarrow.csv
    import pyarrow.parquet

    read = pyarrow.csv.read_csv if kind == "csv" else pyarrow.parquet.read_table
    return {path.name: read(path).to_pylist() for path in sorted(folder.glob(f"*.{kind}"))}


# --- MLflow ---------------------------------------------------------------------------------------


def mlflow_runs(uri: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name("stockpot")
    return [] if found is None else list(client.search_runs([found.experiment_id]))


def mlflow(uri: str) -> dict[str, Any]:
    """All that MLflow shows, by our keys; no key twice."""
    from mlflow import MlflowClient

    from tuner.export.trackers.mlflow import KEY, PARENT, STATE

    client, found = MlflowClient(tracking_uri=uri), dict[str, Any]()
    runs = mlflow_runs(uri)
    names = {run.info.run_id: run.data.tags[KEY] for run in runs}
    for run in runs:
        tags = {k: v for k, v in run.data.tags.items() if not k.startswith("mlflow.")}
        tags.pop(STATE)
        points = [
            (each.key, each.step, each.value, each.timestamp)
            for name in run.data.metrics
            for each in client.get_metric_history(run.info.run_id, name)
        ]
        assert len(points) == len(set(points))
        info = (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time)
        parent = names.get(run.data.tags.get(PARENT, ""))
        files = dict(_mlflow_files(client, run.info.run_id))
        key = run.data.tags[KEY]
        assert key not in found
        found[key] = (info, parent, run.data.params, tags, sorted(points), files)
    return found


def _mlflow_files(client: Any, run: str, inside: str | None = None) -> Iterator[tuple[str, bytes]]:
    for each in client.list_artifacts(run, inside):
        if each.is_dir:
            yield from _mlflow_files(client, run, each.path)
            continue
        with TemporaryDirectory() as place:
            yield each.path, Path(client.download_artifacts(run, each.path, place)).read_bytes()


# --- W&B ------------------------------------------------------------------------------------------


def wandb(folder: Path) -> dict[str, dict[str, Any]]:
    """By id what `wandb sync` would send of each run: its records, and its files."""
    found: dict[str, dict[str, Any]] = {}
    for place in sorted((folder / "wandb").glob("offline-run-*")):
        (file,) = place.glob("*.wandb")
        one = _wandb_records(file)
        assert one["id"] not in found
        files = place / "files"
        sent = [str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()]
        found[one["id"]] = {**one, "files": sorted(sent)}
    return found


def _wandb_records(file: Path) -> dict[str, Any]:
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))
    found: dict[str, Any] = {"history": []}
    while (data := store.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            of = record.run
            found |= {"id": of.run_id, "name": of.display_name, "group": of.run_group}
            found |= {"project": of.project, "kind": of.job_type}
            config = {each.key: json.loads(each.value_json) for each in of.config.update}
            config.pop("_wandb", None)  # how it was written
            found["config"] = config
        elif record.WhichOneof("record_type") == "history":
            items = record.history.item
            row = {each.key or "/".join(each.nested_key): each.value_json for each in items}
            row.pop("_runtime", None)  # how long it took to write
            found["history"].append({key: json.loads(value) for key, value in row.items()})
        elif record.WhichOneof("record_type") == "exit":
            found["exit"] = record.exit.exit_code
    return found


# --- Trackio --------------------------------------------------------------------------------------


@contextmanager
def trackio_in(folder: Path) -> Iterator[None]:
    """Trackio in a folder: it reads its setting only when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        if "trackio" in sys.modules:
            patch.setattr("trackio.utils.TRACKIO_DIR", folder, raising=False)
            patch.setattr("trackio.utils.ARTIFACTS_DIR", folder / "artifacts")
            patch.setattr("trackio.sqlite_storage.TRACKIO_DIR", folder, raising=False)
        yield


def trackio(folder: Path, project: str) -> dict[str, Any]:
    import trackio as module
    from trackio.sqlite_storage import SQLiteStorage

    found: dict[str, Any] = {}
    with trackio_in(folder):
        for run in module.Api().runs(project):
            assert run.id not in found
            logs = SQLiteStorage.get_logs(project, run.name, run_id=run.id)
            found[run.id] = (run.name, run.config, logs, _trackio_files(project, run))
    return found


def _trackio_files(project: str, run: Any) -> dict[str, bytes]:
    """Of its one artifact, which has one version."""
    from trackio import cas
    from trackio.sqlite_storage import SQLiteStorage

    links = SQLiteStorage.get_run_artifacts(project, run.name, run.id)["output"]
    if not links:
        return {}
    (link,) = links
    (artifact,) = (a for a in SQLiteStorage.get_artifacts(project) if a["name"] == link["name"])
    assert artifact["num_versions"] == 1, artifact
    manifest = SQLiteStorage.get_artifact_manifest(project, link["name"], None)["manifest"]
    return {each["path"]: cas.blob_path(project, each["digest"]).read_bytes() for each in manifest}


# --- Aim ------------------------------------------------------------------------------------------


def aim(folder: Path) -> dict[str, Any]:
    from aim import Repo

    found: dict[str, Any] = {}
    for run in Repo.from_path(str(folder)).iter_runs():
        assert run.hash not in found
        curves = {}
        for metric in run.metrics():
            steps, (values, *_) = metric.data.items_list()  # the times are those of the export
            curves[metric.name] = list(zip(steps, values, strict=True))
        told = {"name": run.name, "experiment": run.experiment, "active": run.active}
        found[run.hash] = (told, run["hparams"], run["stockpot"], curves)
    return found


# --- Optuna ---------------------------------------------------------------------------------------


def optuna(url: str, name: str) -> list[Any]:
    """The study's trials."""
    from optuna import load_study

    with quiet():
        study = load_study(study_name=name, storage=url)
        found = study.get_trials()
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined]
    return found
