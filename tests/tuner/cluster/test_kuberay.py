"""The pods of the shipped RayJob, field by field, against the types of Kubernetes' own client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.cluster.file import check_file

FILE = Path(__file__).parents[3] / "docs" / "clusters" / "kuberay.yaml"
PLAIN = {"str": str, "int": int, "bool": bool, "float": float}


def faults(models: Any, value: Any, kind: str, where: str) -> list[str]:
    """What the API server would not take, or drop: fields that are none, values of other types."""
    if found := re.fullmatch(r"[Ll]ist\[(.+)\]", kind):
        if not isinstance(value, list):
            return [f"{where} is no list"]
        return [
            f
            for n, each in enumerate(value)
            for f in faults(models, each, found[1], f"{where}[{n}]")
        ]
    if found := re.fullmatch(r"[Dd]ict[(\[]str, (.+)[)\]]", kind):
        return [
            f
            for key, each in value.items()
            for f in faults(models, each, found[1], f"{where}.{key}")
        ]
    if kind in PLAIN:
        return [] if isinstance(value, PLAIN[kind]) else [f"{where}: {value!r} is not a {kind}"]
    if not isinstance(value, dict):
        return [f"{where} is no mapping"]
    model = getattr(models, kind)
    names = {outside: inside for inside, outside in model.attribute_map.items()}
    said = [f"{where}.{name} is no field of {kind}" for name in value if name not in names]
    for name, each in value.items():
        if name in names:
            said += faults(models, each, model.openapi_types[names[name]], f"{where}.{name}")
    return said


def test_its_pods_have_no_field_that_kubernetes_does_not_know() -> None:
    reason = "the client of Kubernetes is not installed: pip install kubernetes"
    models = pytest.importorskip("kubernetes.client", reason=reason)
    spec = yaml.safe_load(FILE.read_text())["spec"]["rayClusterSpec"]
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        assert faults(models, group["template"], "V1PodTemplateSpec", "template") == []
    broken = {"spec": {"containers": [{"name": 3, "imagePullPolice": "Always"}]}}
    said = faults(models, broken, "V1PodTemplateSpec", "template")
    assert len(said) == 2 and "imagePullPolice is no field of V1Container" in said[1] + said[0]


def check_changed(tmp_path: Path, *changes: tuple[str, str]) -> str:
    text = FILE.read_text(encoding="utf-8").replace("BUCKET", "ours")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return "\n".join(check_file(path))


def test_a_search_is_known_by_either_name(tmp_path: Path) -> None:
    change = ("python -m tuner.search", "stockpot search"), (" --storage-path s3://ours/runs", "")
    assert "storage 'runs'" in check_changed(tmp_path, *change)


def test_fields_of_the_newest_operator_are_known(tmp_path: Path) -> None:
    of_cluster = "networkPolicy: {mode: DenyAllIngress}\n    tlsOptions: {enabled: true}\n    "
    changes = (
        ("authOptions:", f"{of_cluster}historyServerOptions: {{}}\n    authOptions:"),
        ("serviceType:", "ingressOptions: {host: ours.example}\n      serviceType:"),
        ("maxReplicas:", "priority: 1\n        maxReplicas:"),
    )
    assert "is not a setting" not in check_changed(tmp_path, *changes)


def test_a_job_on_a_cluster_that_is_there_describes_none(tmp_path: Path) -> None:
    data = yaml.safe_load(FILE.read_text(encoding="utf-8").replace("BUCKET", "ours"))
    del data["spec"]["rayClusterSpec"]
    data["spec"]["clusterSelector"] = {"ray.io/cluster": "ours"}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    assert not any("rayVersion" in fault or "KeyError" in fault for fault in check_file(path))
