"""Ray, started quietly for one search and gone with it."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.common.errors import InputError
from model.common.secrets import brief
from tuner.ray_backend.control_store import watched
from tuner.runs.scratch import scratch_folder

QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "64",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# Ray's own answer to Ctrl-C is to break off, with every running trial's work since its last
# checkpoint; ours is to save them first.
NEEDED = {"TUNE_DISABLE_SIGINT_HANDLER": "1"}
# Ray adds 15 to its workers' niceness, which keeps a shared node responsive; here it would leave
# the trials 3 % of a core beside any other program. Their niceness is the driver's plus this.
LOCAL = {"RAY_worker_niceness": "0"}
PATIENCE = 300  # seconds for the processes of a Ray of our own to start


ATTEMPTS = 2  # to start a Ray of our own


@dataclass(frozen=True)
class Session:
    cpus: float
    gpus: float
    scratch: Path  # for what Ray writes about its trials, pickled, never read
    nodes: tuple[tuple[float, float], ...] = ()  # CPUs and GPUs of each machine


@contextmanager
def ray_session(
    address: str | None,
    phase: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext(),
    lost: Callable[[], None] | None = None,
) -> Iterator[Session]:
    """A Ray of our own, or the cluster at `address`. One that runs already is used and left.

    `phase` tells of what takes long. `lost` has the last word if our own Ray loses its control
    store: this process ends then.
    """
    for name, value in (QUIET | (LOCAL if address is None else {})).items():
        os.environ.setdefault(name, value)
    os.environ.update(NEEDED)
    import ray

    with scratch_folder() as scratch:
        mine = not ray.is_initialized()
        if mine:
            with phase("starting Ray" if address is None else f"looking for Ray at {address}"):
                start(ray, address, scratch)
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        try:
            total = ray.cluster_resources()
            up = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            nodes = tuple((float(n.get("CPU", 0)), float(n.get("GPU", 0))) for n in up)
            cpus = float(total.get("CPU", 1 if address is None else 0))
            with ExitStack() as stack:
                if mine and address is None:
                    stack.enter_context(one_environment())
                    stack.enter_context(watched(control_store(), scratch, lost))
                yield Session(cpus, float(total.get("GPU", 0)), scratch, nodes)
        finally:
            if mine:
                with phase("stopping Ray"):
                    ray.shutdown()


def start(ray: Any, address: str | None, scratch: Path) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Its sockets and logs go with the scratch folder, not into the one that all Rays share.
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    for attempt in range(ATTEMPTS if address is None else 1):
        try:
            with ExitStack() as stack:
                stack.enter_context(own_signals())
                if address is None:
                    stack.enter_context(loopback_only())
                    stack.enter_context(only_what_trials_need())
                    stack.enter_context(patient())
                    # A start that failed leaves files behind that the next must not find.
                    options["_temp_dir"] = str(scratch / f"ray{attempt or ''}")
                ray.init(address=address or "local", **options)
            return
        except Exception as error:
            failed = error
            if address is not None and not isinstance(error, ConnectionError | ValueError):
                raise
        with suppress(Exception):
            ray.shutdown()
    reason = brief(str(failed), 200)
    if address is None:
        remedy = "free some memory, processes or open files, and start it again"
        raise OSError(f"Ray did not start on this machine ({reason}); {remedy}") from None
    fault = f"no Ray cluster answers at '{address}' ({reason})"
    raise InputError("--address", [f"{fault}; start one with: ray up cluster.yaml"]) from None


def control_store() -> Any:
    """The process of a Ray of our own in which it knows its machines and actors."""
    from ray._private import worker

    node: Any = worker._global_node
    return node.all_processes["gcs_server"][0].process


@contextmanager
def patient() -> Iterator[None]:
    """Ray gives its own processes half a minute to start, which a crowded machine may not have."""
    from ray._private import services

    look: Callable[..., Any] = services.get_node

    def get_node(*about: Any) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return look(*about)
            except RuntimeError:  # it is not there yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    with replaced(services, get_node=get_node):
        yield


@contextmanager
def loopback_only() -> Iterator[None]:
    """Ray's servers on 127.0.0.1, as on the systems where it does not make clusters.

    Anywhere else it takes a loopback address that it is given for a mistake, replaces it by the
    machine's own, and listens to the world.
    """
    from ray._private import ray_constants

    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    given = os.environ.get(name)
    os.environ[name] = "0"  # for the processes that it starts
    try:
        with replaced(ray_constants, ENABLE_RAY_CLUSTER=False):
            yield
    finally:
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given


@contextmanager
def only_what_trials_need() -> Iterator[None]:
    """No autoscaler, no log reader and no dashboard, which Ray starts even where it is told not to.

    They are three processes that import half of Ray before the first trial can start.
    """
    from ray._private.node import Node

    def nothing(node: Node, **options: Any) -> None:
        pass

    with replaced(Node, start_monitor=nothing, start_log_monitor=nothing, start_api_server=nothing):
        yield


@contextmanager
def own_signals() -> Iterator[None]:
    """Ray would answer SIGTERM by an exit that goes under in places; a search answers it itself.

    A terminal that is closed tells every process that was started from it. Those of Ray, which
    inherit what is blocked here, are to live until the trials are saved.
    """
    from ray._private import utils

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        with replaced(utils, set_sigterm_handler=lambda handler: None):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def one_environment() -> Iterator[None]:
    """Let trials have the processes that Ray has ready for them.

    Tune asks for some variables of the driver in its workers, and for those Ray would start other
    processes. The workers of a Ray of our own have had them all along.
    """
    from ray.tune.execution import class_cache

    with replaced(class_cache, DEFAULT_ENV_VARS={}, ENV_VARS_TO_PROPAGATE=set()):
        yield


@contextmanager
def replaced(owner: Any, **others: Any) -> Iterator[None]:
    """Private parts of Ray as we need them, and as they were afterwards."""
    before = {name: getattr(owner, name) for name in others}
    for name, other in others.items():
        setattr(owner, name, other)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
