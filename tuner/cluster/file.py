"""What is wrong with a cluster file: what `ray up` would say, and what it would not.

Ray's schema looks at its own keys only. It lets pass a misspelt setting of the machines, a
dashboard for everybody, a cluster without a token, an image that changes by itself.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from model.common.errors import InputError, install, suggest
from model.common.files import Document, read_yaml
from tuner.cluster.kuberay import is_kuberay, kuberay_faults
from tuner.cluster.node_settings import typos
from tuner.cluster.pins import image_faults, other_versions
from tuner.cluster.placeholders import placeholder_faults
from tuner.cluster.shell import TOKEN, dashboard_faults, place_of_search, storage_faults
from tuner.cluster.slurm import is_slurm, slurm_faults
from tuner.cluster.task_file import launcher_of, task_faults

PROVIDERS = ("aws", "gcp", "azure", "local", "vsphere", "external", "readonly", "fake_multinode")
EVERYWHERE = ("0.0.0.0/0", "::/0")
COMMANDS = (
    *("initialization_commands", "setup_commands", "head_setup_commands"),
    *("worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands"),
)


def check_file(path: Path, storage: str | None = None, *, shared: bool = False) -> list[str]:
    """Every fault of the file, in sentences; none if it may be brought up."""
    if is_kuberay(path):
        faults = list(placeholder_faults(path.read_text(encoding="utf-8")))
        return faults + kuberay_faults(path, shared=shared)
    if is_slurm(path):
        return slurm_faults(path, storage, shared=shared)
    try:
        file = read_yaml(path)
    except InputError as error:
        return error.faults
    if launcher := launcher_of(file.data):
        faults = list(placeholder_faults(path.read_text(encoding="utf-8")))
        return faults + list(task_faults(file, launcher, storage, shared=shared))
    faults = list(schema_faults(file))
    misread = bool(faults)
    faults += placeholder_faults(path.read_text(encoding="utf-8"))
    for rule in RULES:
        try:
            faults += rule(file)
        except (AttributeError, TypeError, KeyError):  # the schema has said what is not as it is
            if not misread:
                raise
    if not misread and workers(file.data):
        for place in (*map(place_of_search, commands(file.data)), storage):
            faults += storage_faults(place, shared=shared)
    return faults


# --- as Ray sees it -----------------------------------------------------------------------------


def schema_faults(file: Document) -> Iterator[str]:
    try:
        import jsonschema  # type: ignore[import-untyped]
        import ray.autoscaler
        from ray.autoscaler._private.util import prepare_config, validate_config
    except ImportError:
        yield f"cannot be checked without Ray's launcher; {install('cluster')}"
        return
    kind = provider_of(file.data)
    if kind and kind not in PROVIDERS:
        yield f"{file.at('provider', 'type')}provider '{kind}': {suggest(kind, PROVIDERS)}"
        return
    # `ray up` asks Amazon what each machine has before it looks at the file.
    data = copy.deepcopy(file.data)
    types = data.get("available_node_types")
    if kind == "aws" and isinstance(types, dict):
        for node in types.values():
            if isinstance(node, dict):
                node.setdefault("resources", {})
    logging.getLogger("ray.autoscaler").setLevel(logging.WARNING)
    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    found = list(jsonschema.Draft7Validator(schema).iter_errors(data))
    for error in found:
        yield from said(error, file)
    if found:
        return
    if kind in ("aws", "gcp", "local"):
        try:
            validate_config(prepare_config(data))
        except Exception as error:  # whatever Ray makes of it
            yield f"Ray does not take it: {' '.join(str(error).split())[:200]}"


def said(error: Any, file: Document) -> Iterator[str]:
    path = [str(part) for part in error.absolute_path]
    where = ".".join(path)
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        for name in error.instance:
            if name not in known:
                full = f"{where}.{name}" if where else name
                yield f"{file.at(*path, name)}'{full}' is not a key of a cluster file; " + suggest(
                    name, known
                )
    elif error.validator == "required":
        (missing, *_) = [name for name in error.validator_value if name not in error.instance]
        yield f"{file.at(*path)}'{missing}' is missing{f' in {where}' if where else ''}; add it"
    else:
        yield f"{file.at(*path)}'{where}': {error.message[:150]}"


# --- as Ray does not see it -----------------------------------------------------------------------


def node_settings(file: Document) -> Iterator[str]:
    for name, node in node_types(file.data).items():
        for fault in typos(provider_of(file.data), node.get("node_config", {})):
            start = file.at("available_node_types", name, "node_config", *key_in(fault))
            yield f"{start}node type '{name}': {fault}"


def key_in(fault: str) -> list[str]:
    found = re.match(r"'([^']+)'", fault)
    return found[1].split(".") if found else []


def dashboard(file: Document) -> Iterator[str]:
    remedy = "reach it with: ray dashboard FILE"
    given = file.data.get("head_start_ray_commands")
    if not given:
        fault = "'head_start_ray_commands' is missing, and Ray's own open the dashboard to all"
        yield f"{fault}; write: ray start --head --dashboard-host=127.0.0.1 ..."
        return
    for command in given:
        for fault in dashboard_faults(command):
            yield f"{file.at('head_start_ray_commands')}{fault} and {remedy}"


def token(file: Document) -> Iterator[str]:
    data = file.data
    everywhere = [*data.get("setup_commands", []), *docker_options(data)]
    for part in ("head_start_ray_commands", "worker_start_ray_commands"):
        start = data.get(part) or []
        if not any(TOKEN in text for text in [*start, *everywhere]):
            yield (
                f"{file.at(part)}'{part}' starts Ray without a token, so whoever reaches its ports "
                f"can run commands; write: {TOKEN} ray start ..."
            )
    places = [str(place) for place in data.get("file_mounts") or {}]
    if not any(place.endswith(".ray/auth_token") for place in places):
        fault = "no token is brought to the machines"
        remedy = "make one with 'ray get-auth-token --generate' and mount it in 'file_mounts'"
        yield f"{file.at('file_mounts')}{fault}; {remedy}, as ~/.ray/auth_token"


def ssh(file: Document) -> Iterator[str]:
    data, kind = file.data, provider_of(file.data)
    rules = (data["provider"].get("security_group") or {}).get("IpPermissions") or []
    for rule in rules:
        ranges = [*rule.get("IpRanges", []), *rule.get("Ipv6Ranges", [])]
        open_to = [entry.get("CidrIp") or entry.get("CidrIpv6") for entry in ranges]
        if any(place in EVERYWHERE for place in open_to):
            port = rule.get("FromPort", "every port")
            start = file.at("provider", "security_group", "IpPermissions")
            remedy = "name your own address, as 203.0.113.7/32"
            yield f"{start}port {port} is open to the world; {remedy}"
    needed, missing = {
        "aws": ("SecurityGroupIds", "the group that Ray makes opens SSH to the world"),
        "gcp": ("networkInterfaces", "the default network opens SSH to the world"),
    }.get(kind, ("", ""))
    for name, node in node_types(data).items() if needed else ():
        inside = node.get("node_config", {})
        if needed not in inside and "NetworkInterfaces" not in inside:
            start = file.at("available_node_types", name)
            yield f"{start}node type '{name}' has no {needed}: {missing}; name one of your own"


def images(file: Document) -> Iterator[str]:
    data = file.data
    docker = data.get("docker") or {}
    for key in ("image", "head_image", "worker_image"):
        if key in docker:
            yield from (f"{file.at('docker', key)}{fault}" for fault in image_faults(docker[key]))
    if docker and not any("--shm-size" in option for option in docker_options(data)):
        start = file.at("docker")
        yield f"{start}a container has 64 MB of shared memory; add --shm-size=8g to run_options"
    for name, node in node_types(data).items():
        inside = node.get("node_config", {})
        if provider_of(data) == "aws" and str(inside.get("ImageId", "")) in ("", "latest_dlami"):
            start = file.at("available_node_types", name, "node_config")
            yield f"{start}node type '{name}' has no ImageId, and Ray's own is years old; name one"


def versions(file: Document) -> Iterator[str]:
    for part in COMMANDS:
        for command in file.data.get(part) or []:
            yield from (f"{file.at(part)}{fault}" for fault in other_versions(command))


def machines(file: Document) -> Iterator[str]:
    data, kind = file.data, provider_of(file.data)
    if kind not in ("aws", "gcp"):
        return
    head = data.get("head_node_type")
    for name, node in node_types(data).items():
        start = file.at("available_node_types", name)
        inside = node.get("node_config", {})
        if name == head and (node.get("resources") or {}).get("CPU") != 0:
            yield f"{start}the head takes trials; keep it free with resources: {{CPU: 0}}"
        if name != head and kind == "aws" and "IamInstanceProfile" not in inside:
            fault = (
                f"node type '{name}' has no IamInstanceProfile, so its trials cannot write to S3"
            )
            yield f"{start}{fault}; give it a profile of yours"
        spot = (inside.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"
        if spot and data["provider"].get("cache_stopped_nodes", True):
            yield f"{start}spot machines cannot be stopped; set provider.cache_stopped_nodes: false"


Rule = Callable[[Document], Iterator[str]]
RULES: tuple[Rule, ...] = (node_settings, dashboard, token, ssh, images, versions, machines)


# --- parts of a file ----------------------------------------------------------------------------


def provider_of(data: dict[str, Any]) -> str:
    provider = data.get("provider")
    return str(provider.get("type")) if isinstance(provider, dict) else ""


def node_types(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return data.get("available_node_types") or {}


def docker_options(data: dict[str, Any]) -> list[str]:
    docker = data.get("docker") or {}
    return [
        str(option)
        for key in ("run_options", "head_run_options", "worker_run_options")
        for option in docker.get(key) or []
    ]


def commands(data: dict[str, Any]) -> list[str]:
    return [str(command) for part in COMMANDS for command in data.get(part) or []]


def workers(data: dict[str, Any]) -> int:
    """The most machines beside the head."""
    listed = (data.get("provider") or {}).get("worker_ips")
    return len(listed) if isinstance(listed, list) else int(data.get("max_workers", 2))
