"""The private parts of Ray that a search uses: all of them, and what happens without each.

Ray may rename these in any release, and some of the uses below would then fail in silence. So
pyproject.toml bounds Ray's version from above. Whoever raises the bound is told here what broke.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
ADAPTERS, SESSION = "tuner/ray_backend/adapters.py", "tuner/ray_backend/session.py"
TRAINABLE, FAILURES = "tuner/ray_backend/trainable.py", "tuner/ray_backend/failures.py"
CLUSTER_FILE, HEARTBEAT = "tuner/cluster/file.py", "tuner/ray_backend/heartbeat.py"
CONTROLLER = "ray.tune.execution.tune_controller:TuneController"
SILENCE = "a worker that was stopped, or whose machine froze, is waited for for an hour"
UNKNOWN = "a worker that does not answer at once is not watched, nor saved before its machine goes"
NOTICES = "trials of a machine that is about to go are not saved before it goes"
BACK = "a trial that was saved because its machine will go may be put back on that machine"
MEMORY = "Ray keeps every ended trial, and the driver's memory grows with their number"
# What session.py replaces while it runs, and why.
LOOPBACK = "no search on one machine starts; it is replaced so that Ray listens on 127.0.0.1 only"
SIGNALS = "no search starts; it is replaced so that SIGTERM saves the running trials first"
READY = (
    "no search on one machine starts; it is replaced so that trials take processes Ray has ready"
)
PROCESSES = "no search on one machine starts; it is replaced so that Ray starts only what is needed"
BUSY = "no search on one machine starts; it is replaced so that a busy machine has time to start it"
STORE = "no search on one machine starts; its control store is looked for there, to be watched"


class Use(NamedTuple):
    name: str
    home: str  # the module, and the class or function in it, that has the name
    user: str
    without: str


PRIVATE = [
    Use("ENABLE_RAY_CLUSTER", "ray._private.ray_constants", SESSION, LOOPBACK),
    Use("set_sigterm_handler", "ray._private.utils", SESSION, SIGNALS),
    Use("DEFAULT_ENV_VARS", "ray.tune.execution.class_cache", SESSION, READY),
    Use("ENV_VARS_TO_PROPAGATE", "ray.tune.execution.class_cache", SESSION, READY),
    Use("get_node", "ray._private.services", SESSION, BUSY),
    Use("_reuse_actors", CONTROLLER, ADAPTERS, BACK),
    Use("_global_node", "ray._private.worker", SESSION, STORE),
    Use("start_monitor", "ray._private.node:Node", SESSION, PROCESSES),
    Use("start_log_monitor", "ray._private.node:Node", SESSION, PROCESSES),
    Use("start_api_server", "ray._private.node:Node", SESSION, PROCESSES),
    Use(
        "_node_ip_address",
        "ray:init",
        SESSION,
        "a search on one machine listens on every network interface",
    ),
    Use(
        "_temp_dir",
        "ray:init",
        SESSION,
        "Ray's files stay in /tmp/ray, and those of a killed search are not swept up",
    ),
    Use(
        "_tune_controller",
        "ray.tune.execution.tune_controller:TrialRunnerWrapper",
        ADAPTERS,
        MEMORY,
    ),
    Use("_stopped_trials", CONTROLLER, ADAPTERS, MEMORY),
    Use("_failed_trials", CONTROLLER, ADAPTERS, MEMORY),
    Use("_live_trials", CONTROLLER, ADAPTERS, MEMORY),
    Use("_trials_to_cache", CONTROLLER, ADAPTERS, MEMORY),
    Use("_trial_metadata", CONTROLLER, ADAPTERS, MEMORY),
    Use("_callbacks", CONTROLLER, ADAPTERS, MEMORY),
    Use("_callbacks", "ray.tune.callback:CallbackList", ADAPTERS, MEMORY),
    Use(
        "_trial_to_actor",
        CONTROLLER,
        ADAPTERS,
        "an ended trial is let go of while its actor is still in use",
    ),
    Use(
        "_storage",
        "ray.tune.trainable.trainable:Trainable",
        TRAINABLE,
        "a paused trial on another machine fails, for Ray copies its state to a folder it lacks",
    ),
    Use("_internal_kv_put", "ray.experimental.internal_kv", HEARTBEAT, SILENCE),
    Use("_internal_kv_get", "ray.experimental.internal_kv", HEARTBEAT, SILENCE),
    Use("actors", "ray._private.state", ADAPTERS, UNKNOWN),
    Use("_actor_id", "ray.actor:ActorHandle", ADAPTERS, UNKNOWN),
    Use("GcsClient", "ray._raylet", HEARTBEAT, NOTICES),
    Use(
        "prepare_config",
        "ray.autoscaler._private.util",
        CLUSTER_FILE,
        "`stockpot cluster check` says that Ray's launcher is not installed",
    ),
    Use(
        "validate_config",
        "ray.autoscaler._private.util",
        CLUSTER_FILE,
        "`stockpot cluster check` says that Ray's launcher is not installed",
    ),
]
# Methods for Ray's own developers. Under another name, ours would no longer be called.
OVERRIDDEN = [
    Use(
        "handle_error",
        "ray.tune.experiment:Trial",
        FAILURES,
        "a failed trial has no reason in the ledger",
    ),
    Use(
        "should_recover",
        "ray.tune.experiment:Trial",
        FAILURES,
        "Ray retries by itself what the search starts again from the ledger",
    ),
    Use("update_last_result", "ray.tune.experiment:Trial", FAILURES, MEMORY),
    Use("get_json_state", "ray.tune.experiment:Trial", FAILURES, MEMORY),
    Use(
        "get_auto_filled_metrics",
        "ray.tune.trainable.trainable:Trainable",
        TRAINABLE,
        "every result carries the trial's whole configuration",
    ),
]


def fault(use: Use) -> str | None:
    """What is wrong if Ray has it no more; None if it is there."""
    module, _, part = use.home.partition(":")
    try:
        home: Any = importlib.import_module(module)
        home = getattr(home, part) if part else home
        set_inside = rf"self\.{use.name}\b|\"{use.name}\""  # by __init__, or a keyword
        there = hasattr(home, use.name) or re.search(set_inside, inspect.getsource(home))
    except (ImportError, AttributeError):
        there = False
    if there:
        return None
    where = f"{use.home.replace(':', '.')}.{use.name}"
    return f"Ray {ray.__version__} has no {where}, which {use.user} uses. Without it: {use.without}"


@pytest.mark.parametrize("use", [*PRIVATE, *OVERRIDDEN], ids=lambda use: use.name)
def test_ray_still_has_what_a_search_uses_of_its_inside(use: Use) -> None:
    told = fault(use)
    assert told is None, told


def test_what_ray_has_no_more_is_told_with_what_would_happen() -> None:
    told = fault(Use("_nothing", CONTROLLER, ADAPTERS, MEMORY))
    assert told is not None and "TuneController._nothing" in told and told.endswith(MEMORY)
    assert fault(Use("anything", "ray.tune.no_such_module", ADAPTERS, MEMORY)) is not None


def private_names(path: Path) -> Iterator[str]:
    """Names of Ray's inside in a file: from its private modules, or with an underscore in front."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    for made in (node for node in nodes if getattr(node, "name", "") == "__init__"):
        own |= {
            node.attr
            for node in ast.walk(made)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
    imported: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and re.match(
            r"ray\.(tune\.execution|.*\b_)|ray\._", node.module or ""
        ):
            imported |= {alias.name for alias in node.names}
    owners = set()  # of which not they themselves are used, but something in them
    for node in nodes:
        if isinstance(node, ast.Attribute) and named(node.value) in imported:
            owners.add(named(node.value))
            yield node.attr
        elif isinstance(node, ast.Call) and node.args and named(node.args[0]) in imported:
            owners.add(named(node.args[0]))
            yield from (keyword.arg or "" for keyword in node.keywords)  # replaced(owner, name=...)
        elif isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            if node.attr not in own:
                yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"_[a-z]\w*", node.value):
                yield node.value
    yield from imported - owners


