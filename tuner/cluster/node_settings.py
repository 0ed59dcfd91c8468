"""Typos in what a cluster file tells the cloud about its machines, which Ray passes on unread."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from model.common.errors import install, suggest, unknown

SETTING = "a setting of the machine"
# Ray's own, beside the arguments of EC2's RunInstances.
OF_RAY = {"SubnetIds"}
# Of Compute Engine's instances.insert, in API version 1.
GCP = {
    *("advancedMachineFeatures", "canIpForward", "confidentialInstanceConfig", "description"),
    *("deletionProtection", "disks", "displayDevice", "guestAccelerators", "hostname", "labels"),
    *("keyRevocationActionType", "machineType", "metadata", "minCpuPlatform", "name"),
    *("networkInterfaces", "networkPerformanceConfig", "params", "privateIpv6GoogleAccess"),
    *("reservationAffinity", "resourcePolicies", "scheduling", "serviceAccounts"),
    *("shieldedInstanceConfig", "sourceMachineImage", "tags"),
}
GCP_INSIDE = {
    "disks": {
        *("autoDelete", "boot", "deviceName", "diskEncryptionKey", "diskSizeGb", "index"),
        *("guestOsFeatures", "initializeParams", "interface", "kind", "licenses", "mode"),
        *("source", "type"),
    },
    "guestAccelerators": {"acceleratorCount", "acceleratorType"},
    "networkInterfaces": {
        *("accessConfigs", "aliasIpRanges", "ipv6AccessConfigs", "name", "network", "networkIP"),
        *("nicType", "queueCount", "stackType", "subnetwork"),
    },
    "scheduling": {
        *("automaticRestart", "availabilityDomain", "instanceTerminationAction", "preemptible"),
        *("locationHint", "maxRunDuration", "minNodeCpus", "nodeAffinities"),
        *("onHostMaintenance", "onInstanceStopAction", "provisioningModel", "terminationTime"),
    },
    "serviceAccounts": {"email", "scopes"},
}


def typos(provider: str, settings: Any) -> list[str]:
    if not isinstance(settings, dict):
        return ["node_config must be a mapping of settings"]
    if provider == "aws":
        return list(aws_typos(settings))
    return list(gcp_typos(settings)) if provider == "gcp" else []


def gcp_typos(settings: dict[str, Any]) -> Iterator[str]:
    yield from unknown(settings, GCP, SETTING)
    for name, known in GCP_INSIDE.items():
        entries = settings.get(name)
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, dict):
                yield from unknown(entry, known, SETTING, f"{name}.")


def aws_typos(settings: dict[str, Any]) -> Iterator[str]:
    """Against the description of RunInstances that Amazon's own client works by."""
    try:
        shape = run_instances()
    except ImportError:
        yield f"cannot be checked without boto3; {install('cluster')}"
        return
    own = {name: value for name, value in settings.items() if name not in OF_RAY}
    yield from shape_faults(own, shape, "")


@lru_cache
def run_instances() -> Any:
    from botocore.session import get_session

    return get_session().get_service_model("ec2").operation_model("RunInstances").input_shape


def shape_faults(value: Any, shape: Any, where: str) -> Iterator[str]:
    kind = shape.type_name
    if kind == "structure" and isinstance(value, dict):
        members = shape.members
        yield from unknown(value, set(members), SETTING, where)
        for name, inside in value.items():
            if name in members:
                yield from shape_faults(inside, members[name], f"{where}{name}.")
    elif kind == "list" and isinstance(value, list):
        for entry in value:
            yield from shape_faults(entry, shape.member, where)
    elif kind == "structure" or kind == "list":
        wanted = "a mapping" if kind == "structure" else "a list"
        yield f"'{where.rstrip('.')}' must be {wanted}, but is {value!r}"
    elif kind == "string" and shape.enum and str(value) not in shape.enum:
        name = where.rstrip(".")
        if len(shape.enum) <= 60:
            yield f"'{name}' is {value!r}; {suggest(str(value), shape.enum)}"
        elif name == "InstanceType":
            yield f"'{name}' is {value!r}, which this boto3 does not know; check the spelling"
