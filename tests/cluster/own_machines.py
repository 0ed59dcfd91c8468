"""Scenario: `ray up` on three machines one has, a search over them, and one that loses a machine.

The cluster file is docs/clusters/local.yaml with the lab's addresses, key and Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import boto3
import yaml

from model.common.files import sha256_of
from tests.cluster.lab import ROOT
from tests.cluster.lab.machines import PATIENCE, SET_UP, SMALL_STORE, Lab, answers, wait_for
from tests.tuner.search_runs import curves_of, events, state_of

ADDRESSES = {"head": "10.77.0.1", "first": "10.77.0.2", "second": "10.77.0.3"}
# Every search draws the same configurations and trains them in full.
SEARCH = (
    "python -m tuner.search --encoder tiny --max-examples 1200 --grace-examples 120 "
    "--set budget.eval_rows=40 --sampler random --no-early-stopping --num-samples 3 --keep 9 "
    "--cpus-per-trial 1 --max-concurrent-trials 2 -v "
    "--set pair.encoding=cross"  # so that all fit together
)
# So much cross-fitting that there is work for both machines, however long one takes to start.
SOUP = "python -m tuner.soup --halvings 12"
SECRET = "lab-secret"
# A worker gives its head up after 10 s instead of 60, the head a worker after 5 s instead of 15.
SOONER = "RAY_gcs_rpc_server_reconnect_timeout_s=10 RAY_health_check_period_ms=1000"
# Other tests run beside this one.
SOONER += " RAY_worker_niceness=0"


def main(folder: Path) -> None:
    lab = Lab(folder, "10.77.0.254", 24)
    place = lab.cloud()
    os.environ["RAY_UP_enable_autoscaler_v2"] = "0"  # as docs/clusters/local.md says
    s3 = boto3.client("s3", region_name="us-east-1", endpoint_url=place)
    s3.create_bucket(Bucket="runs")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True
    )
    (folder / "authorized_keys").write_text((folder / "key.pub").read_text())
    for name, address in ADDRESSES.items():
        lab.start(name, address)
    wait_for(lambda: all(answers(address, 22) for address in ADDRESSES.values()))
    lab.ray("get-auth-token", "--generate")
    cluster = lab.write_cluster(lab_file(folder))
    lab.ray("up", "-y", "--no-config-cache", cluster)
    search_on_a_shared_folder(lab, cluster)
    soups_on_the_workers(lab, cluster)
    search_that_loses_a_machine(lab, cluster)
    stored = s3.get_paginator("list_objects_v2").paginate(Bucket="runs")
    lab.found["stored"] = {
        item["Key"]: item["Size"] for page in stored for item in page.get("Contents", [])
    }
    lab.ray("down", "-y", cluster)
    search_alone(lab)  # while the workers come to miss their head
    lab.found["left"] = left_over(lab)
    lab.end()


def left_over(lab: Lab) -> dict[str, list[str]]:
    """What still runs on each machine when it has had the time to end."""
    deadline = time.monotonic() + PATIENCE
    while True:
        left = {
            name: [line for line in lab.processes(name) if not line.startswith("sshd")]
            for name in lab.running()
        }
        if not any(left.values()) or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


def lab_file(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((ROOT / "docs/clusters/local.yaml").read_text())
    head, *workers = ADDRESSES.values()
    data["provider"] |= {"head_ip": head, "worker_ips": workers}
    data["auth"] = {"ssh_user": "root", "ssh_private_key": str(folder / "key")}
    data["setup_commands"] = SET_UP
    for part, cpus in (("head_start_ray_commands", 0), ("worker_start_ray_commands", 1)):
        stop, start = data[part]
        start = start.replace("ray start", f"{SOONER} ray start")
        data[part] = [stop, f"{start} --num-cpus={cpus} {SMALL_STORE}"]
    return data


def search_on_a_shared_folder(lab: Lab, cluster: str) -> None:
    wait_for_workers(lab, cluster, 2)
    command = f"cd ~/stockpot && {SEARCH} --address auto --storage-path /srv/runs --name shared"
    run = lab.folder / "shared" / "runs" / "shared"
    # As a job: its driver belongs to the cluster, not to whoever submitted it.
    jobs, place = "ray job", "--address http://127.0.0.1:8265"
    lab.ray(
        *("exec", cluster),
        f"{jobs} submit {place} --no-wait --submission-id one -- bash -c '{command}'",
    )
    logs = lab.folder / "head" / "tmp" / "ray"

    def evaluated() -> bool:
        said = "".join(log.read_text() for log in logs.glob("session_2*/logs/job-driver-one.log"))
        assert "Traceback" not in said, said
        return bool(of(run, "evaluated"))

    wait_for(evaluated)
    # Held until the word to stop is there, or on a busy machine it would be through by then.
    driver = driver_of(run)
    os.kill(driver, signal.SIGSTOP)
    stop = threading.Thread(
        target=lab.ray, args=("exec", cluster, f"{jobs} stop {place} one")
    )  # saves its trials, and ends
    stop.start()
    wait_for(lambda: is_told_to_end(driver))
    os.kill(driver, signal.SIGCONT)
    stop.join()
    lab.found["stopped"] = events(run)
    lab.found["shared_said"] = lab.ray("exec", cluster, f"{command} --resume")
    lab.found["shared"] = curves_of(run)
    lab.found["shared_events"] = events(run)
    lab.found["shared_files"] = files_of(run)
    lab.found["shared_sums"] = sums_of(run)
    # The same, but in a folder that every machine has for itself.
    refused = subprocess.run(
        ["ray", "exec", cluster, f"cd ~/stockpot && {SEARCH} --address auto --name lonely"],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    lab.found["refused"] = refused.stdout
    lab.note("searched on the shared folder")


def driver_of(run: Path) -> int:
    """The lock names it as its own machine does, which counts its processes for itself."""
    inside = str(json.loads((run / "lock").read_text())["pid"])
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            (names,) = re.findall(r"^NSpid:(.*)$", (place / "status").read_text(), re.M)
            if names.split()[-1] == inside and b"tuner.search" in (place / "cmdline").read_bytes():
                return int(place.name)
    raise AssertionError(f"no process {inside} of a search")


def is_told_to_end(pid: int) -> bool:
    """Whether SIGTERM waits for a process that is held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (pending,) = [line.split()[1] for line in lines if line.startswith("ShdPnd:")]
    return bool(int(pending, 16) >> (signal.SIGTERM - 1) & 1)


