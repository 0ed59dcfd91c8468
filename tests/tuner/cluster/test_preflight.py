from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from model.common.errors import InputError
from tuner.cluster.preflight import Node, check_nodes, differences, faults_of, priority
from tuner.engine.job import Job
from tuner.ray_backend.staging import localize, pack, unpack
from tuner.runs.storage.storage import Storage


def node(name: str, **versions: str) -> Node:
    return Node(name, "10.0.0.1", {"torch": "2.13.0", "ray": "2.60.0", **versions}, None)


def test_machines_that_are_alike_are_fine() -> None:
    assert differences([node("driver"), node("a"), node("b")]) == []


def test_versions_that_differ_are_said_with_their_machines() -> None:
    (fault,) = differences([node("driver"), node("a", torch="2.5.0"), node("b", torch="2.5.0")])
    assert fault.startswith("torch is not the same everywhere: 2.13.0 on driver; 2.5.0 on a, b")


def test_storage_is_judged_by_what_arrives() -> None:
    shared = Storage("file:///data/runs")
    assert faults_of(node("a"), True, shared, shared=True) == []
    (fault,) = faults_of(node("a"), False, shared, shared=True)
    assert "storage /data/runs what it wrote did not arrive" in fault
    assert "s3://bucket/path" in fault


def test_the_workers_niceness_is_said_with_its_remedy() -> None:
    usual, raised = replace(node("a"), niceness=15), node("b")
    assert priority([raised]) == "workers' niceness: 0"
    assert priority([usual, replace(usual, name="c")]).startswith("workers' niceness: 15 (")
    both = priority([usual, raised, replace(raised, name="c")])
    assert both.startswith("workers' niceness: 0, 15 (other programs there come first")
    assert "RAY_worker_niceness=0 ray start" in both


@pytest.mark.slow
def test_a_cluster_of_one_is_looked_at(ray: None, tmp_path: Path) -> None:
    (found,) = check_nodes(tmp_path, None)
    assert found.storage is None
    assert list(tmp_path.iterdir()) == []
    # Of a search on one machine: as any other program of its user, where Ray would have 15 more.
    assert found.niceness == os.nice(0)
    with pytest.raises(InputError, match="there is no /nowhere/at/all; put it there"):
        check_nodes(tmp_path, None, ["/nowhere/at/all"])


def test_files_arrive_as_they_were_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    data, tasks = tmp_path / "data", tmp_path / "mine.yaml"
    (data / "inner").mkdir(parents=True)
    (data / "inner" / "rows.csv").write_text("a,b\n")
    tasks.write_text("tasks: {}\n")
    packages, large = pack([str(data), str(tasks), str(data)])
    assert large == [] and set(packages) == {str(data), str(tasks)}
    job = Job("t0001", {"encoder.name": "tiny"}, str(tasks), str(data), "out", 1)
    there = localize(job, packages)
    assert there.data is not None and there.data != job.data
    assert (Path(there.data) / "inner" / "rows.csv").read_text() == "a,b\n"
    assert Path(there.tasks).name == "mine.yaml" and Path(there.tasks).read_text() == "tasks: {}\n"
    assert there.settings == job.settings
    assert localize(job, packages) == there  # and unpacked once
    assert unpack(packages[str(data)]) == Path(there.data)
    assert localize(job, {}) is job


def test_the_same_content_is_the_same_package(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    before = pack([str(tmp_path / "a")])[0]
    os.utime(tmp_path / "a", (1, 1))
    assert pack([str(tmp_path / "a")])[0] == before


def test_what_is_too_large_must_be_there_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.ray_backend.staging.LARGEST", 3)
    (tmp_path / "a").write_text("long")
    assert pack([str(tmp_path / "a")]) == ({}, [str(tmp_path / "a")])
