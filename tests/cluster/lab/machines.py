"""A lab at work. Only to be used inside `tests.cluster.lab.play`, in namespaces of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.lab import OWN_SPACE, ROOT

VENV = Path(sys.prefix)
BASE = Path(os.path.realpath(VENV / "bin" / "python")).parent.parent
KEYS = {
    "AWS_ACCESS_KEY_ID": "lab",
    "AWS_SECRET_ACCESS_KEY": "lab-secret",
    "AWS_DEFAULT_REGION": "us-west-2",
    "AWS_EC2_METADATA_DISABLED": "true",
}
SMALL_STORE = "--object-store-memory=100000000"
PORT = 5555  # of the pretended cloud
PATIENCE = 900.0  # seconds after which nothing will come any more, however busy the machine


class Lab:
    def __init__(self, folder: Path, gateway: str, mask: int) -> None:
        self.folder, self.gateway, self.mask = folder, gateway, mask
        self.machines: dict[str, subprocess.Popen[bytes]] = {}
        self.found: dict[str, Any] = {}
        self.began = time.monotonic()
        self.home = folder / "laptop"
        (self.home / "tmp").mkdir(parents=True)
        (folder / "shared").mkdir()
        self._own_the_space()

    def _own_the_space(self) -> None:
        run("mount", "--make-rprivate", "/")
        own_tmp(self.folder, ROOT, VENV, BASE)
        for name, content in (("resolv.conf", ""), ("hosts", "127.0.0.1 localhost\n")):
            (self.folder / name).write_text(content)
            run("mount", "--bind", str(self.folder / name), f"/etc/{name}")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "addr", "add", f"{self.gateway}/{self.mask}", "dev", "br0")
        run("ip", "link", "set", "br0", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")  # "unreachable" at once, not silence
        os.environ.update(
            HOME=str(self.home),
            TMPDIR=str(self.home / "tmp"),
            RAY_TMPDIR=str(self.home / "tmp"),
            RAY_USAGE_STATS_ENABLED="0",
            PATH=f"{VENV / 'bin'}:{os.environ['PATH']}",
        )

    def note(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    # --- machines -------------------------------------------------------------------------------

    def start(self, name: str, address: str) -> None:
        keep = [str(place) for place in (VENV, BASE) if place != Path("/usr")]
        script = Path(__file__).with_name("machine.sh")
        log = open(self.folder / f"{name}.log", "wb")
        machine = subprocess.Popen(
            [*OWN_SPACE, "bash", str(script), str(self.folder), name, f"{address}/{self.mask}"]
            + [self.gateway, *keep],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        net = f"/proc/{machine.pid}/ns/net"
        wait_for(lambda: os.readlink(net) != os.readlink("/proc/self/ns/net"))
        number = len(self.machines)
        run("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns",
            str(machine.pid))  # fmt: skip
        run("ip", "link", "set", f"v{number}", "master", "br0")
        run("ip", "link", "set", f"v{number}", "up")
        self.machines[name] = machine

    def cut_power(self, name: str) -> None:
        self.machines[name].kill()
        self.machines[name].wait()
        self.note(f"{name} lost its power")

    def running(self) -> list[str]:
        return sorted(name for name, machine in self.machines.items() if machine.poll() is None)

    def processes(self, name: str) -> list[str]:
        """What runs on a machine: the command line of each process."""
        return list(self._processes(name).values())

    def kill_ray(self, name: str) -> None:
        """A node that is gone at once; the machine stays, and Ray may be started there again."""
        for pid, words in self._processes(name).items():
            if "raylet" in words or words.startswith("ray::"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.note(f"{name} lost its Ray")

    def _processes(self, name: str) -> dict[int, str]:
        space = os.readlink(f"/proc/{child_of(self.machines[name].pid)}/ns/pid")
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                # A machine's first process is no init: the dead stay listed.
                if os.readlink(entry / "ns" / "pid") == space and state not in "ZX":
                    words = (entry / "cmdline").read_text().split("\0")
                    found[int(entry.name)] = " ".join(words).strip()
            except OSError:
                continue
        return found

    def home_of(self, name: str) -> Path:
        return self.folder / name / "root"

    # --- Ray and the cloud ----------------------------------------------------------------------

    def ray(self, *words: str) -> str:
        self.note(f"ray {' '.join(words)[:150]}")
        done = subprocess.run(
            ["ray", *words], cwd=ROOT, text=True, timeout=PATIENCE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"ray {words}: {done.stdout[-4000:]}"
        return done.stdout

    def cloud(self) -> str:
        """A pretended Amazon in this lab; its address."""
        place = f"http://{self.gateway}:{PORT}"
        os.environ.update(KEYS, AWS_ENDPOINT_URL=place, MOTO_IAM_LOAD_MANAGED_POLICIES="true")
        log = open(self.folder / "cloud.log", "wb")
        program = Path(__file__).with_name("cloud.py")
        start = [sys.executable, str(program), "-H", self.gateway, "-p", str(PORT)]
        subprocess.Popen(start, stdout=log, stderr=subprocess.STDOUT)
        wait_for(lambda: answers(self.gateway, PORT))
        return place

    def write_cluster(self, data: dict[str, Any]) -> str:
        path = self.folder / "cluster.yaml"
        path.write_text(yaml.safe_dump(data, sort_keys=False))
        return str(path)

    def end(self) -> None:
        (self.folder / "found.json").write_text(json.dumps(self.found, indent=1))
        self.note("done")


# The venv is this one; the project as it was shipped stands before what is installed in it.
SET_UP = [
    "chmod 600 ~/.ray/auth_token",
    f"grep -q RAY_AUTH_MODE ~/.bashrc || echo 'export RAY_AUTH_MODE=token PYTHONPATH=~/stockpot "
    f"OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PATH={VENV}/bin:$PATH' >> ~/.bashrc",
]


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def own_tmp(*keep: Path) -> None:
    """A /tmp that goes with the lab, where Ray keeps SSH connections by user and not by cluster."""
    held = {place: os.open(place, os.O_PATH) for place in keep if place.is_relative_to("/tmp")}
    run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
    for place, handle in held.items():
        place.mkdir(parents=True, exist_ok=True)
        run("mount", "--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{handle}", str(place))
        os.close(handle)


def wait_for(condition: Callable[[], Any], every: float = 0.1) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(every)


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
        return True
    except OSError:
        return False


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
