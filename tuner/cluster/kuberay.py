"""What is wrong with a RayCluster or RayJob for Kubernetes. The operator checks its own schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from model.common.errors import unknown
from tuner.cluster.pins import image_faults, other_versions, pins
from tuner.cluster.shell import place_of_search, storage_faults

KINDS = ("RayCluster", "RayJob", "RayService")
# As KubeRay 1.7.0 names its fields. Kubernetes drops one that it does not know, with a warning.
SPEC = {
    *("autoscalerOptions", "authOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions"),
    *("headGroupSpec", "headServiceAnnotations", "historyServerOptions", "managedBy"),
    *("networkPolicy", "rayVersion", "suspend", "tlsOptions", "upgradeStrategy"),
    "workerGroupSpecs",
}
JOB = {
    *("activeDeadlineSeconds", "backoffLimit", "clusterSelector", "deletionStrategy"),
    *("entrypoint", "entrypointNumCpus", "entrypointNumGpus", "entrypointResources", "jobId"),
    *("managedBy", "metadata", "preRunningDeadlineSeconds", "rayClusterSpec", "runtimeEnvYAML"),
    *("shutdownAfterJobFinishes", "submissionMode", "submitterConfig", "submitterPodTemplate"),
    *("suspend", "ttlSecondsAfterFinished"),
}
HEAD = {
    *("enableIngress", "headService", "ingressOptions", "labels", "rayStartParams", "resources"),
    *("serviceType", "template"),
}
WORKERS = {
    *("groupName", "idleTimeoutSeconds", "labels", "maxReplicas", "minReplicas", "numOfHosts"),
    *("priority", "rayStartParams", "replicas", "resources", "scaleStrategy", "suspend"),
    "template",
}
COUNTS = ("replicas", "minReplicas", "maxReplicas", "numOfHosts", "idleTimeoutSeconds", "priority")
INSIDE = ("LoadBalancer", "NodePort")


def is_kuberay(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return re.search(r"^apiVersion:\s*ray\.io/", text, re.MULTILINE) is not None


def kuberay_faults(path: Path, *, shared: bool) -> list[str]:
    try:
        documents = [entry for entry in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    except yaml.YAMLError as error:
        return [f"not valid YAML: {' '.join(str(error).split())[:150]}"]
    faults: list[str] = []
    for entry in documents:
        if isinstance(entry, dict) and entry.get("kind") in KINDS:
            try:
                faults += document_faults(entry, shared=shared)
            except (AttributeError, TypeError, KeyError) as error:
                faults.append(f"{entry['kind']}: not as the operator expects it ({error!r})")
    return faults


def document_faults(entry: dict[str, Any], *, shared: bool) -> Iterator[str]:
    spec = entry["spec"]
    if entry["kind"] == "RayJob":
        yield from unknown(spec, JOB, "a setting of a RayJob")
    if command := spec.get("entrypoint"):
        yield from storage_faults(place_of_search(command), shared=shared)
        yield from other_versions(command)
    if "clusterSelector" in spec:  # a cluster that is there
        return
    cluster = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    if cluster is not spec or entry["kind"] == "RayCluster":
        yield from unknown(cluster, SPEC, "a setting of a RayCluster")
    ray = pins().get("ray", set())
    if str(cluster.get("rayVersion")) not in ray:
        found = cluster.get("rayVersion")
        yield f"rayVersion is {found}, the project's is {', '.join(ray)}; write that"
    if (cluster.get("authOptions") or {}).get("mode") != "token":
        fault = "Ray starts without a token, so whoever reaches its ports can run commands"
        yield f"{fault}; write authOptions: {{mode: token}}"
    head = cluster["headGroupSpec"]
    if head.get("serviceType") in INSIDE:
        fault = f"the dashboard is open: the head's service is a {head['serviceType']}"
        yield f"{fault}; make it ClusterIP and use kubectl port-forward"
    if str((head.get("rayStartParams") or {}).get("num-cpus")) != "0":
        yield "the head takes trials; keep it free with rayStartParams: {num-cpus: '0'}"
    workers = cluster.get("workerGroupSpecs", [])
    yield from unknown(head, HEAD, "a setting of the head's group")
    for group in workers:
        yield from unknown(group, WORKERS, "a setting of a group of workers")
    for group in [head, *workers]:
        yield from group_faults(group.get("groupName", "head"), group)
        yield from pod_faults(group.get("groupName", "head"), group["template"]["spec"])


def group_faults(name: str, group: dict[str, Any]) -> Iterator[str]:
    for key, value in (group.get("rayStartParams") or {}).items():
        if not isinstance(value, str):
            yield f"{name}: rayStartParams are texts, but {key} is {value!r}; write it in quotes"
    for key in COUNTS:
        if key in group and not isinstance(group[key], int):
            yield f"{name}: {key} is a number, but is {group[key]!r}; write it without quotes"


def pod_faults(name: str, pod: dict[str, Any]) -> Iterator[str]:
    for container in pod["containers"]:
        for fault in image_faults(container.get("image")):
            yield f"{name}: {fault}"
    ray = pod["containers"][0]  # the others are beside it
    mounts = [mount.get("mountPath") for mount in ray.get("volumeMounts", [])]
    if "/dev/shm" not in mounts:
        fault = f"{name}: a container has 64 MB of shared memory"
        yield f"{fault}; mount an emptyDir with medium: Memory at /dev/shm"