def named(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def test_the_list_is_whole() -> None:
    files = sorted((ROOT / "tuner").rglob("*.py"))
    with_ray = [path for path in files if re.search(r"(import|from) ray\b", path.read_text())]
    assert {ROOT / ADAPTERS, ROOT / SESSION, ROOT / CLUSTER_FILE} <= set(with_ray)
    used = {
        (str(path.relative_to(ROOT)), name) for path in with_ray for name in private_names(path)
    }
    assert used == {(use.user, use.name) for use in PRIVATE}


def test_a_private_name_is_found_however_it_is_used(tmp_path: Path) -> None:
    source = """
from ray._private import one
from ray._private.part import Two, three
from ray.tune import Public
one.four()
with replaced(Two, five=1, six=Public(seven=2)):
    three(ray.eight, getattr(ray, "_nine"), ray._ten)
"""
    (tmp_path / "uses.py").write_text(source)
    found = set(private_names(tmp_path / "uses.py"))
    assert found == {"four", "five", "six", "three", "_nine", "_ten"}


@pytest.mark.parametrize("use", OVERRIDDEN, ids=lambda use: use.name)
def test_a_method_in_the_list_is_one_of_ours(use: Use) -> None:
    assert f"def {use.name}(" in (ROOT / use.user).read_text(encoding="utf-8")


def requirements() -> list[Requirement]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return [Requirement(found) for found in re.findall(r'"(ray\[[^"]+)"', text)]


def test_the_bound_is_the_version_that_was_tested() -> None:
    (pin,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    major, minor, _ = pin.split(".")
    assert len(requirements()) == 2  # the search's own, and the launcher's
    for need in requirements():
        assert need.specifier.contains(pin), f"{need} leaves out Ray {pin} of constraints.txt"
        newer = f"{major}.{int(minor) + 1}.0"
        assert not need.specifier.contains(newer), f"{need} lets in Ray {newer}, never tested"
