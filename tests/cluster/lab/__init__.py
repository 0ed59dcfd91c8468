"""Throw-away machines on this one, for tests of real clusters.

A machine is a set of namespaces: an address, processes, /tmp, /root, /dev/shm and an SSH server of
its own. All of a lab sits in one more such set, so when its scenario ends the kernel takes
everything away, and nothing in it (`ray stop` ends every Ray it sees) can reach the host.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent.parent
OWN_SPACE = (
    *("unshare", "--net", "--pid", "--mount", "--uts", "--ipc"),
    *("--fork", "--kill-child", "--mount-proc"),
)
TOOLS = {
    "unshare": "util-linux",
    "ip": "iproute2",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "rsync": "rsync",
}
MODULES = {"boto3": "boto3", "moto": "moto[server]", "aiohttp_cors": "ray[default]"}


def why_not() -> str | None:
    """Why there can be no lab here; None if there can."""
    if not sys.platform.startswith("linux"):
        return "namespaces are Linux's"
    if os.geteuid() != 0:
        return "namespaces need root"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = [name for tool, name in TOOLS.items() if not shutil.which(tool, path=path)]
    missing += [name for module, name in MODULES.items() if not importlib.util.find_spec(module)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    tried = subprocess.run([*OWN_SPACE, "ip", "link", "add", "br0", "type", "bridge"], text=True,
                           capture_output=True)  # fmt: skip
    return None if tried.returncode == 0 else f"no namespaces: {tried.stderr.strip()[:100]}"


def play(scenario: str, lab: Path, seconds: float = 2300) -> dict[str, Any]:
    """Run a scenario (`tests.cluster.<name>`) in a lab of its own; what it found."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    command = [*OWN_SPACE, sys.executable, "-m", f"tests.cluster.{scenario}", str(lab)]
    said = lab / "said.log"  # as it comes, so that one may look on
    with said.open("w") as log:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=seconds,
        )
    assert done.returncode == 0, said.read_text()[-6000:]
    found: dict[str, Any] = json.loads((lab / "found.json").read_text())
    return found
