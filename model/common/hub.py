"""The Hugging Face Hub where there is no network, told in seconds; and its libraries, quiet.

They try again and again, for a minute or more. So it is asked once whether there is a way
to the Hub at all. If not, this process stays offline: what is in the cache is used at once.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit
from urllib.request import getproxies

from model.common.errors import InputError

OFFLINE = "HF_HUB_OFFLINE"
OWN = ("minilm", "tiny")  # encoders that need no Hub: `model.modules.encoder_defaults`
PATIENCE = 4.0  # seconds


def require_encoder(*names: str) -> None:
    """Refuse encoders that only the Hub has, where the Hub is away."""
    lacking = [
        name for name in names if name not in OWN and hub_is_away(name) and not in_cache(name)
    ]
    if lacking:
        faults = [f"'{name}' is not on this machine, and {away()}" for name in lacking]
        raise InputError("encoder.name", faults)


def in_cache(name: str) -> bool:
    from huggingface_hub.constants import HF_HUB_CACHE

    return (Path(HF_HUB_CACHE) / f"models--{name.replace('/', '--')}" / "snapshots").is_dir()


def hub_is_away(name: str) -> bool:
    """Whether there is no way to the Hub, for what is not a folder here."""
    if os.path.exists(os.path.expanduser(name)) or name.startswith(("/", ".", "~")):
        return False
    return no_way()


@cache
def no_way() -> bool:
    """Found out once; from then on this process is offline."""
    if os.environ.get(OFFLINE, "").upper() in ("1", "ON", "YES", "TRUE") or reachable():
        return False
    go_offline()
    return True


def away() -> str:
    remedy = f"connect, give the folder of a copy, or set {OFFLINE}=1 to take what is in the cache"
    return f"the Hub ({endpoint()}) cannot be reached; {remedy}"


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def reachable() -> bool:
    if getproxies():
        return True  # whose way nobody can tell from here
    url = urlsplit(endpoint())
    found: list[bool] = []

    def knock() -> None:
        port = url.port or (80 if url.scheme == "http" else 443)
        try:
            socket.create_connection((url.hostname or "", port), timeout=PATIENCE).close()
            found.append(True)
        except OSError:
            pass

    # A thread, because looking up a name knows no timeout.
    thread = Thread(target=knock, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(found)


def go_offline() -> None:
    """For what is imported or started later, and for what is imported already."""
    os.environ[OFFLINE] = "1"
    for module in ("huggingface_hub.constants", "datasets.config"):
        if module in sys.modules:
            setattr(sys.modules[module], OFFLINE, True)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars and load reports between our own lines."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