def soups_on_the_workers(lab: Lab, cluster: str) -> None:
    """The same soup from the start, on two nodes; and once more, while one of them is killed."""
    run = lab.folder / "shared" / "runs" / "shared"
    command = f"cd ~/stockpot && {SOUP} /srv/runs/shared --address auto"
    (run / "soups").rename(lab.folder / "soups-of-the-search")
    lab.found["soup_said"] = lab.ray("exec", cluster, command)
    lab.found["soup_sums"] = sums_of(run)
    lab.note(clock_of(run, "two nodes"))
    (run / "soups").rename(lab.folder / "soups-of-two-nodes")
    log = open(lab.folder / "soup.log", "w")
    soup = subprocess.Popen(
        ["ray", "exec", cluster, command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
    )

    def in_the_middle() -> bool:
        assert soup.poll() is None, (lab.folder / "soup.log").read_text()[-3000:]
        asked = any(words.startswith("ray::Worker.ask") for words in lab.processes("second"))
        return asked and any((run / "soups" / "evaluations").glob("*.parquet"))

    wait_for(in_the_middle, every=0.01)
    lab.kill_ray("second")
    lab.found["killed_code"] = soup.wait(timeout=PATIENCE)
    lab.found["killed_said"] = (lab.folder / "soup.log").read_text()
    lab.found["killed_sums"] = sums_of(run)
    wait_for_workers(lab, cluster, 2)  # the autoscaler starts it again


def clock_of(run: Path, who: str) -> str:
    soup = json.loads((run / "soup" / "soup.json").read_text())
    return f"a soup of {soup['ran']:g} evaluations by {who} took {soup['seconds']:.1f} s"


def sums_of(run: Path) -> dict[str, str]:
    files = ("model.safetensors", "heads.safetensors")
    return {name: sha256_of(run / "soup" / name) for name in files}


def search_alone(lab: Lab) -> None:
    """The same on one machine, without a cluster."""
    done = subprocess.run(
        f"{SEARCH} --storage-path {lab.folder / 'alone'} --name one",
        shell=True, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    lab.found["alone"] = curves_of(lab.folder / "alone" / "one")
    lab.found["alone_sums"] = sums_of(lab.folder / "alone" / "one")
    lab.note("searched alone")
    run = lab.folder / "alone" / "one"
    (run / "soups").rename(lab.folder / "soups-of-one")
    subprocess.run(f"{SOUP} {run} --quiet", shell=True, cwd=ROOT, check=True, timeout=PATIENCE)
    lab.note(clock_of(run, "the driver alone"))


def wait_for_workers(lab: Lab, cluster: str, count: int) -> None:
    look = (
        "import ray, time; ray.init(address='auto', log_to_driver=False)\n"
        f"while sum(n['Alive'] for n in ray.nodes()) < {count + 1}: time.sleep(0.5)\n"
    )
    (lab.folder / "look.py").write_text(look)
    lab.ray("submit", cluster, str(lab.folder / "look.py"))


def search_that_loses_a_machine(lab: Lab, cluster: str) -> None:
    url = (
        f"s3://lab:{SECRET}@runs/searches?endpoint_override=http://{lab.gateway}:5555"
        "&scheme=http&region=us-east-1"
    )
    command = f"cd ~/stockpot && {SEARCH} --address auto --storage-path '{url}' --name lossy"
    log = open(lab.folder / "lossy.log", "w")
    search = subprocess.Popen(
        ["ray", "exec", cluster, command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
    )
    run = lab.home_of("head") / "stockpot" / "runs" / "lossy"
    victim = ""

    def deep_in_a_trial() -> bool:
        nonlocal victim
        assert search.poll() is None, (lab.folder / "lossy.log").read_text()[-3000:]
        for trial in state_of(run).open_trials if (run / "ledger.jsonl").exists() else []:
            if 2 <= len(trial.evaluations) <= 7 and address_of(run, trial.id):
                victim = trial.id
        return bool(victim)

    wait_for(deep_in_a_trial)
    lost = address_of(run, victim)
    lab.found |= {"victim": victim, "lost": lost}
    lab.cut_power(next(name for name, address in ADDRESSES.items() if address == lost))
    lab.found["lossy_code"] = search.wait(timeout=PATIENCE)
    lab.found["lossy_said"] = (lab.folder / "lossy.log").read_text()
    lab.found["lossy"] = curves_of(run)
    lab.found["lossy_events"] = events(run)
    lab.found["lossy_files"] = files_of(run)
    lab.found["lossy_sums"] = sums_of(run)
    # Ray repeats the command that it was given; what counts is what the search says.
    lines = lab.found["lossy_said"].splitlines()
    said = "\n".join(line for line in lines if "command_runner.py" not in line)
    lab.found["secret_in"] = ["what it said"] if SECRET in said else []
    lab.found["secret_in"] += [
        file.name
        for file in run.rglob("*")
        if file.is_file() and SECRET.encode() in file.read_bytes()
    ]


def files_of(run: Path) -> list[str]:
    return sorted(file.relative_to(run).as_posix() for file in run.rglob("*") if file.is_file())


def of(run: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in events(run) if event["event"] == name]


def address_of(run: Path, trial: str) -> str:
    started = [event for event in of(run, "started") if event["trial"] == trial]
    return str(started[-1].get("address", "")) if started else ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
