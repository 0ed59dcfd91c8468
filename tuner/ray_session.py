"""Ray, started quietly for one search and gone with it."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.errors import InputError
from tuner.orphans import end_orphans

try:
    import fcntl
except ImportError:  # not on this system; then nothing is ever taken for abandoned
    fcntl = None  # type: ignore[assignment]

PREFIX = "stockpot-"
HELD = "held"  # locked by the kernel for as long as its driver lives
PATIENCE = 5.0  # seconds for Ray's processes to let go of their files
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


@dataclass(frozen=True)
class Session:
    cpus: float
    gpus: float
    scratch: Path  # for what Ray writes about its trials, pickled, never read
    nodes: tuple[tuple[float, float], ...] = ()  # CPUs and GPUs of each machine


@contextmanager
def ray_session(address: str | None) -> Iterator[Session]:
    """A Ray of our own, or the cluster at `address`. One that runs already is used and left."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    os.environ.update(NEEDED)
    import ray

    with scratch_folder() as scratch:
        mine = not ray.is_initialized()
        if mine:
            start(ray, address, scratch)
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        try:
            total = ray.cluster_resources()
            up = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            nodes = tuple((float(n.get("CPU", 0)), float(n.get("GPU", 0))) for n in up)
            cpus = float(total.get("CPU", 1 if address is None else 0))
            with one_environment() if mine and address is None else nullcontext():
                yield Session(cpus, float(total.get("GPU", 0)), scratch, nodes)
        finally:
            if mine:
                ray.shutdown()


def start(ray: Any, address: str | None, scratch: Path) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Its sockets and logs go with the scratch folder, not into the one that all Rays share.
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        options |= {"_temp_dir": str(scratch / "ray")}
    try:
        with loopback_only() if address is None else nullcontext(), own_signals():
            ray.init(address=address or "local", **options)
    except (ConnectionError, ValueError) as error:
        if address is None:
            raise
        reason = " ".join(str(error).split())[:200]
        fault = f"no Ray cluster answers at '{address}' ({reason})"
        raise InputError("--address", [f"{fault}; start one with: ray up cluster.yaml"]) from None


@contextmanager
def loopback_only() -> Iterator[None]:
    """Ray's servers on 127.0.0.1, as on the systems where it does not make clusters.

    Anywhere else it takes a loopback address that it is given for a mistake, replaces it by the
    machine's own, and listens to the world.
    """
    from ray._private import ray_constants

    name, before = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", ray_constants.ENABLE_RAY_CLUSTER
    given = os.environ.get(name)
    os.environ[name] = "0"  # for the processes that it starts
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given


@contextmanager
def own_signals() -> Iterator[None]:
    """Ray would answer SIGTERM by an exit that goes under in places; a search answers it itself."""
    from ray._private import utils

    before = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = before


@contextmanager
def one_environment() -> Iterator[None]:
    """Let trials have the processes that Ray has ready for them.

    Tune asks for some variables of the driver in its workers, and for those Ray would start other
    processes. The workers of a Ray of our own have had them all along.
    """
    from ray.tune.execution import class_cache

    default, passed_on = class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE
    class_cache.DEFAULT_ENV_VARS, class_cache.ENV_VARS_TO_PROPAGATE = {}, set()
    try:
        yield
    finally:
        class_cache.DEFAULT_ENV_VARS = default
        class_cache.ENV_VARS_TO_PROPAGATE = passed_on


# --- scratch ------------------------------------------------------------------------------------


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that goes when the block ends, with those that killed drivers left behind."""
    place = short_temporary_folder()
    sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    # Locked before it has its name: no other driver ever sees it free while this one lives.
    handle = os.open(folder / f".{HELD}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(handle)
        os.rename(folder / f".{HELD}", folder / HELD)
        yield folder
    finally:
        remove(folder)
        os.close(handle)


def short_temporary_folder() -> Path:
    """Where Ray itself keeps its sessions: the path of a socket must not exceed 107 bytes."""
    usual = Path(tempfile.gettempdir())
    return usual if len(str(usual)) <= 20 else Path("/tmp")


def sweep(place: Path) -> None:
    """Remove the scratch of drivers that are gone, and end their Ray. Never of one that lives."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            handle = os.open(folder / HELD, os.O_RDWR)
        except OSError:
            continue  # not ours to judge
        try:
            if _lock(handle):
                end_orphans(folder)
                clear(folder)
        finally:
            os.close(handle)


def clear(folder: Path) -> None:
    """Remove a folder, its lock last: without one, what is left would be nobody's to remove."""
    for place in folder.iterdir():
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        elif place.name != HELD:
            place.unlink(missing_ok=True)
    if any(place.name != HELD for place in folder.iterdir()):
        return  # Ray's processes write while they die: the next sweep has it
    (folder / HELD).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:  # written to in this very moment
        (folder / HELD).touch()


def remove(folder: Path) -> None:
    """Ray's processes write their last lines while they die, so once may not be enough."""
    deadline = time.monotonic() + PATIENCE
    while folder.exists() and time.monotonic() < deadline:
        with suppress(FileNotFoundError):  # gone between two looks
            clear(folder)
        if folder.exists():
            time.sleep(0.1)


def _lock(handle: int) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
