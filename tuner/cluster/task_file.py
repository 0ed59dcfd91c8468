"""What is wrong with a task for SkyPilot or dstack: a file that brings machines and runs a search.

Both check their own files when a task is launched. Here the names are checked offline, against what
SkyPilot 0.14 and dstack 0.22 take, and what they do not look at: the token, storage, versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from model.common.errors import unknown
from model.common.files import Document
from tuner.cluster.pins import image_faults
from tuner.cluster.shell import expanded, joined, place_of_search, script_faults, storage_faults


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
    key = f"a key of a {launcher.name} task"
    for name in data:
        yield from (f"{file.at(name)}{fault}" for fault in unknown([name], launcher.keys, key))
    for part, known in launcher.inside.items():
        inside = data.get(part)
        for name in inside if isinstance(inside, dict) else ():
            faults = unknown([name], known, key, f"{part}.")
            yield from (f"{file.at(part, name)}{fault}" for fault in faults)
    given = environment(data.get(launcher.env))
    settings = " ".join(f"{name}={value}" for name, value in given.items())
    for part in launcher.scripts:
        found = data.get(part)
        for line in found if isinstance(found, list) else []:
            if not isinstance(line, str):
                fault = f"a command that YAML does not read as a text: {line!r}"
                yield f"{file.at(part)}{fault}; put it in quotes"
    script = expanded(joined("\n".join(scripts(data, launcher))), given)
    yield from script_faults(script, settings)
    yield from images(data)
    nodes = data.get(launcher.nodes) or 1
    if not isinstance(nodes, int):
        yield f"{file.at(launcher.nodes)}{launcher.nodes} is a number, but is {nodes!r}"
    elif nodes > 1:
        for place in sorted({place_of_search(script), storage} - {None}, key=str):
            yield from storage_faults(place, shared=shared)
    if launcher is SKYPILOT:
        yield from own_ray(script)


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
