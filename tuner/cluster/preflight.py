"""Before a search starts on a cluster: does every machine have what its trials will need?

A tiny task on each node says what it is and has, reads a word that the driver wrote to storage and
writes one back. All that is wrong is said at once, before anything has cost anything.
"""

from __future__ import annotations

import os
import platform
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from model.common.errors import InputError
from tuner.runs.folder import PACKAGES, _version, code_fingerprint
from tuner.runs.storage.storage import Storage, StorageLost

PATIENCE = 120.0  # seconds for a node to answer; importing torch on a cold disk takes a while
PROBE = ".stockpot-probe"


@dataclass(frozen=True)
class Node:
    """What a node says about itself."""

    name: str
    address: str
    versions: dict[str, str]
    storage: str | None  # what is wrong with it from there
    missing: tuple[str, ...] = ()  # paths that are needed and not there
    niceness: int = 0  # of its workers


def check_nodes(folder: Path, storage: Storage | None, paths: Sequence[str] = ()) -> list[Node]:
    """Ask every node that is up. Raises InputError with all that is wrong."""
    import ray

    place = storage or Storage(f"file://{quote(str(folder.absolute()))}")
    probe, word = f"{PROBE}-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    up = [node for node in ray.nodes() if node["Alive"]]
    place.write(f"{probe}/driver", word.encode())
    try:
        answers = ask(up, place, probe, word, paths)
        came_back = {
            node["NodeID"]: place.read(f"{probe}/{node['NodeID']}") == word.encode() for node in up
        }
    finally:
        clean_up(place, probe, folder if storage is None else None)
    nodes = [answer for answer in answers.values() if isinstance(answer, Node)]
    faults = [fault for fault in answers.values() if isinstance(fault, str)]
    for key, node in answers.items():
        if isinstance(node, Node):
            faults += faults_of(node, came_back[key], place, shared=storage is None)
    faults += differences([here(), *nodes])
    if faults:
        raise InputError(f"the cluster of {len(up)} nodes", faults)
    return nodes


def ask(
    up: Sequence[dict[str, Any]], place: Storage, probe: str, word: str, paths: Sequence[str]
) -> dict[str, Node | str]:
    """node id -> what it says, or why it says nothing."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(look)
    answers = {}
    for node in up:
        where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        started = task.options(scheduling_strategy=where)
        answers[node["NodeID"]] = started.remote(
            node["NodeID"], place, f"{probe}/driver", f"{probe}/{node['NodeID']}", word, list(paths)
        )
    ray.wait(list(answers.values()), num_returns=len(answers), timeout=PATIENCE)
    found: dict[str, Node | str] = {}
    for node in up:
        name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        try:
            said = ray.get(answers[node["NodeID"]], timeout=0.1)
            found[node["NodeID"]] = Node(**said)
        except Exception as error:  # whatever a foreign machine comes up with
            reason = next(reversed(str(error).strip().splitlines()), type(error).__name__)
            remedy = "is the project installed there, in the driver's version?"
            found[node["NodeID"]] = f"{name}: cannot take a task ({reason[:160]}); {remedy}"
    return found


def look(
    node: str, place: Storage, read: str, write: str, word: str, paths: list[str]
) -> dict[str, Any]:
    """Runs on the node."""
    import ray

    fault = None
    try:
        found = place.read(read)
        if found != word.encode():
            fault = "does not see what the driver wrote"
        else:
            place.write(write, word.encode())
    except (StorageLost, InputError) as error:
        fault = " ".join(str(error).split())
    return {
        "name": socket.gethostname(),
        "address": ray.util.get_node_ip_address(),
        "versions": versions(),
        "storage": fault,
        "missing": tuple(path for path in paths if not os.path.exists(path)),
        "niceness": os.nice(0),
    }


def versions() -> dict[str, str]:
    found = {name: _version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found, "the project's code": code_fingerprint()}


def here() -> Node:
    return Node("the driver", "", versions(), None)


def faults_of(node: Node, came_back: bool, place: Storage, *, shared: bool) -> list[str]:
    name = f"{node.name} ({node.address})"
    where = place.shown.removeprefix("file://") if shared else place.shown
    remedy = (
        "let --storage-path be a folder that all machines share, or s3://bucket/path"
        if shared
        else "check its network and its credentials"
    )
    faults = [f"{name}: there is no {path}; put it there" for path in node.missing]
    if node.storage is not None or not came_back:
        reason = node.storage or "what it wrote did not arrive"
        faults.append(f"{name}: storage {where} {reason}; {remedy}")
    return faults


def priority(nodes: Sequence[Node]) -> str:
    """One line on the workers' niceness, which `ray start` has set for good."""
    found = sorted({node.niceness for node in nodes})
    line = f"workers' niceness: {', '.join(map(str, found))}"
    if found[-1] > 0:
        line += " (other programs there come first; otherwise: RAY_worker_niceness=0 ray start)"
    return line


def differences(nodes: Sequence[Node]) -> list[str]:
    """Packages that are not the same everywhere, each in a sentence."""
    faults = []
    for what in nodes[0].versions:
        by_version: dict[str, list[str]] = {}
        for node in nodes:
            by_version.setdefault(node.versions.get(what, "not known"), []).append(node.name)
        if len(by_version) > 1:
            said = "; ".join(f"{v[:12]} on {', '.join(n)}" for v, n in by_version.items())
            faults.append(f"{what} is not the same everywhere: {said}; install one on all")
    return faults


def clean_up(place: Storage, probe: str, folder: Path | None) -> None:
    try:
        place.remove(place.files(probe))
        if folder is not None:
            (folder / probe).rmdir()
    except (StorageLost, OSError):
        pass  # it is in nobody's way
