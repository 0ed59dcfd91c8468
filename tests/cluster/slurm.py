"""Scenario: docs/clusters/slurm.sbatch on two nodes of a real Slurm; a job takes one away.

Debian's Slurm: the controller in the lab's own space, slurmd and munged on each machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.lab import ROOT
from tests.cluster.lab.machines import VENV, Lab, child_of, wait_for
from tests.tuner.search_runs import events

ADDRESSES = {"first": "10.78.0.1", "second": "10.78.0.2"}
CONTROLLER = "10.78.0.254"
CONF = f"""\
ClusterName=lab
SlurmctldHost=controller({CONTROLLER})
SlurmUser=root
AuthInfo=socket=/tmp/munge.socket
StateSaveLocation=/tmp/slurmctld
SlurmdSpoolDir=/tmp/slurmd
SlurmctldPidFile=/tmp/slurmctld.pid
SlurmdPidFile=/tmp/slurmd.pid
SlurmctldLogFile=/srv/slurm/controller.log
SlurmdLogFile=/srv/slurm/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SchedulerParameters=sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
NodeName=first,second NodeAddr=10.78.0.[1-2] CPUs=8 Gres=gpu:1
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=300
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF
"""
# No machine here has a GPU: Slurm and Ray count one each, and trials take the CPU.
SEARCH = (
    "--encoder tiny --max-examples 4800 --grace-examples 120 --set budget.eval_rows=40 "
    "--sampler random --no-early-stopping --num-samples 2 --keep 9 --gpus-per-trial 1 "
    "--set pair.encoding=cross -v"
)
FILLED_IN = {
    "PARTITION": "low",
    "/path/to/shared": "/srv",
    "--gpus-per-trial 0.5 --cpus-per-trial 4 --num-samples 100": SEARCH,
    "--disable-usage-stats": "--disable-usage-stats --object-store-memory=100000000",
}


def main(folder: Path) -> None:
    lab = Lab(folder, CONTROLLER, 24)
    (folder / "authorized_keys").touch()
    for name, address in ADDRESSES.items():
        lab.start(name, address)
    set_up(lab)
    start_slurm(lab)
    search_that_is_preempted(lab)
    lab.end()


def set_up(lab: Lab) -> None:
    """What a site has: names, one home, one shared folder with the project in it."""
    shared = lab.folder / "shared"
    for name in ("model", "tuner", "search_spaces", "studies"):
        shutil.copytree(ROOT / name, shared / "stockpot" / name)
    (shared / "stockpot" / ".venv").symlink_to(VENV)
    (shared / "slurm").mkdir()
    (shared / "slurm" / "slurm.conf").write_text(CONF)
    (shared / "slurm" / "gres.conf").write_text("Name=gpu File=/dev/null\n")
    script = (ROOT / "docs/clusters/slurm.sbatch").read_text()
    for old, new in FILLED_IN.items():
        assert old in script
        script = script.replace(old, new)
    (shared / "job.sbatch").write_text(script)
    subprocess.run(["mount", "--bind", str(shared), "/srv"], check=True)
    names = "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
    names += f"{CONTROLLER} controller\n"
    lab.ray("get-auth-token", "--generate")
    for name in ADDRESSES:
        hosts = lab.folder / name / "hosts"
        wait_for(hosts.exists)
        with hosts.open("a") as file:
            file.write(names)
        shutil.copytree(lab.home / ".ray", lab.home_of(name) / ".ray")
    with (lab.folder / "hosts").open("a") as file:
        file.write(names)
    os.environ.update(  # which a job takes along
        HOME="/root", SLURM_CONF="/srv/slurm/slurm.conf", PYTHONPATH="/srv/stockpot",
        HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", RAY_worker_niceness="0",
        TMPDIR="/tmp", RAY_TMPDIR="/tmp",
    )  # fmt: skip


def start_slurm(lab: Lab) -> None:
    key = lab.folder / "shared" / "slurm" / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    subprocess.run(["hostname", "controller"], check=True)
    Path("/tmp/slurmctld").mkdir()
    munge = ["munged", "--force", "--key-file=/srv/slurm/munge.key", "--socket=/tmp/munge.socket"]
    munge += [f"--{name}-file=/tmp/munge.{name}" for name in ("pid", "log", "seed")]
    subprocess.run(munge, check=True)
    subprocess.run(["slurmctld"], check=True)
    for name in ADDRESSES:
        into = ["nsenter", "--all", "--target", str(child_of(lab.machines[name].pid)), "--"]
        subprocess.run([*into, *munge], check=True)
        subprocess.run([*into, "slurmd"], check=True)
    wait_for(lambda: said("sinfo", "--noheader", "--format=%T").split() == ["idle"])
    lab.note("Slurm is up")


def said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def state_of_job(job: str) -> str:
    return said("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()


def search_that_is_preempted(lab: Lab) -> None:
    run = lab.folder / "shared" / "runs" / "big"
    job = said("sbatch", "--parsable", "--chdir=/srv", "/srv/job.sbatch").strip()
    log = lab.folder / "shared" / f"stockpot-{job}.log"

    def under_way() -> bool:
        """On both nodes, and one is so far that there is something to save."""
        text = log.read_text() if log.exists() else ""
        assert state_of_job(job) in ("PENDING", "CONFIGURING", "RUNNING"), text
        told = events(run) if (run / "ledger.jsonl").exists() else []
        nodes = {e["node"] for e in told if e["event"] == "started"}
        return len(nodes) == 2 and any(e["event"] == "evaluated" for e in told)

    wait_for(under_way)
    lab.note("trials run")
    urgent = said(
        *("sbatch", "--parsable", "--partition=urgent", "--nodes=1", "--exclusive"),
        *("--output=/srv/urgent.log", "--wrap", "hostname"),
    ).strip()
    wait_for(lambda: state_of_job(urgent) == "COMPLETED")
    lab.note("the urgent job is through")
    lab.found["preempted"] = events(run)
    wait_for(lambda: state_of_job(job) != "COMPLETING")
    lab.found["waiting"] = state_of_job(job)
    # Slurm holds a job that was queued again back for two minutes, until its old credentials are
    # void. They are so within a second, but in that one the job would be refused.
    soon = "StartTime=now+3seconds"
    subprocess.run(["scontrol", "update", f"JobId={job}", soon], check=True)
    wait_for(lambda: state_of_job(job) in ("COMPLETED", "FAILED", "TIMEOUT"))
    lab.note("the search is through")
    lab.found["said"] = log.read_text()
    lab.found["state"] = state_of_job(job)
    lab.found["events"] = events(run)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
