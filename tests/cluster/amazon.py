"""Scenario: cluster.yaml itself on a pretended Amazon whose instances become the lab's machines.

Changed is only what the lab cannot do: containers, images, users, sums of money (the idle time).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import boto3
import yaml

from tests.cluster.lab import ROOT
from tests.cluster.lab.machines import KEYS, SET_UP, SMALL_STORE, Lab, wait_for
from tests.tuner.search_runs import events

SEARCH = (
    "python -m tuner.search --encoder tiny --max-examples 480 --set budget.eval_rows=40 "
    "--sampler random --no-early-stopping --num-samples 4 --address auto "
    "--storage-path s3://runs/searches --name spot "
    "--gpus-per-trial 0.5 --cpus-per-trial 1 --max-concurrent-trials 4 -v"
)


# Looks for idle machines more often, and lets trials run beside other tests.
FAST = "AUTOSCALER_UPDATE_INTERVAL_S=2 RAY_worker_niceness=0"


def main(folder: Path) -> None:
    lab = Lab(folder, "172.31.255.254", 16)
    lab.cloud()
    group = prepare_account()
    lab.found["came"] = []
    machines = threading.Thread(target=become_machines, args=(lab,), daemon=True)
    machines.start()
    lab.ray("get-auth-token", "--generate")
    cluster = lab.write_cluster(lab_file(group))
    lab.ray("up", "-y", "--no-config-cache", cluster)
    lab.found["after_up"] = instances()
    lab.found["said"] = lab.ray("exec", cluster, f"cd ~/stockpot && {SEARCH}")
    lab.found["events"] = run_events(lab)
    wait_for(lambda: kinds("running") == ["head"], every=1)
    lab.note("the workers went when they were idle")
    lab.found["after_idle"] = instances()
    lab.ray("down", "-y", cluster)
    wait_for(lambda: not kinds("running") and not lab.running(), every=1)
    lab.found["after_down"] = instances()
    lab.end()


@lru_cache
def ec2() -> Any:
    return boto3.client("ec2")


def prepare_account() -> str:
    """What docs/clusters/aws.md has the user make: a bucket, two profiles, a group."""
    boto3.client("s3").create_bucket(
        Bucket="runs", CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    )
    iam = boto3.client("iam")
    for name in ("stockpot-head", "stockpot-worker"):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    network = ec2().describe_vpcs()["Vpcs"][0]["VpcId"]
    group = ec2().create_security_group(GroupName="stockpot", Description="x", VpcId=network)
    identity = str(group["GroupId"])
    within = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": identity}]}
    mine = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    mine |= {"IpRanges": [{"CidrIp": "203.0.113.7/32"}]}  # type: ignore[dict-item]
    ec2().authorize_security_group_ingress(GroupId=identity, IpPermissions=[within, mine])
    return identity


def lab_file(group: str) -> dict[str, Any]:
    image = ec2().describe_images()["Images"][0]["ImageId"]
    text = (ROOT / "cluster.yaml").read_text().replace("sg-0123456789abcdef0", group)
    data: dict[str, Any] = yaml.safe_load(text.replace("/home/ray", "/root"))
    del data["docker"]
    data["auth"]["ssh_user"] = "root"
    data["provider"]["use_internal_ips"] = True
    data["idle_timeout_minutes"] = 0.4
    for node in data["available_node_types"].values():
        node["node_config"]["ImageId"] = image
    cloud = " ".join(f"{key}={os.environ[key]}" for key in (*KEYS, "AWS_ENDPOINT_URL"))
    # The machines' own credentials, which Amazon would give them by their profile.
    data["setup_commands"] = [*SET_UP, f"echo 'export {cloud}' >> ~/.bashrc"]
    for part in ("head_start_ray_commands", "worker_start_ray_commands"):
        stop, start = data[part]
        start = start.replace("ray start", f"{cloud} {FAST} ray start")
        data[part] = [stop, f"{start} {SMALL_STORE}"]
    return data


def become_machines(lab: Lab) -> None:
    """What the pretended Amazon calls running is a machine, until it is called something else."""
    while True:
        for instance in instances():
            name, state = instance["id"], instance["state"]
            if state == "running" and name not in lab.machines:
                pairs = ec2().describe_key_pairs(IncludePublicKey=True)["KeyPairs"]
                keys = "\n".join(pair.get("PublicKey", "").strip() for pair in pairs)
                (lab.folder / "authorized_keys").write_text(keys + "\n")
                lab.start(name, instance["address"])
                lab.found["came"] += [each for each in instances() if each["id"] == name]
                lab.note(f"{name} is a {instance['type']} ({instance['kind']})")
            elif state != "running" and name in lab.running():
                lab.machines[name].kill()
                lab.machines[name].wait()
                lab.note(f"{name} ({instance['kind']}) is {state}")
        time.sleep(0.5)


def instances() -> list[dict[str, Any]]:
    found = []
    for reservation in ec2().describe_instances()["Reservations"]:
        for instance in reservation["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
            found.append(
                {
                    "id": instance["InstanceId"],
                    "state": instance["State"]["Name"],
                    "type": instance["InstanceType"],
                    "address": instance.get("PrivateIpAddress"),
                    "market": instance.get("InstanceLifecycle", "on demand"),
                    "groups": [group["GroupId"] for group in instance["SecurityGroups"]],
                    "profile": instance.get("IamInstanceProfile", {}).get("Arn", ""),
                    "kind": tags.get("ray-user-node-type", ""),
                }
            )
    return found


def kinds(state: str) -> list[str]:
    return sorted(each["kind"] for each in instances() if each["state"] == state)


def run_events(lab: Lab) -> list[dict[str, Any]]:
    head = next(each["id"] for each in instances() if each["kind"] == "head")
    return events(lab.home_of(head) / "stockpot" / "runs" / "spot")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BaseException:
        for log in Path(sys.argv[1]).glob("*.log"):
            subprocess.run(["tail", "-n", "5", str(log)])
        raise
