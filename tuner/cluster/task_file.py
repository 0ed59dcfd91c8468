"""What is wrong with a task for SkyPilot or dstack: a file that brings machines and runs a search.

Both check their own files when a task is launched. Here the names are checked offline, against what
SkyPilot 0.14 and dstack 0.22 take, and what they do not look at: the token, storage, versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from model.common.errors import suggest
from model.common.files import Document
from tuner.cluster.pins import image_faults, other_versions
from tuner.cluster.shell import dashboard_faults, expanded, joined, place_of_search, token_faults
from tuner.runs.storage.storage import is_url


@dataclass(frozen=True)
class Launcher:
    name: str
    keys: frozenset[str]
    inside: Mapping[str, frozenset[str]]
    nodes: str  # the key of how many machines
    scripts: tuple[str, ...]  # the keys of what they run
    env: str


SKYPILOT = Launcher(
    "SkyPilot",
    frozenset(
        {
            *("api_server_access", "config", "envs", "event_callback", "file_mounts"),
            *("file_mounts_mapping", "inputs", "managed_secrets", "name", "num_nodes", "outputs"),
            *("pool", "resources", "run", "secrets", "service", "setup", "volume_mounts"),
            *("volumes", "workdir"),
        }
    ),
    {
        "resources": frozenset(
            {
                *("accelerator_args", "accelerators", "any_of", "autostop", "cloud", "cpus"),
                *("disk_size", "disk_tier", "ephemeral_storage", "image_id", "infra"),
                *("instance_type", "job_recovery", "labels", "local_disk", "max_hourly_cost"),
                *("memory", "network_tier", "ordered", "ports", "priority", "priority_class"),
                *("region", "use_spot", "volumes", "zone"),
            }
        )
    },
    "num_nodes",
    ("setup", "run"),
    "envs",
)
DSTACK = Launcher(
    "dstack",
    frozenset(
        {
            *("availability_zones", "backend_options", "backends", "commands"),
            *(
                "creation_policy",
                "docker",
                "dstack",
                "entrypoint",
                "env",
                "files",
                "fleets",
                "groups",
            ),
            *("home_dir", "idle_duration", "image", "instance_types", "instances", "max_duration"),
            *(
                "max_price",
                "name",
                "nodes",
                "nvcc",
                "ports",
                "priority",
                "privileged",
                "python",
                "regions",
            ),
            *(
                "registry_auth",
                "repos",
                "reservation",
                "resources",
                "retry",
                "schedule",
                "setup",
                "shell",
            ),
            *("single_branch", "spot_policy", "startup_order", "stop_criteria", "stop_duration"),
            *("tags", "type", "user", "utilization_policy", "volumes", "working_dir"),
        }
    ),
    {
        "resources": frozenset({"cpu", "disk", "gpu", "memory", "shm_size"}),
        "retry": frozenset({"duration", "on_events"}),
    },
    "nodes",
    ("commands",),
    "env",
)


def launcher_of(data: Mapping[str, Any]) -> Launcher | None:
    """Whose task this is; None if it is no task."""
    if data.get("type") == "task":
        return DSTACK
    return SKYPILOT if "run" in data and "provider" not in data else None


def task_faults(
    file: Document, launcher: Launcher, storage: str | None = None, *, shared: bool = False
) -> Iterator[str]:
    data = file.data
    yield from unknown(file, data, launcher.keys, launcher)
    for part, known in launcher.inside.items():
        if isinstance(data.get(part), dict):
            yield from unknown(file, data[part], known, launcher, part)
    given = environment(data.get(launcher.env))
    settings = " ".join(f"{name}={value}" for name, value in given.items())
    for part in launcher.scripts:
        found = data.get(part)
        for line in found if isinstance(found, list) else []:
            if not isinstance(line, str):
                fault = f"a command that YAML does not read as a text: {line!r}"
                yield f"{file.at(part)}{fault}; put it in quotes"
    script = expanded(joined("\n".join(scripts(data, launcher))), given)
    yield from token_faults(f"{settings}\n{script}")
    yield from dashboard_faults(script)
    yield from other_versions(script)
    yield from images(data)
    nodes = data.get(launcher.nodes) or 1
    if not isinstance(nodes, int):
        yield f"{file.at(launcher.nodes)}{launcher.nodes} is a number, but is {nodes!r}"
    elif nodes > 1 and not shared:
        for place in sorted({place_of_search(script), storage} - {None}, key=str):
            if not is_url(place):
                fault = f"storage '{place}' is a folder of its own on each machine"
                remedy = "take s3://bucket/path, or a folder that all mount, and say --shared"
                yield f"{fault}; {remedy}"
    if launcher is SKYPILOT:
        yield from own_ray(script)


def unknown(
    file: Document,
    part: Mapping[str, Any],
    known: frozenset[str],
    launcher: Launcher,
    where: str = "",
) -> Iterator[str]:
    for name in part:
        if name not in known:
            path = [where, str(name)] if where else [str(name)]
            fault = f"'{'.'.join(path)}' is not a key of a {launcher.name} task"
            yield f"{file.at(*path)}{fault}; {suggest(str(name), known)}"


def environment(given: Any) -> dict[str, str]:
    """Of names with values; one without comes from the user's shell."""
    if isinstance(given, dict):
        return {str(name): str(value) for name, value in given.items() if value is not None}
    pairs = [str(entry).partition("=") for entry in given or []]
    return {name: value for name, equals, value in pairs if equals}


def scripts(data: Mapping[str, Any], launcher: Launcher) -> Iterator[str]:
    for part in launcher.scripts:
        found = data.get(part)
        yield from map(str, found if isinstance(found, list) else [found or ""])


def images(data: Mapping[str, Any]) -> Iterator[str]:
    if image := data.get("image"):
        yield from image_faults(image)
    resources = data.get("resources")
    image = resources.get("image_id") if isinstance(resources, dict) else None
    if isinstance(image, str) and image.startswith("docker:"):
        yield from image_faults(image.removeprefix("docker:"))


def own_ray(script: str) -> Iterator[str]:
    """What goes wrong beside the Ray that SkyPilot itself keeps on each machine."""
    if "symmetric-run" in script:
        fault = "'ray symmetric-run' sees SkyPilot's own Ray and refuses"
        yield f"{fault}; start Ray with ray start, as docs/clusters/skypilot.yaml does"
    if "ray stop" in script:
        yield "'ray stop' ends SkyPilot's own Ray, and the task with it; leave it out"
    if "--address auto" in script:
        fault = "'--address auto' may find SkyPilot's own Ray"
        yield f"{fault}; give the head's address with its port"
